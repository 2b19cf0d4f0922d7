"""Assignment of threads to a tile: squares of 2 x 2 neighbours among a warp's lanes, in place of whole rows.

Before: `threadIdx.y y: threadIdx.x x: ...`, lanes along x. After: the loops as they are, and in their body x and y of a
square in every four lanes. Shared memory delivers a vector of 8 or 16 bytes in parts of a warp. It delivers two parts
at once if neighbouring lanes (those whose numbers differ in bit 0, or all in bit 1) read the same. In squares both
factors of a product meet this, in rows only the factor that lanes along x share. CUTLASS: RowMajorInterleaved<2>.
"""

from __future__ import annotations

from dataclasses import replace

from search_space.ir.expr import Expr, substitute, var
from search_space.ir.stmt import Allocate, For, Intrinsic, Stmt, map_children, map_exprs, walk_stmt


def in_squares(stmt: Stmt, block: tuple[int, int, int]) -> Stmt:
    """Puts the threads of a tile into squares, if all threads of a block work on one tile in shared memory.

    Args:
        block: threads along x, y and z.
    """
    pair = _pair(stmt, block)
    if pair is None:
        return map_children(stmt, lambda child: in_squares(child, block))
    outer, inner = pair
    values = _tile_position(var(outer.var), var(inner.var), block[0])
    memo: dict[int, Expr] = {}
    body = map_exprs(inner.body, lambda e: substitute(e, dict(zip((outer.var, inner.var), values, strict=True)), memo))
    return replace(outer, body=replace(inner, body=body))


def _pair(stmt: Stmt, block: tuple[int, int, int]) -> tuple[For, For] | None:
    """Returns the loops over a tile's threads along y and x, directly nested, that may be put into squares."""
    x, y, z = block
    if z != 1 or x % 4 or y % 2 or not isinstance(stmt, For) or not isinstance(stmt.body, For):
        return None
    outer, inner = stmt, stmt.body
    if (outer.kind, inner.kind) != ("threadIdx.y", "threadIdx.x"):
        return None
    if (inner.extent.value, outer.extent.value) != (x, y):
        return None
    nodes = list(walk_stmt(inner.body))
    # Instructions fix which lane holds which element.
    tiles = any(isinstance(n, Allocate) and n.buffer.scope == "shared" for n in nodes)
    return (outer, inner) if tiles and not any(isinstance(n, Intrinsic) for n in nodes) else None


def _tile_position(y: Expr, x: Expr, width: int) -> tuple[Expr, Expr]:
    """Returns the position in the tile, along y and x, of the thread (y, x) of `width` in a row."""
    return x // 2 % 2 + y // 2 * 2, x % 2 + (y % 2 * (width // 4) + x // 4) * 2


__all__ = ["in_squares"]

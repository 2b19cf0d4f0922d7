"""Decision groups: tables of the values a few decision variables may take together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isqrt

import numpy as np
from numpy.typing import NDArray

MAX_WASTE = 1.25  # share of computed to useful elements an imperfect tiling may have


@dataclass(frozen=True, eq=False)
class DecisionGroup:
    """A group of decisions taken together: a choice is a row of `table`, so that every choice is admissible.

    Attributes:
        name: name in reports.
        columns: names of the decision variables.
        table: int64 (choices, columns).
    """

    name: str
    columns: tuple[str, ...]
    table: NDArray[np.int64]

    @staticmethod
    def of(name: str, columns: Sequence[str], rows: Sequence[Sequence[int]]) -> DecisionGroup:
        """Makes a group from rows; duplicates are dropped, the order is kept.

        Raises:
            ValueError: no rows.
        """
        unique = list(dict.fromkeys(tuple(int(v) for v in row) for row in rows))
        if not unique:
            raise ValueError(f"a decision group must have at least one choice, but {name} has none")
        return DecisionGroup(name, tuple(columns), np.array(unique, np.int64).reshape(len(unique), len(columns)))


def ceildiv(a: int, b: int) -> int:
    return -(-a // b)


def divisors(n: int) -> list[int]:
    """Lists all divisors, ascending: those up to the root, and their quotients."""
    small = [d for d in range(1, isqrt(n) + 1) if n % d == 0]
    return small + [n // d for d in reversed(small) if d * d != n]


def block_counts(blocks: int) -> list[int]:
    """Lists sizes of a group of blocks: the divisors, and nearly even parts of a count with few divisors."""
    parts = {ceildiv(blocks, p) for p in range(1, min(blocks, 16) + 1)}
    near = {m for m in parts if ceildiv(blocks, m) * m <= blocks * 1.1}
    return sorted(near | set(divisors(blocks)))


def clamped_tiles(extent: int, largest: int, levels: int) -> list[tuple[int, ...]]:
    """Lists inner factors (..., tile) of an axis whose last tile is clamped, if little of it is computed twice.

    Args:
        largest: greatest size of a tile.
        levels: 1 for (tile,), 2 for (blocks, tile).
    """
    rows: list[tuple[int, ...]] = []
    for tile in range(1, min(extent, largest) + 1):
        blocks = ceildiv(extent, tile)
        if blocks * tile > extent * MAX_WASTE:
            continue
        rows += [(tile,)] if levels == 1 else [(m, tile) for m in block_counts(blocks)]
    return rows


def nested_tiles(extent: int, largest: int) -> list[tuple[int, int]]:
    """Lists (block, tile) of an axis cut into blocks, and these into tiles of at most `largest`; both are clamped."""
    rows = []
    for block in range(1, extent + 1):
        if ceildiv(extent, block) * block <= extent * MAX_WASTE:
            rows += [(block, tile) for (tile,) in clamped_tiles(block, largest, 1)]
    return rows


def vector_tiles(extent: int, lanes: int, largest: int) -> list[tuple[int, int]]:
    """Lists (blocks, vectors) of an axis in vectors of `lanes`, the last one masked; blocks divide their count."""
    vectors = ceildiv(extent, lanes)
    rows = []
    for per_tile in range(1, min(vectors, largest) + 1):
        tiles = ceildiv(vectors, per_tile)
        if tiles * per_tile <= vectors * MAX_WASTE:
            rows += [(m, per_tile) for m in divisors(tiles)]
    return rows


def reduce_tiles(extent: int, largest: int) -> list[tuple[int]]:
    """Lists inner factors of a reduce axis: small ones, and all of a short axis; a remainder is peeled."""
    rows = [d for d in divisors(extent) if d <= largest]
    if len(rows) == 1 and extent > 1:
        rows += [d for d in (2, 4, 8) if d <= min(extent, largest)]
    return [(d,) for d in rows]

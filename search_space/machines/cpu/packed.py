"""Sums of products with an operand whose rows lie far apart, such as `B` in `sum(A[i, k] * B[k, j])` with long rows.

A tile reads a few vectors of each row of `B`. In a large array these lie on as many pages, and many share a set of a
cache: no prefetcher helps, and lines are evicted before they are read again. A copy of a tile's columns is contiguous,
and all rows of the output share it (Goto and van de Geijn, "Anatomy of high-performance matrix multiplication", 2008).
Constants are packed before the first call, and need none.
"""

from __future__ import annotations

from math import prod

from search_space.hardware import Hardware
from search_space.ir.expr import dtype_bytes, lift, var, variables, walk
from search_space.lower.inline import expand_body
from search_space.machines.cpu.tiling import MultiLevelTiling, vector_axis
from search_space.machines.cpu.transposed import (
    Anchor,
    TransposedOperands,
    are_read_outside,
    count_rows,
    find_anchors,
    list_column_loops,
    list_readers,
)
from search_space.machines.shared.groups import MAX_VECTORS
from search_space.machines.shared.instructions import matching_intrinsic
from search_space.schedule.state import Stage
from search_space.sketch.base import Draft, SketchRule

SHARING_ROWS = 64
"""Fewest rows of results that share a copied element: 64 gained by it, and fewer were not measured."""

CACHE_SHARE = 4
"""An operand is copied if it takes more than one part in so many of the second cache."""

COPIED_VECTORS = 2
"""Vectors of each row that must fit the third cache together: each thread has a copy."""


class PackedOperands(SketchRule):
    """Tiles of a sum of products, column by column of tiles, with a copy of the far operand for each column of them."""

    name = "packed_operands"

    def matches(self, draft: Draft, stage: Stage, hardware: Hardware) -> bool:
        sums = self.reduction(draft, stage, hardware)
        return sums is not None and find_far_operand(draft, sums, hardware) is not None

    def reduction(self, draft: Draft, stage: Stage, hardware: Hardware) -> Stage | None:
        """Finds a reduction to tile, as `TransposedOperands` does; none in parts, none that is an instruction's."""
        sums = TransposedOperands().reduction(draft, stage)
        if sums is None or sums.name in draft.parts or not vector_axis(sums):
            return None
        return sums if matching_intrinsic(draft, sums, hardware) is None else None

    def apply(self, draft: Draft, stage: Stage, hardware: Hardware) -> list[Draft]:
        sums = self.reduction(draft, stage, hardware)
        assert sums is not None
        operand = find_far_operand(draft, sums, hardware)
        assert operand is not None
        readers = [reader.name for reader in list_readers(draft, sums) if operand in reader.reads()]
        draft, copy = draft.cache_read(operand, "global", *readers)
        return [
            self.make_copy(tiled, copy, at, hardware)
            for tiled in MultiLevelTiling().apply(draft, draft.stage(stage.name), hardware)
            for at in list_column_loops(find_anchors(tiled, [copy]), stage)
        ]

    def make_copy(self, draft: Draft, copy: str, at: Anchor, hardware: Hardware) -> Draft:
        """Schedules a copy at a loop over tiles of columns: row by row, in vectors, the last of which may be masked."""
        draft = draft.compute_at(copy, *at)
        stage, lanes = draft.stage(copy), hardware.float_lanes
        *rows, last = stage.spatial
        tail = "guard" if stage.axes[-1].extent.value % lanes else "exact"
        draft, (vectors, lane) = draft.split(copy, last, (lanes,), tail)
        draft = draft.reorder(copy, *rows, vectors, lane).vectorize(copy, lane)
        return draft.variant(f"packed_at_{at[1]}").finish(copy)


def find_far_operand(draft: Draft, sums: Stage, hardware: Hardware) -> str | None:
    """Finds a computed operand along the vectors that takes much of the second cache, and whose rows are long.

    Only sums are over its rows, and it is read in one place. Returns None without one.
    """
    last, reduced = sums.axes[-1].name, {axis.name for axis in sums.reduce_axes}
    readers = {reader.name for reader in list_readers(draft, sums)}
    loads = list(dict.fromkeys(node for node in walk(expand_body(sums, draft.state)) if node.op == "load"))
    for node in loads:
        tensor, *rows, column = node.args
        source = draft.state.input(tensor)
        if column is not var(last) or not rows or not all(variables(index) <= reduced for index in rows):
            continue
        if (source is not None and source.constant) or sum(other.args[0] == tensor for other in loads) > 1:
            continue
        between = [name for name in readers - {sums.name} if tensor in draft.stage(name).reads()]
        if are_read_outside(draft, between, readers):
            continue
        *depth, columns = (int(lift(extent).value) for extent in (source or draft.state.stage(tensor)).shape)
        row, vector = columns * dtype_bytes(node.dtype), hardware.float_lanes * dtype_bytes(node.dtype)
        is_far = columns >= 2 * MAX_VECTORS * hardware.float_lanes
        is_large = CACHE_SHARE * prod(depth) * row > hardware.l2_bytes
        fits = prod(depth) * COPIED_VECTORS * vector <= hardware.l3_bytes
        if is_far and is_large and fits and count_rows(sums, node) >= SHARING_ROWS:
            return str(tensor)
    return None

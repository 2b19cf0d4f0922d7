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
from search_space.machines.cpu.tiling import MultiLevelTiling
from search_space.machines.cpu.transposed import count_rows, list_readers
from search_space.machines.shared.groups import MAX_VECTORS
from search_space.machines.shared.instructions import matching_intrinsic
from search_space.schedule.builder import Loop
from search_space.schedule.state import Stage
from search_space.sketch.base import Draft, SketchRule
from search_space.tags import Tag

SHARING_ROWS = 64
"""Rows of results that share an element, below which a copy costs more than it saves."""

LARGE = 4
"""Operands of more than this part of the second cache are copied. Smaller ones, read as they are, were as fast."""


class PackedOperands(SketchRule):
    """Tiles of a sum of products, with a copy of the far operand for the columns of each tile if rows are inside."""

    name = "packed_operands"

    def matches(self, draft: Draft, stage: Stage, hardware: Hardware) -> bool:
        sums = self.reduction(draft, stage, hardware)
        return sums is not None and find_far_operand(draft, sums, hardware) is not None

    def reduction(self, draft: Draft, stage: Stage, hardware: Hardware) -> Stage | None:
        """Finds the reduction to tile, as `MultiLevelTiling` does: none in parts, and none that is an instruction's."""
        rule = MultiLevelTiling()
        sums = rule.reduction(draft, stage) if rule.matches(draft, stage, hardware) else None
        if sums is None or sums.tag != Tag.NONE or sums.name in draft.parts or len(sums.axes) != len(stage.axes):
            return None
        return sums if matching_intrinsic(draft, sums, hardware) is None else None

    def apply(self, draft: Draft, stage: Stage, hardware: Hardware) -> list[Draft]:
        sums = self.reduction(draft, stage, hardware)
        assert sums is not None
        operand = find_far_operand(draft, sums, hardware)
        assert operand is not None
        readers = [reader.name for reader in list_readers(draft, sums) if operand in reader.reads()]
        draft, copy = draft.cache_read(operand, "global", *readers)
        tilings = MultiLevelTiling().apply(draft, draft.stage(stage.name), hardware)
        return [self.make_copy(tiled, copy, find_shared_loop(tiled, stage, copy), hardware) for tiled in tilings]

    def make_copy(self, draft: Draft, copy: str, at: tuple[str, Loop], hardware: Hardware) -> Draft:
        """Schedules a copy at a loop over tiles of columns: row by row, in vectors."""
        draft = draft.compute_at(copy, *at)
        stage, lanes = draft.stage(copy), hardware.float_lanes
        *rows, last = stage.spatial
        tail = "guard" if stage.axes[-1].extent.value % lanes else "exact"
        draft, (vectors, lane) = draft.split(copy, last, (lanes,), tail)
        draft = draft.reorder(copy, *rows, vectors, lane).vectorize(copy, lane)
        return draft.variant(f"packed_at_{at[1]}").finish(copy)


def find_far_operand(draft: Draft, sums: Stage, hardware: Hardware) -> str | None:
    """Finds a computed operand along the vectors that takes much of the second cache, and whose rows are long.

    Each of its rows belongs to one step of the reduction. Returns None without one.
    """
    last, reduced = sums.axes[-1].name, {axis.name for axis in sums.reduce_axes}
    inlined = {reader.name for reader in list_readers(draft, sums)} - {sums.name}
    for node in walk(expand_body(sums, draft.state)):
        if node.op != "load" or len(node.args) < 3 or node.args[-1] is not var(last):
            continue
        tensor, *rows, _ = node.args
        source = draft.state.input(tensor)
        if (source is not None and source.constant) or not all(variables(index) <= reduced for index in rows):
            continue
        if any({s.name for s in draft.state.consumers(name)} - inlined - {sums.name} for name in inlined):
            return None  # a stage outside of the reduction's loops reads it, too
        shape = [int(lift(extent).value) for extent in (source or draft.state.stage(tensor)).shape]
        is_far = shape[-1] >= 2 * MAX_VECTORS * hardware.float_lanes
        is_large = prod(shape) * dtype_bytes(node.dtype) > hardware.l2_bytes // LARGE
        if is_far and is_large and count_rows(sums, node) >= SHARING_ROWS:
            return str(tensor)
    return None


def find_shared_loop(draft: Draft, stage: Stage, copy: str) -> tuple[str, Loop]:
    """Finds the loop at which an operand is copied: over tiles of columns with those of rows inside, or the parallel one.

    All columns of a parallel iteration are copied at once if tiles of rows are outside of those of columns.
    """
    outer, *within = next(draft.anchors[name] for name in draft.anchors if reads(draft, name, copy))
    return next((at for at in within if at[1].startswith(f"{stage.axes[-1].name}.")), outer)


def reads(draft: Draft, name: str, copy: str) -> bool:
    """Tells whether a stage reads a copy, directly or through inlined stages."""
    return any(read.name == copy for read in draft.producers(draft.stage(name)))

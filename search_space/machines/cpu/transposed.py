"""Reductions with an operand across their vectors, such as `B` in `sum(A[i, k] * B[j, k])`.

Vectors run along the output's last axis. An operand that has this axis in another dimension than its last is copied
with that dimension last. The copy precedes the reduction, or is made for the columns of a tile, whose rows share it.
If all operands are contiguous along the reduction, tiles of dot products read them as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from math import prod

from search_space.dtypes import NARROW
from search_space.hardware import LINE, Hardware, fragment_columns
from search_space.ir.expr import Expr, dtype_bytes, variables, walk
from search_space.lower.inline import expand_body
from search_space.machines.cpu.dots import find_dot_axes, tile_of_dots
from search_space.machines.cpu.elementwise import Elementwise
from search_space.machines.cpu.rowwise import RowWise
from search_space.machines.cpu.spread import spread
from search_space.machines.cpu.tiling import MultiLevelTiling
from search_space.machines.shared.instructions import (
    FEW_ROWS,
    FEW_VECTORS,
    count_vectors,
    matching_intrinsic,
    packable,
    pays_to_widen,
)
from search_space.machines.shared.lanes import select_lanes
from search_space.schedule.builder import Loop
from search_space.schedule.state import Stage
from search_space.sketch.base import Draft, SketchRule
from search_space.tags import Tag

Anchor = tuple[str, Loop]


@dataclass(frozen=True)
class _Operand:
    """An operand across the vectors.

    Attributes:
        tensor: name of an input, or of a stored stage.
        dim: dimension along which the vectors run.
        run: fewest neighbours of a row that a tile reads; 0 if the tile's size determines it.
        packed: whether it is a constant, which packing lays out.
    """

    tensor: str
    dim: int
    run: int
    packed: bool


class TransposedOperands(SketchRule):
    """Tiles after a copy of the operands in the order of the vectors, tiles of dot products, and what others derive."""

    name = "transposed_operands"

    def matches(self, draft: Draft, stage: Stage, hardware: Hardware) -> bool:
        sums = self.reduction(draft, stage)
        if sums is None:
            return self.joins_tiled(draft, stage, hardware)
        return is_across(draft, sums) or self.align(draft, sums, hardware) is not None

    def reduction(self, draft: Draft, stage: Stage) -> Stage | None:
        """Finds the reduction to tile, as `MultiLevelTiling` does; none that is reshaped, or has rules of its own."""
        if stage.name not in draft.state.outputs and stage.reducer is None:
            return None
        sums = MultiLevelTiling().reduction(draft, stage)
        return sums if sums is not None and sums.tag == Tag.NONE and len(sums.axes) == len(stage.axes) else None

    def joins_tiled(self, draft: Draft, stage: Stage, hardware: Hardware) -> bool:
        """Tells whether `RowWise` would take several reductions and their end, though some of them are to be tiled."""
        if stage.reducer is not None or not RowWise().matches(draft, stage, hardware):
            return False
        return any(is_across(draft, read) for read in draft.producers(stage) if read.reducer and read.tag == Tag.NONE)

    def apply(self, draft: Draft, stage: Stage, hardware: Hardware) -> list[Draft]:
        others = (RowWise(), MultiLevelTiling())
        other = next((rule for rule in others if rule.matches(draft, stage, hardware)), None)
        drafts = [] if other is None else other.apply(draft, stage, hardware)
        sums = self.reduction(draft, stage)
        if sums is None:
            return [*drafts, *(done.variant("apart") for done in Elementwise().apply(draft, stage, hardware))]
        if axes := find_dot_axes(draft, sums):
            drafts.append(tile_of_dots(draft, stage, sums, axes, hardware))
        if (aligned := self.align(draft, sums, hardware)) is not None:
            lined, copy, operand = aligned
            for tiled in MultiLevelTiling().apply(lined.variant("aligned"), lined.stage(stage.name), hardware):
                drafts.append(self.make_copy(tiled, copy, operand, None, hardware))
        operands = list_across(draft, sums)
        # An instruction has an order of its own, in which the tiling itself copies or packs its operands.
        match = matching_intrinsic(draft, sums, hardware)
        copied = [operand for operand in operands if not operand.packed]
        if copied and (match is None or pays_to_widen(match[0], hardware)):
            drafts += self.tile_copies(draft, stage, sums, copied, hardware)
        if copied and match is None:
            return drafts
        if operands and not isinstance(other, MultiLevelTiling):
            drafts += MultiLevelTiling().apply(draft, stage, hardware)
        return drafts

    def align(self, draft: Draft, sums: Stage, hardware: Hardware) -> tuple[Draft, str, _Operand] | None:
        """Copies the factor that all lanes share with the reduction last, if an instruction for 16-bit floats wants it.

        Returns:
            The draft, the copy and the operand that is copied. None if no factor is in another order, or if the
            instruction is no faster than multiply-adds, which need no copy.
        """
        loads = [n for n in walk(sums.body) if n.op == "load" and n.dtype in NARROW]
        if not sums.axes or not loads or not hardware.rates.gains_by_dots:
            return None
        if matching_intrinsic(draft, sums, hardware) is not None:
            return None
        last, reduced = sums.axes[-1].name, {axis.name for axis in sums.reduce_axes}
        shared = [n for n in loads if all(i.op == "var" and i.args[0] != last for i in n.args[1:])]
        if len(shared) != 1 or sums.name in draft.parts:
            return None
        tensor, *indices = shared[0].args
        across = [dim for dim, index in enumerate(indices[:-1]) if index.args[0] in reduced]
        source = draft.state.input(tensor)
        if len(across) != 1 or source is None or source.constant or count_vectors(sums, hardware) < FEW_VECTORS:
            return None
        operand = _Operand(tensor, across[0], 0, False)
        draft, copy = self.copy(draft, operand, sums)
        match = matching_intrinsic(draft, draft.stage(sums.name), hardware)
        return (draft, copy, operand) if match is not None and match[0].steps == 1 else None

    def tile_copies(
        self, draft: Draft, stage: Stage, sums: Stage, operands: Sequence[_Operand], hardware: Hardware
    ) -> list[Draft]:
        """Tiles the reduction over copies of the operands, which precede it or are made for each tile."""
        copies = {}
        for operand in operands:
            draft, copy = self.copy(draft, operand, sums)
            copies[copy] = operand
        out = []
        for tiled in MultiLevelTiling().apply(draft, draft.stage(stage.name), hardware):
            for at in self.list_anchors(tiled, stage, copies):
                done = tiled
                for copy, operand in copies.items():
                    done = self.make_copy(done, copy, operand, at, hardware)
                out.append(done.variant("transposed_at_root" if at is None else f"transposed_at_{at[1]}"))
        return out

    def copy(self, draft: Draft, operand: _Operand, sums: Stage) -> tuple[Draft, str]:
        """Adds a copy of an operand whose last dimension is that of the vectors; returns the draft and the copy."""
        readers = [s.name for s in list_readers(draft, sums) if operand.tensor in s.reads()]
        draft, copy = draft.cache_read(operand.tensor, "global", *readers)
        dims = range(len(draft.stage(copy).axes))
        return draft.relayout(copy, [*(d for d in dims if d != operand.dim), operand.dim]), copy

    def list_anchors(self, draft: Draft, stage: Stage, copies: dict[str, _Operand]) -> list[Anchor | None]:
        """Lists places of the copies: before the reduction (None), and where all rows of a parallel iteration share it.

        At the loop over columns of tiles, which is outside of that over rows, one tile's columns are copied. If rows
        are outside, all columns of the iteration are copied in front of both.
        """
        if any(operand.run == 0 for operand in copies.values()):
            return [None]
        anchors = find_anchors(draft, copies)
        return [None, *(list_column_loops(anchors, stage) or anchors[:1])]

    def make_copy(self, draft: Draft, copy: str, operand: _Operand, at: Anchor | None, hardware: Hardware) -> Draft:
        """Schedules a copy: a few neighbours of a row from each lane's row at a time, a cache line of each row in turn.

        At the root, rows are in parallel.
        """
        stage = draft.stage(copy)
        last, row = stage.axes[-1], stage.leaves[-1]
        lanes, columns = select_lanes(draft, stage, hardware), fragment_columns(stage.dtype)
        extent = next(int(axis.extent.value) for axis in stage.axes if axis.name == row)
        run = extent if at is None else operand.run
        columns = columns if run >= columns else 1
        blocks = max(1, min(LINE // (columns * dtype_bytes(stage.dtype)), run // columns))
        draft = draft if at is None else draft.compute_at(copy, *at)
        # Clamped, not guarded: all neighbours then exist, and can be read at once.
        draft, (lines, block, column) = draft.split(copy, row, (blocks, columns), "clamp")
        tail = "clamp" if int(last.extent.value) >= lanes else "guard"
        draft, (vectors, vector) = draft.split(copy, last.name, (lanes,), tail)
        others = [axis.name for axis in stage.axes if axis.name not in (row, last.name)]
        draft = draft.reorder(copy, *others, lines, vectors, block, column, vector)
        draft = draft.in_registers(copy, (column, vector))
        if at is None:
            draft, rows = draft.fuse(copy, (*others, lines))
            draft = spread(draft.parallel(copy, rows), copy, hardware)
        return draft.finish(copy)


def is_across(draft: Draft, sums: Stage) -> bool:
    """Tells whether an operand of a reduction with reuse is across its vectors, or all are along the reduction."""
    return bool(sums.axes) and bool(list_across(draft, sums) or find_dot_axes(draft, sums))


def list_across(draft: Draft, sums: Stage) -> list[_Operand]:
    """Lists the operands across the vectors of a reduction.

    Returns none if there are no vectors, if a copy is not possible, as a diagonal is read, or does not pay, as few rows
    share it.
    """
    last, readers = sums.axes[-1].name, {s.name for s in list_readers(draft, sums)}
    if sums.axes[-1].extent.value == 1:
        return []
    loads: dict[str, list[Expr]] = {}
    for node in walk(expand_body(sums, draft.state)):
        if node.op == "load":
            loads.setdefault(node.args[0], []).append(node)
    operands = []
    for tensor, reads in loads.items():
        dims = {dim for node in reads for dim, index in enumerate(node.args[1:]) if last in variables(index)}
        if dims <= {len(reads[0].args) - 2}:
            continue
        nodes = [node for node in reads if any(last in variables(index) for index in node.args[1:])]
        if len(dims) > 1 or min(count_rows(sums, node) for node in nodes) < FEW_ROWS:
            return []
        inlined = [name for name in readers - {sums.name} if tensor in draft.stage(name).reads()]
        if are_read_outside(draft, inlined, readers):
            return []
        packed = not inlined and all(packable(draft, sums, node) is not None for node in nodes)
        # Reads of two places may be far apart: no tile holds both.
        run = shortest_run(sums, nodes[0]) if len(reads) == 1 else 0
        operands.append(_Operand(tensor, dims.pop(), run, packed))
    return operands


def find_anchors(draft: Draft, copies: Iterable[str]) -> tuple[Anchor, ...]:
    """Finds the loops at which copies may be computed: those of the tiled stage that reads them."""
    wanted = set(copies)
    readers = (name for name in draft.anchors if wanted & {s.name for s in draft.producers(draft.stage(name))})
    return draft.anchors[next(readers)]


def list_column_loops(anchors: Sequence[Anchor], stage: Stage) -> list[Anchor]:
    """Lists the loops over tiles of columns that have the tiles of rows inside, which share a copy made there."""
    return [at for at in anchors[1:] if at[1].startswith(f"{stage.axes[-1].name}.")]


def are_read_outside(draft: Draft, stages: Iterable[str], readers: Set[str]) -> bool:
    """Tells whether a stage outside of a reduction's loops reads one of the stages that are inlined into it."""
    return any({s.name for s in draft.state.consumers(name)} - readers for name in stages)


def list_readers(draft: Draft, sums: Stage) -> list[Stage]:
    """Lists a reduction and the stages that are inlined into it."""
    read = [draft.stage(name) for name in sums.reads() if draft.state.input(name) is None]
    inlined = {reader.name: reader for s in read if s.attach.kind == "inline" for reader in list_readers(draft, s)}
    return [*inlined.values(), sums]


def count_rows(sums: Stage, node: Expr) -> int:
    """Counts the results in other rows that share each element of a load."""
    own = {name for index in node.args[1:] for name in variables(index)}
    return prod(int(axis.extent.value) for axis in sums.axes if axis.name not in own)


def shortest_run(sums: Stage, node: Expr) -> int:
    """Returns the fewest neighbours along a load's last dimension that any tile reads; 0 if tiles differ in it."""
    index = node.args[-1]
    reduced = {axis.name: int(axis.extent.value) for axis in sums.reduce_axes}
    return max((reduced[name] for name in variables(index)), default=1) if variables(index) <= reduced.keys() else 0

"""GPUs: row-wise operators (softmax, layer norm, reductions along the last axis), the threads of a block along a row.

Every thread reduces its share of the row in a register; the loop over the threads' results, bound to the threads
themselves, is what a target makes shuffles within warps of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from search_space.hardware import Hardware
from search_space.ir.expr import dtype_bytes, walk
from search_space.machines.gpu.blocks import Number, Threads, cached, gpu_of, limited
from search_space.machines.shared.rows import row_group
from search_space.schedule.state import Axis, Stage
from search_space.schedule.steps import (
    Annotate,
    CacheWrite,
    ComputeAt,
    ComputeInline,
    Fuse,
    Reorder,
    Rfactor,
    SetScope,
    Split,
    Step,
)
from search_space.sketch.base import Draft, SketchRule
from search_space.sketch.reads import in_row
from search_space.sketch.tables import DecisionGroup

COLUMNS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
ROWS = (1, 2, 4, 8, 16, 32)


@dataclass(frozen=True)
class Row:
    """How rows are dealt out.

    Attributes:
        threads: along rows and columns; vector: elements a thread reads at once.
        axis: position of the axis that threads run over, among those of the rows.
        place: the loop over blocks, at which everything is computed.
    """

    threads: Threads
    vector: Number
    axis: int
    place: tuple[str, str]


class GpuRowWise(SketchRule):
    """Blocks of rows, one or a few, with everything that belongs to them.

    Variants: what is computed of a row is computed again where it is needed, from the row in memory or from a copy in
    shared memory; or it is kept in shared memory.
    """

    name = "gpu_row_wise"

    def matches(self, draft: Draft, stage: Stage, hardware: Hardware) -> bool:
        return row_group(draft, stage) is not None

    def apply(self, draft: Draft, stage: Stage, hardware: Hardware) -> list[Draft]:
        group = row_group(draft, stage)
        assert group is not None
        rows = len(next(s for s in group if s.reducer is not None).axes)
        kept = [s.name for s in group if s.reducer is None and s is not stage and len(s.axes) > rows]
        scalars = [s.name for s in group if s.reducer is None and s is not stage and len(s.axes) == rows]
        draft = draft.apply(*(ComputeInline(name) for name in scalars)).finish(*scalars)
        again = draft.apply(*(ComputeInline(name) for name in reversed(kept))).finish(*kept)
        out = [self.variant(again, stage, group, rows, hardware).variant("again")]
        read = self.rows_read(again, rows)
        if read:
            out.append(self.variant(again, stage, group, rows, hardware, read).variant("copied"))
        if kept:
            out.append(self.variant(draft, stage, group, rows, hardware).variant("kept"))
        return [d.finish(*(s.name for s in d.state.stages)) for d in out]

    def rows_read(self, draft: Draft, rows: int) -> list[str]:
        """Inputs read as whole rows by more than one stage, each in its own row."""
        readers: dict[str, int] = {}
        for stage in draft.state.stages:
            for name in stage.reads():
                source = draft.state.input(name)
                if source is not None and len(source.shape) == rows + 1:
                    readers[name] = readers.get(name, 0) + 1
        live = [s for s in draft.state.stages if s.attach.kind != "inline"]
        often = [name for name, count in readers.items() if count > 1]
        return [name for name in often if all(in_row(draft, s, name, rows) for s in live)]

    def variant(
        self,
        draft: Draft,
        output: Stage,
        group: Sequence[Stage],
        rows: int,
        hardware: Hardware,
        copied: Sequence[str] = (),
    ) -> Draft:
        """One variant: the loops of the output, and every other stage of the rows inside its loop over blocks.

        Args:
            copied: inputs whose rows are copied into shared memory.
        """
        name = output.name
        reductions = [s.name for s in draft.state.stages if s.reducer is not None]
        if output.reducer is not None:
            before = {s.name for s in draft.state.stages}
            draft = draft.apply(CacheWrite(name, "shared"))
            (made,) = (s.name for s in draft.state.stages if s.name not in before)
            reductions[reductions.index(name)] = made
        draft, row = self.dealt(draft, name, group, rows, hardware)
        draft = self.output(draft, name, rows, row)
        for member in reversed([s.name for s in draft.state.stages if s.attach.kind != "inline"]):
            if member == name:
                continue
            draft = draft.apply(ComputeAt(member, *row.place), SetScope(member, "shared"))
            if member in reductions:
                draft = self.reduction(draft, member, rows, row)
            else:
                draft = self.along(draft, member, rows, row)
        for read in copied:
            draft = self.copy(draft, read, rows, row)
        return draft

    # ------------------------------------------------------------------ decisions
    def dealt(
        self, draft: Draft, name: str, group: Sequence[Stage], rows: int, hardware: Hardware
    ) -> tuple[Draft, Row]:
        axes = draft.state.stage(name).axes[:rows]
        position = max(range(rows), key=lambda i: int(axes[i].extent.value))
        long, columns = int(axes[position].extent.value), row_length(group, rows)
        gpu = gpu_of(hardware)
        widest = max(dtype_bytes(n.dtype) for s in group for n in (s.body, *walk(s.body)) if n.op == "load")
        vectors = [(v,) for v in (1, 2, 4, 8) if columns % v == 0 and v <= 16 // widest]
        draft, (vector,) = draft.decide(DecisionGroup.of(f"{name}.vector", (f"{name}.vector",), vectors))
        found = [
            (y, x)
            for x in COLUMNS
            for y in ROWS
            if gpu.warp <= x * y <= gpu.threads_block and (y == 1 or y <= long) and (x <= columns or x == COLUMNS[0])
        ]
        found = found or [(1, min(gpu.warp, columns))]
        draft, (y, x) = draft.decide(DecisionGroup.of(f"{name}.threads", (f"{name}.rows", f"{name}.columns"), found))
        leaf = "_".join((*(a.name for i, a in enumerate(axes) if i != position), f"{axes[position].name}.0"))
        return limited(draft, "vectors of a row", x * vector, max(columns, int(gpu.warp))), Row(
            Threads(y, x), vector, position, (name, leaf)
        )

    # ------------------------------------------------------------------ loops
    def output(self, draft: Draft, name: str, rows: int, row: Row) -> Draft:
        stage = draft.state.stage(name)
        axes = [a.name for a in stage.axes[:rows]]
        split = axes.pop(row.axis)
        outer = (*axes, f"{split}.0")
        steps: list[Step] = [Split(name, split, (row.threads.y,), "guard")]
        rest = tuple(leaf for leaf in stage.leaves if leaf not in (*axes, split))
        steps.append(Reorder(name, (*outer, f"{split}.1", *rest)))
        steps += [Fuse(name, outer)] if len(outer) > 1 else []
        steps += [Annotate(name, row.place[1], "blockIdx.x"), Annotate(name, f"{split}.1", "threadIdx.y")]
        draft = draft.apply(*steps)
        return self.columns(draft, name, stage.axes[-1], row) if len(stage.axes) > rows else draft

    def columns(self, draft: Draft, name: str, axis: Axis, row: Row) -> Draft:
        """The threads of a row, in vectors."""
        return draft.apply(
            Split(name, axis.name, (row.threads.x, row.vector), "guard"),
            Annotate(name, f"{axis.name}.1", "threadIdx.x"),
            Annotate(name, f"{axis.name}.2", "vectorize"),
        )

    def along(self, draft: Draft, name: str, rows: int, row: Row) -> Draft:
        """What is computed of whole rows and kept."""
        stage = draft.state.stage(name)
        draft = draft.apply(Annotate(name, stage.axes[row.axis].name, "threadIdx.y"))
        return self.columns(draft, name, stage.axes[-1], row)

    def reduction(self, draft: Draft, name: str, rows: int, row: Row) -> Draft:
        """Each thread's share in a register, then all threads' results, by the threads together."""
        axis = draft.state.stage(name).reduce_axes[0].name
        before = {s.name for s in draft.state.stages}
        share = f"{axis}.1"
        draft = draft.apply(Split(name, axis, (row.threads.x, row.vector), "guard"), Rfactor(name, share))
        (partial,) = (s.name for s in draft.state.stages if s.name not in before)
        return draft.apply(
            Annotate(name, draft.state.stage(name).axes[row.axis].name, "threadIdx.y"),
            Annotate(name, share, "threadIdx.x"),
            SetScope(partial, "local"),
            ComputeAt(partial, name, share),
            Annotate(partial, f"{axis}.2", "vectorize"),
        ).finish(partial)

    def copy(self, draft: Draft, read: str, rows: int, row: Row) -> Draft:
        """The rows of an input in shared memory, for all stages that read them."""
        readers = [s.name for s in draft.state.stages if read in s.reads()]
        draft, copy = cached(draft, read, "shared", *readers)
        axis = draft.state.stage(copy).axes[row.axis].name
        draft = draft.apply(ComputeAt(copy, *row.place), Annotate(copy, axis, "threadIdx.y"))
        return self.columns(draft, copy, draft.state.stage(copy).axes[-1], row)


def row_length(group: Sequence[Stage], rows: int) -> int:
    """Elements of a row."""
    return max(int(s.reduce_axes[0].extent.value) for s in group if s.reducer is not None)

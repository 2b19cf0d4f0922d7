"""GPUs: row-wise operators (softmax, layer norm, reductions along the last axis), the threads of a block along a row.

Every thread reduces its share of the row in a register. Targets turn the loop over the threads' results, which is bound
to the threads themselves, into shuffles within warps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from search_space.hardware import Hardware
from search_space.ir.expr import dtype_bytes, walk
from search_space.machines.gpu.blocks import Number, Threads, add_limit, require_gpu
from search_space.machines.shared.rows import row_group
from search_space.schedule.builder import Loop
from search_space.schedule.state import Stage
from search_space.sketch.base import Draft, SketchRule
from search_space.sketch.reads import in_row
from search_space.sketch.tables import DecisionGroup

COLUMNS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
"""Threads along a row; with `ROWS` of them below each other they are a warp at least, and a block at most."""
ROWS = (1, 2, 4, 8, 16, 32)
"""Rows of a block."""


@dataclass(frozen=True)
class Row:
    """The distribution of rows to threads.

    Attributes:
        threads: threads along rows and columns; vector: elements a thread reads at once.
        axis: position of the axis that threads run over, among those of the rows.
    """

    threads: Threads
    vector: Number
    axis: int


class GpuRowWise(SketchRule):
    """Blocks of one or a few rows, with all their stages.

    Variants: intermediate rows are recomputed by every reader, from the row in memory or from a copy in shared memory;
    or they are kept in shared memory.
    """

    name = "gpu_row_wise"

    def matches(self, draft: Draft, stage: Stage, hardware: Hardware) -> bool:
        return row_group(draft, stage) is not None

    def apply(self, draft: Draft, stage: Stage, hardware: Hardware) -> list[Draft]:
        group = row_group(draft, stage)
        assert group is not None
        rows = len(next(s for s in group if s.reducer is not None).axes)
        intermediate = [s.name for s in group if s.reducer is None and s is not stage and len(s.axes) > rows]
        scalars = [s.name for s in group if s.reducer is None and s is not stage and len(s.axes) == rows]
        draft = draft.compute_inline(*scalars).finish(*scalars)
        again = draft.compute_inline(*reversed(intermediate)).finish(*intermediate)
        out = [self.variant(again, stage, group, rows, hardware).variant("again")]
        read = self.rows_read(again, rows)
        if read:
            out.append(self.variant(again, stage, group, rows, hardware, read).variant("copied"))
        if intermediate:
            out.append(self.variant(draft, stage, group, rows, hardware).variant("kept"))
        return [d.finish(*(s.name for s in d.state.stages)) for d in out]

    def rows_read(self, draft: Draft, rows: int) -> list[str]:
        """Lists inputs read as whole rows by more than one stage, each in its own row."""
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
        shared_inputs: Sequence[str] = (),
    ) -> Draft:
        """Builds one variant: the loops of the output, and every other stage of the rows inside its loop over blocks.

        Args:
            shared_inputs: inputs whose rows are copied into shared memory.
        """
        name = output.name
        reductions = [s.name for s in draft.state.stages if s.reducer is not None]
        if output.reducer is not None:
            draft, made = draft.cache_write(name, "shared")
            reductions[reductions.index(name)] = made
        draft, row = self.deal_rows(draft, name, group, rows, hardware)
        draft, block = self.output(draft, name, rows, row)
        for member in reversed([s.name for s in draft.state.stages if s.attach.kind != "inline"]):
            if member == name:
                continue
            draft = draft.compute_at(member, *block).set_scope(member, "shared")
            if member in reductions:
                draft = self.reduction(draft, member, row)
            else:
                draft = self.along(draft, member, row)
        for read in shared_inputs:
            readers = [s.name for s in draft.state.stages if read in s.reads()]
            draft, copy = draft.cache_read(read, "shared", *readers)
            draft = self.along(draft.compute_at(copy, *block), copy, row)
        return draft

    # ------------------------------------------------------------------ decisions
    def deal_rows(
        self, draft: Draft, name: str, group: Sequence[Stage], rows: int, hardware: Hardware
    ) -> tuple[Draft, Row]:
        axes = draft.stage(name).axes[:rows]
        position = max(range(rows), key=lambda i: int(axes[i].extent.value))
        long, columns = int(axes[position].extent.value), row_length(group, rows)
        gpu = require_gpu(hardware)
        widest = max(dtype_bytes(n.dtype) for s in group for n in (s.body, *walk(s.body)) if n.op == "load")
        vectors = [v for v in (1, 2, 4, 8) if columns % v == 0 and v <= 16 // widest]
        draft, vector = draft.choose(f"{name}.vector", vectors)
        table = [
            (y, x)
            for x in COLUMNS
            for y in ROWS
            if gpu.warp <= x * y <= gpu.threads_block and (y == 1 or y <= long) and (x <= columns or x == COLUMNS[0])
        ]
        table = table or [(1, min(gpu.warp, columns))]
        draft, (y, x) = draft.decide(DecisionGroup.of(f"{name}.threads", (f"{name}.rows", f"{name}.columns"), table))
        draft = add_limit(draft, "vectors of a row", x * vector, max(columns, int(gpu.warp)))
        return draft, Row(Threads(y, x), vector, position)

    # ------------------------------------------------------------------ loops
    def output(self, draft: Draft, name: str, rows: int, row: Row) -> tuple[Draft, tuple[str, Loop]]:
        """Makes the output's loops; returns the loop over blocks of rows too, at which all stages are computed."""
        stage = draft.stage(name)
        *others, split = (*stage.spatial[: row.axis], *stage.spatial[row.axis + 1 : rows], stage.spatial[row.axis])
        rest = [leaf for leaf in stage.leaves if leaf not in (*others, split)]
        draft, (outer, within) = draft.split(name, split, (row.threads.y,), "guard")
        draft = draft.reorder(name, *others, outer, within, *rest)
        draft, block = draft.fuse(name, (*others, outer))
        draft = draft.bind(name, block, "blockIdx.x").bind(name, within, "threadIdx.y")
        draft = self.columns(draft, name, stage.spatial[-1], row) if len(stage.axes) > rows else draft
        return draft, (name, block)

    def columns(self, draft: Draft, name: str, loop: Loop, row: Row) -> Draft:
        """Distributes a row to threads, in vectors."""
        draft, (_, thread, lane) = draft.split(name, loop, (row.threads.x, row.vector), "guard")
        return draft.bind(name, thread, "threadIdx.x").vectorize(name, lane)

    def along(self, draft: Draft, name: str, row: Row) -> Draft:
        """Distributes whole rows that are computed or copied, and then kept."""
        axes = draft.stage(name).spatial
        return self.columns(draft.bind(name, axes[row.axis], "threadIdx.y"), name, axes[-1], row)

    def reduction(self, draft: Draft, name: str, row: Row) -> Draft:
        """Reduces each thread's share in a register, then all threads' results, by the threads together."""
        (axis,) = draft.stage(name).reduction
        draft, (_, share, lane) = draft.split(name, axis, (row.threads.x, row.vector), "guard")
        draft, partial = draft.rfactor(name, share)
        draft = draft.bind(name, draft.stage(name).spatial[row.axis], "threadIdx.y").bind(name, share, "threadIdx.x")
        draft = draft.set_scope(partial, "local").compute_at(partial, name, share)
        return draft.vectorize(partial, lane).finish(partial)


def row_length(group: Sequence[Stage], rows: int) -> int:
    """Returns the number of elements of a row."""
    return max(int(s.reduce_axes[0].extent.value) for s in group if s.reducer is not None)

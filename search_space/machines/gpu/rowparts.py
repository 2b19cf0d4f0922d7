"""GPUs: parts of long rows in a reduction, a block for each part, its threads along it."""

from __future__ import annotations

from math import prod

from search_space.hardware import Hardware
from search_space.ir.expr import dtype_bytes, lift, variables, walk
from search_space.machines.gpu.blocks import Threads, add_divisor_limit, require_gpu
from search_space.machines.gpu.products import in_parts, longest_extent, one_axis
from search_space.machines.gpu.rowwise import GpuRowWise, Row
from search_space.schedule.state import Stage
from search_space.sketch.base import Draft, SketchRule
from search_space.sketch.tables import DecisionGroup

PARTS = (8, 16, 32, 64, 128, 256)
"""Numbers of parts that a row is cut into."""
LEAST = 1024
"""Fewest elements of a part."""
THREADS = (32, 64, 128, 256, 512, 1024)
"""Threads of a block, from one warp to the greatest block of CUDA."""
VECTORS = (1, 2, 4, 8)
"""Elements that a thread reads at once: 16 bytes of 16-bit floats at most."""


class GpuLongRows(SketchRule):
    """Reductions of fewer rows than there are multiprocessors: also in parts, which a second kernel reduces."""

    name = "gpu_long_rows"

    def matches(self, draft: Draft, stage: Stage, hardware: Hardware) -> bool:
        return GpuRowWise().matches(draft, stage, hardware) and bool(self.lengths(draft, stage, hardware))

    def lengths(self, draft: Draft, stage: Stage, hardware: Hardware) -> list[int]:
        """Lists numbers of elements that a part may have; none if rows are many, short, or read again."""
        live = [s for s in draft.state.stages if s.attach.kind != "inline"]
        sums = [s for s in live if s.reducer is not None]
        rows = prod(int(a.extent.value) for a in stage.axes)
        if len(sums) != 1 or any(len(s.axes) != len(sums[0].axes) for s in live) or rows >= require_gpu(hardware).sms:
            return []
        extent = int(sums[0].reduce_axes[0].extent.value)
        return [extent // p for p in PARTS if extent % p == 0 and extent // p >= LEAST]

    def apply(self, draft: Draft, stage: Stage, hardware: Hardware) -> list[Draft]:
        (sums,) = (s for s in draft.state.stages if s.reducer is not None)
        split = in_parts(draft, sums, sums.reduce_axes[0], self.lengths(draft, stage, hardware))
        return [*GpuRowWise().apply(draft, stage, hardware), split]


class GpuRowParts(SketchRule):
    """The parts: each thread's share in a register, then all threads' results, as of a whole row."""

    name = "gpu_row_parts"

    def matches(self, draft: Draft, stage: Stage, hardware: Hardware) -> bool:
        if stage.name not in draft.parts or len(stage.reduce_axes) != 1 or len(stage.axes) < 2:
            return False
        if longest_extent(draft, stage.reduce_axes[0]) < THREADS[0]:
            return False
        axis = stage.reduce_axes[0].name
        reads = [n for n in walk(stage.body) if n.op == "load" and any(axis in variables(i) for i in n.args[1:])]
        others = [axis in variables(i) for n in reads for i in n.args[1:-1]]
        return bool(reads) and not any(others) and all(one_axis(n.args[-1], {axis}) for n in reads)

    def apply(self, draft: Draft, stage: Stage, hardware: Hardware) -> list[Draft]:
        name, axis, rows = stage.name, stage.reduce_axes[0], len(stage.axes)
        longest = longest_extent(draft, axis)
        widest = max(dtype_bytes(n.dtype) for n in walk(stage.body) if n.op == "load")
        table = [
            (x, v)
            for x in THREADS
            for v in VECTORS
            if x <= require_gpu(hardware).threads_block and v <= 16 // widest and longest % v == 0 and x * v <= longest
        ]
        columns = (f"{name}.columns", f"{name}.vector")
        draft, (x, vector) = draft.decide(DecisionGroup.of(f"{name}.threads", columns, table))
        draft = add_divisor_limit(draft, "vectors of a part", lift(axis.extent), vector)
        draft, sums = draft.cache_write(name, "shared")
        row = Row(Threads(1, x), vector, rows - 1)
        rule = GpuRowWise()
        draft, place = rule.output(draft, name, rows, row)
        draft = draft.compute_at(sums, *place).set_scope(sums, "shared")
        return [rule.reduction(draft, sums, row).finish(name, sums)]

"""GPUs, the fallback: an element or a short vector for each thread. Fit for element-wise outputs, legal for all."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from search_space.hardware import Hardware
from search_space.ir.expr import dtype_bytes, lift, product, var, variables, walk
from search_space.lower.inline import inline_stages
from search_space.machines.gpu.blocks import require_gpu, same_elements
from search_space.machines.gpu.products import in_parts, two_factors
from search_space.schedule.builder import Loop
from search_space.schedule.state import Stage
from search_space.sketch.base import Draft, SketchRule
from search_space.sketch.reads import ends_in
from search_space.sketch.tables import DecisionGroup

THREADS = (32, 64, 128, 256, 512, 1024)
"""Threads of a block, from one warp to the greatest block of CUDA."""
REPEATS = (1, 2, 4, 8)
"""Vectors of a thread, as long as each multiprocessor still gets a block."""
MAX_UNROLL = 64
"""Greatest number of steps of a reduction in one unrolled body."""
PARTS = (4, 8, 16, 32, 64)
"""Numbers of parts that a reduction is split into."""
LEAST_PART = 16
"""Fewest terms of a part of a reduction."""
MANY = 64
"""Products per element from which elements with common factors are better tiled."""


class GpuElementwise(SketchRule):
    """All elements distributed to threads; each thread computes the reduction of its elements.

    Vectors run along the last axis, or along all axes fused to one where every operand has the output's shape.
    """

    name = "gpu_elementwise"

    def matches(self, draft: Draft, stage: Stage, hardware: Hardware) -> bool:
        return True

    def apply(self, draft: Draft, stage: Stage, hardware: Hardware) -> list[Draft]:
        name = stage.name
        if not stage.axes:  # one thread
            return [draft.finish(name)]
        found, sums, out = self.find_reduction(draft, stage), None, list[Draft]()
        if found is not None:
            out = self.parts(draft, found, hardware)
            draft, sums = draft.sums_in("local", found.name, name)
        last = int(stage.axes[-1].extent.value)
        count = prod(int(a.extent.value) if a.extent.is_const else PARTS[0] for a in stage.axes)
        flat = sums is None and self.same_places(draft, stage)
        widths = [v for v in (1, 2, 4, 8, 16) if v <= 16 // widest(draft, stage) and (count if flat else last) % v == 0]
        if sums is not None and not reads_along(draft.stage(sums), stage.spatial[-1]):
            widths = [1]
        draft, vector = draft.choose(f"{name}.vector", widths)
        gpu = require_gpu(hardware)
        most = max(THREADS[0], count // gpu.sms)  # threads of a block, so that each multiprocessor gets a block
        rows = [
            (t, u)
            for t in THREADS
            for u in (REPEATS if sums is None else (1,))
            if t <= gpu.threads_block and t * u <= most
        ]
        columns = (f"{name}.threads", f"{name}.repeats")
        draft, (threads, repeats) = draft.decide(DecisionGroup.of(f"{name}.threads", columns, rows))
        if flat:
            draft, fused = draft.fuse(name, stage.spatial)
            draft, (block, repeat, thread, lane) = draft.split(name, fused, (repeats, threads, vector), "guard")
        else:
            draft, (vectors, lane) = draft.split(name, stage.spatial[-1], (vector,))
            draft, fused = draft.fuse(name, (*stage.spatial[:-1], vectors))
            draft, (block, repeat, thread) = draft.split(name, fused, (repeats, threads), "guard")
        draft = draft.reorder(name, block, thread, repeat)
        draft = draft.bind(name, block, "blockIdx.x").bind(name, thread, "threadIdx.x")
        draft = draft.unroll(name, repeat).vectorize(name, lane)
        if sums is not None:
            draft = self.accumulate(draft, sums, name, repeat).finish(sums)
            if many_products(draft.stage(sums)):
                draft = replace(draft, last_resort=True)
        return [draft.finish(name), *out]

    def parts(self, draft: Draft, sums: Stage, hardware: Hardware) -> list[Draft]:
        """Splits long reductions into few elements: parts in blocks of their own, reduced by a second kernel."""
        if not all(a.extent.is_const for a in sums.reduce_axes):
            return []
        if many_products(sums) or any(name in draft.parts for name in (sums.name, *sums.reads())):
            return []
        axis = max(sums.reduce_axes, key=lambda a: int(a.extent.value))
        extent, depth = int(axis.extent.value), prod(int(a.extent.value) for a in sums.reduce_axes)
        lengths = [extent // p for p in PARTS if extent % p == 0 and depth // p >= LEAST_PART]
        gpu = require_gpu(hardware)
        if not lengths or prod(int(a.extent.value) for a in sums.axes) > gpu.sms * gpu.threads_sm:
            return []
        return [in_parts(draft, sums, axis, lengths)]

    def find_reduction(self, draft: Draft, stage: Stage) -> Stage | None:
        """Finds the reduction that `stage` is, or ends."""
        if stage.reducer is not None:
            return stage
        found = [s for s in draft.producers(stage) if s.reducer is not None]
        if len(found) == 1 and same_elements(draft, found[0], stage) and ends_in(draft, found[0], stage):
            return found[0]
        return None

    def same_places(self, draft: Draft, stage: Stage) -> bool:
        """Tells whether every tensor read has the stage's shape and is read at the stage's own indices."""
        for node in walk(inline_stages(draft.state).stage(stage.name).body):
            if node.op == "load":
                source = draft.state.input(node.args[0]) or draft.stage(node.args[0])
                if [lift(e) for e in source.shape] != [a.extent for a in stage.axes]:
                    return False
                if any(i is not var(a.name) for i, a in zip(node.args[1:], stage.axes, strict=True)):
                    return False
        return True

    def accumulate(self, draft: Draft, sums: str, output: str, loop: Loop) -> Draft:
        """Computes the reduction inside a thread's loops, short axes unrolled."""
        stage = draft.stage(sums)
        *spatial, last = stage.spatial
        draft = draft.compute_at(sums, output, loop).reorder(sums, *stage.reduction, *spatial, last)
        body = lift(1)
        for axis in reversed(stage.reduce_axes):
            body = lift(product([body, axis.extent]))
            if not body.is_const or body.value > MAX_UNROLL:
                break
            draft = draft.unroll(sums, axis.name)
        return draft.vectorize(sums, last)


def many_products(stage: Stage) -> bool:
    """Tells whether a stage adds up products of two factors, each of which other elements need, too."""
    terms = product(a.extent for a in stage.reduce_axes)
    factors = two_factors(stage.body)
    if factors is None or not terms.is_const or terms.value < MANY:
        return False
    used = [frozenset[str]().union(*(variables(i) for i in f.args[1:])) for f in factors]
    return all(any(a.name not in names and a.extent.value > 1 for a in stage.axes) for names in used)


def widest(draft: Draft, stage: Stage) -> int:
    """Returns the bytes of the widest element read or written."""
    found = [dtype_bytes(n.dtype) for n in walk(stage.body) if n.op == "load"]
    return max([dtype_bytes(stage.dtype), *found])


def reads_along(stage: Stage, last: str) -> bool:
    """Tells whether every read that depends on the axis `last` is along it."""
    loads = [n for n in walk(stage.body) if n.op == "load" and any(last in variables(i) for i in n.args[1:])]
    return all(n.args[-1] is var(last) for n in loads)

"""GPUs: element-wise outputs that read an input across, as transpositions do: through tiles in shared memory.

Threads copy a tile along the input's rows and write it along the output's, so that both sides are read and written in
whole sectors. Rows of a tile are one 4-byte word longer, which puts a column's elements on different banks (Ruetsch and
Micikevicius, Optimizing Matrix Transpose in CUDA, 2009).
"""

from __future__ import annotations

from search_space.hardware import Hardware
from search_space.ir.expr import dtype_bytes, lift
from search_space.machines.gpu.blocks import Threads, copy_to_shared, require_gpu
from search_space.machines.gpu.elementwise import GpuElementwise
from search_space.schedule.state import Stage
from search_space.sketch.base import Draft, SketchRule
from search_space.sketch.reads import read_across
from search_space.sketch.tables import DecisionGroup

TILES = (16, 32, 64)
"""Elements of a square tile along each side."""
THREADS = (64, 128, 256, 512)
"""Threads of a block, each with as many vectors of the tile as the others."""
VECTORS = (1, 2, 4, 8, 16)
"""Elements that a thread reads or writes at once: 16 bytes at most."""
WORD = 4
"""Bytes of a bank."""


class GpuTransposition(SketchRule):
    """Square tiles of an input whose rows run along another axis than the output's; beside the fallback's sketches."""

    name = "gpu_transposed"

    def matches(self, draft: Draft, stage: Stage, hardware: Hardware) -> bool:
        return self.across(draft, stage) is not None

    def across(self, draft: Draft, stage: Stage) -> tuple[str, str] | None:
        """Returns `read_across` of the stage's own reads: the reads of an inlined stage cannot be copied for it."""
        found = read_across(draft, stage, TILES[0])
        return found if found is not None and found[0] in stage.reads() else None

    def apply(self, draft: Draft, stage: Stage, hardware: Hardware) -> list[Draft]:
        found = self.across(draft, stage)
        assert found is not None
        plain = GpuElementwise().apply(draft, stage, hardware)
        name, (tensor, across), last = stage.name, found, stage.axes[-1]
        source = draft.state.input(tensor)
        assert source is not None
        size = dtype_bytes(source.dtype)
        most = 16 // max(size, dtype_bytes(stage.dtype))
        widths = [v for v in VECTORS if v <= most and int(last.extent.value) % v == 0]
        rows = [
            (tile, tile // v, v, threads)
            for tile in TILES
            for v in widths
            for threads in THREADS
            if threads <= require_gpu(hardware).threads_block and tile * (tile // v) % threads == 0
        ]
        columns = tuple(f"{name}.{x}" for x in ("tile", "vectors", "vector", "threads"))
        tiled, (tile, vectors, vector, threads) = draft.decide(DecisionGroup.of(f"{name}.tile", columns, rows))
        row = int(lift(source.shape[-1]).value)
        wide = [v for v in VECTORS if v * size <= 16 and row % v == 0]
        tiled, read = tiled.choose(f"{name}.read", wide)
        others = [axis for axis in stage.spatial[:-1] if axis != across]
        tiled, (i0, i1) = tiled.split(name, across, (tile,), "guard")
        tiled, (j0, j1, lane) = tiled.split(name, last.name, (vectors, vector), "guard")
        tiled = tiled.reorder(name, *others, i0, j0, i1, j1, lane)
        tiled, block = tiled.fuse(name, (*others, i0, j0))
        tiled, inner = tiled.fuse(name, (i1, j1))
        tiled, (repeat, thread) = tiled.split(name, inner, (threads,))
        tiled = tiled.bind(name, block, "blockIdx.x").unroll(name, repeat)
        tiled = tiled.bind(name, thread, "threadIdx.x").vectorize(name, lane)
        pad = max(1, WORD // size)
        tiled, _ = copy_to_shared(tiled, tensor, (name, block), Threads(1, threads), read, pad=pad)
        return [tiled.variant("tiles").finish(name), *plain]

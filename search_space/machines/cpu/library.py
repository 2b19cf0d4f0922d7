"""Library call: a complete product of matrices by a BLAS, as a candidate like any other."""

from __future__ import annotations

from search_space.hardware import Hardware
from search_space.intrinsics import SGEMM
from search_space.ir.expr import product
from search_space.schedule.state import Stage
from search_space.sketch.base import Draft, SketchRule
from search_space.tags import Tag


class LibraryCall(SketchRule):
    """Stages tagged `library`: a call for each block of rows, in parallel. No sketch without a library.

    The library runs on one thread inside each call: two pools of spinning threads would take the cores from each other.
    """

    name = "library_call"

    def matches(self, draft: Draft, stage: Stage, hardware: Hardware) -> bool:
        return stage.tag == Tag.LIBRARY

    def apply(self, draft: Draft, stage: Stage, hardware: Hardware) -> list[Draft]:
        if "cblas" not in hardware.features:
            return []
        name, extents = stage.name, {a.name: a.extent for a in (*stage.axes, *stage.reduce_axes)}
        *rows, column = stage.spatial
        m, n, k = (int(product(extents[a] for a in axes).value) for axes in (rows, [column], stage.reduction))
        if k == 1 and len(stage.reduction) > 1:
            return []  # no axis is known to run along the left factor's rows, as a call needs
        blocks = next((b for b in range(hardware.cores, m + 1) if m % b == 0), 1)
        draft, i = draft.fuse(name, rows)
        draft, r = draft.fuse(name, stage.reduction)
        draft, (block, row) = draft.split(name, i, (m // blocks,))
        draft = draft.reorder(name, block, row, column, r).parallel(name, block)
        draft = draft.tensorize(name, row, f"{SGEMM}:{m // blocks}x{n}x{k}")
        return [draft.variant("call").finish(name)]

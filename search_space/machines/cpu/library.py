"""Library call: a product of matrices handed whole to a BLAS, as a candidate like any other."""

from __future__ import annotations

from search_space.hardware import Hardware
from search_space.intrinsics import SGEMM
from search_space.ir.expr import product
from search_space.schedule.state import Axis, Stage
from search_space.schedule.steps import Annotate, Fuse, Reorder, Split, Step, Tensorize
from search_space.sketch.base import LIBRARY, Draft, SketchRule


class LibraryCall(SketchRule):
    """Stages tagged `library`: a call for each block of rows, in parallel. No sketch where there is no library.

    The library runs on one thread inside of each: two pools of threads that spin would take the cores from each other.
    """

    name = "library_call"

    def matches(self, draft: Draft, stage: Stage, hardware: Hardware) -> bool:
        return stage.tag == LIBRARY

    def apply(self, draft: Draft, stage: Stage, hardware: Hardware) -> list[Draft]:
        if "cblas" not in hardware.features:
            return []
        *rows, column = stage.axes
        steps: list[Step] = [Fuse(stage.name, _names(axes)) for axes in (rows, stage.reduce_axes) if len(axes) > 1]
        i, r = "_".join(_names(rows)), "_".join(_names(stage.reduce_axes))
        m, n, k = (int(product(a.extent for a in axes).value) for axes in (rows, [column], stage.reduce_axes))
        blocks = next((b for b in range(hardware.cores, m + 1) if m % b == 0), 1)
        steps += [
            Split(stage.name, i, (m // blocks,), "exact"),
            Reorder(stage.name, (f"{i}.0", f"{i}.1", column.name, r)),
            Annotate(stage.name, f"{i}.0", "parallel"),
            Tensorize(stage.name, f"{i}.1", f"{SGEMM}:{m // blocks}x{n}x{k}"),
        ]
        return [draft.apply(*steps).variant("call").finish(stage.name)]


def _names(axes: list[Axis] | tuple[Axis, ...]) -> tuple[str, ...]:
    return tuple(axis.name for axis in axes)

"""Library call: a product of matrices handed whole to a BLAS, as a candidate like any other."""

from __future__ import annotations

from search_space.hardware import Hardware
from search_space.intrinsics import SGEMM
from search_space.ir.expr import product
from search_space.schedule.state import Axis, Stage
from search_space.schedule.steps import Fuse, Reorder, Step, Tensorize
from search_space.sketch.base import LIBRARY, Draft, SketchRule


class LibraryCall(SketchRule):
    """Stages tagged `library`: rows, columns and the reduction become one call. No sketch where there is no library."""

    name = "library_call"

    def matches(self, draft: Draft, stage: Stage, hardware: Hardware) -> bool:
        return stage.tag == LIBRARY

    def apply(self, draft: Draft, stage: Stage, hardware: Hardware) -> list[Draft]:
        if "cblas" not in hardware.features:
            return []
        *rows, column = stage.axes
        steps: list[Step] = [Fuse(stage.name, _names(axes)) for axes in (rows, stage.reduce_axes) if len(axes) > 1]
        i, r = "_".join(_names(rows)), "_".join(_names(stage.reduce_axes))
        sizes = [int(product(a.extent for a in axes).value) for axes in (rows, [column], stage.reduce_axes)]
        intrinsic = f"{SGEMM}:{'x'.join(map(str, sizes))}"
        steps += [Reorder(stage.name, (i, column.name, r)), Tensorize(stage.name, i, intrinsic)]
        return [draft.apply(*steps).variant("call").finish(stage.name)]


def _names(axes: list[Axis] | tuple[Axis, ...]) -> tuple[str, ...]:
    return tuple(axis.name for axis in axes)

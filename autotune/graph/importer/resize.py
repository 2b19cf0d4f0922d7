"""Resizing to the nearest element: what is read is known at import."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from autotune.graph.importer.call import Call
from autotune.graph.importer.registry import imports
from autotune.graph.importer.shapes import taken
from autotune.graph.ir import Array

_ROUND: dict[str, Callable[[Array], Array]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


@imports("Resize", "Upsample")
def resize(call: Call) -> str:
    """One axis after the other: whole factors repeat elements, others gather them."""
    mode = call.attr("mode", "nearest")
    call.require(mode == "nearest", "must have mode=nearest", f"mode={mode!r}")
    policy = call.attr("keep_aspect_ratio_policy", "stretch")
    call.require(policy == "stretch", "must not keep the aspect ratio", f"keep_aspect_ratio_policy={policy!r}")
    call.require(not call.attr("antialias", 0), "must not smooth", "antialias=1")
    value, shape = call.value(0), call.shape()
    for axis, (extent, scale) in _targets(call).items():
        if extent != shape[axis] or scale != 1:
            value = _axis(call, value, axis, _places(call, shape[axis], extent, scale))
    return value


def _targets(call: Call) -> dict[int, tuple[int, float]]:
    """Extent and factor of each axis that is resized."""
    shape = call.shape()
    axes = [call.axis(a, len(shape)) for a in call.attr("axes", tuple(range(len(shape))))]
    place = 1 if call.op == "Upsample" or call.opset < 11 else 2
    if call.op == "Resize" and call.opset >= 11 and call.has(3) and not (call.has(2) and call.array(2, "scales").size):
        sizes = call.integers(3, "sizes")
        return {axis: (size, size / shape[axis]) for axis, size in zip(axes, sizes, strict=True)}
    given = call.attr("scales")
    scales = given if given is not None else call.array(place, "scales").reshape(-1).tolist()
    return {axis: (int(np.floor(shape[axis] * scale)), float(scale)) for axis, scale in zip(axes, scales, strict=True)}


def _places(call: Call, extent: int, size: int, scale: float) -> Array:
    """The element of `extent` that each of `size` new ones is."""
    newer = call.op == "Resize" and call.opset >= 11
    where = call.attr("coordinate_transformation_mode", "half_pixel" if newer else "asymmetric")
    near = call.attr("nearest_mode", "round_prefer_floor" if newer else "floor")
    x = np.arange(size, dtype=np.float64)
    if where == "half_pixel":
        places = (x + 0.5) / scale - 0.5
    elif where == "pytorch_half_pixel":
        places = (x + 0.5) / scale - 0.5 if size > 1 else np.zeros(1)
    elif where == "half_pixel_symmetric":
        middle = extent / 2 * (1 - size / (scale * extent))
        places = middle + (x + 0.5) / scale - 0.5
    elif where == "align_corners":
        places = x * (extent - 1) / (size - 1) if size > 1 else np.zeros(1)
    else:
        call.require(where == "asymmetric", "must place elements in a known way", f"coordinate mode {where!r}")
        places = x / scale
    call.require(near in _ROUND, "must round in a known way", f"nearest_mode={near!r}")
    return np.clip(_ROUND[near](places), 0, extent - 1).astype(np.int64)


def _axis(call: Call, value: str, axis: int, places: Array) -> str:
    shape = call.type_of(value).shape
    times = len(places) // shape[axis]
    if times and np.array_equal(places, np.repeat(np.arange(shape[axis]), times)):
        wide = call.reshape(value, (*shape[: axis + 1], 1, *shape[axis + 1 :]))
        wide = call.expand(wide, (*shape[: axis + 1], times, *shape[axis + 1 :]))
        return call.reshape(wide, (*shape[:axis], len(places), *shape[axis + 1 :]))
    return taken(call, value, axis, places)

"""Image resizing, by the conversion of ONNX's `Resize`."""

from __future__ import annotations

from typing import Any

import numpy as np

from autotune.graph.frontends.aten.registry import AtenCall, converts
from autotune.graph.frontends.onnx.importer import resizing

_MODES = {"nearest": "nearest", "linear": "linear", "bilinear": "linear", "bicubic": "cubic", "trilinear": "linear"}


@converts(
    *(f"upsample_nearest{rank}d.{kind}" for rank in (1, 2, 3) for kind in ("default", "vec")),
    *(f"_upsample_nearest_exact{rank}d.{kind}" for rank in (1, 2, 3) for kind in ("default", "vec")),
)
def to_nearest(call: AtenCall) -> str:
    """Resizes by copies of elements: index rounded down, or nearest centre.

    Indices are computed in float32 like PyTorch's: near whole numbers the rounding decides which element is copied.
    """
    value, shape, out = call.value(0), call.type(0).shape, call.result.shape
    stated = _read_scales(call)
    middle = np.float32(0.5 if "exact" in call.op else 0.0)
    for axis, extent, size in zip(range(2, len(shape)), shape[2:], out[2:], strict=True):
        scale = np.float32(1 / stated[axis - 2]) if stated else np.float32(extent) / np.float32(size)
        places = np.floor((np.arange(size, dtype=np.float32) + middle) * scale).astype(np.int64)
        value = resizing.copy_elements(call, value, axis, np.minimum(places, extent - 1))
    return value


def _read_scales(call: AtenCall) -> list[float]:
    """Returns the scale factors among the arguments; empty if the call states sizes."""
    given = call.arguments.get("scale_factors") or [
        value for key, value in call.arguments.items() if key.startswith("scales") and value is not None
    ]
    return [float(value) for value in given]


@converts(
    *(f"upsample_{name}.{kind}" for name in ("linear1d", "bilinear2d", "trilinear3d") for kind in ("default", "vec")),
    *(f"{name}.{kind}" for name in ("upsample_bicubic2d", "_upsample_bilinear2d_aa") for kind in ("default", "vec")),
    *(f"_upsample_bicubic2d_aa.{kind}" for kind in ("default", "vec")),
)
def interpolate(call: AtenCall) -> str:
    """Resizes by weighted sums of neighbours."""
    anti = call.op.partition(".")[0].endswith("_aa")
    cubic = "cubic" in call.op
    corners = bool(call["align_corners"])
    call.require(not (anti and corners), "must not align corners of what is smoothed", "align_corners=True")
    return _resize(
        call,
        mode=b"cubic" if cubic else b"linear",
        coordinate_transformation_mode=b"align_corners" if corners else b"half_pixel",
        antialias=int(anti),
        exclude_outside=int(anti),
        cubic_coeff_a=-0.5 if anti else -0.75,  # PyTorch's coefficients
    )


def _resize(call: AtenCall, **attrs: Any) -> str:
    """Resizes by the stated scales, or by the ratio of sizes without these."""
    shape, out = call.type(0).shape, call.result.shape
    name = f"{call.title}_scales"
    scales = [m / n for n, m in zip(shape, out, strict=True)]
    stated = _read_scales(call)
    sized = not stated or attrs["coordinate_transformation_mode"] == b"align_corners"
    if not sized:
        scales[2:] = stated
    call.context.arrays[name] = np.array(scales, np.float64)
    call.require(
        all(int(n * s) == m for n, s, m in zip(shape, scales, out, strict=True)) or sized,
        f"must give {list(out)}",
        f"scales={scales}",
    )
    if sized:
        call.context.arrays[name] = np.array(out, np.int64)
        return resizing.resize(call.shared("Resize", [call.inputs[0], "", "", name], **attrs))
    return resizing.resize(call.shared("Resize", [call.inputs[0], "", name], **attrs))

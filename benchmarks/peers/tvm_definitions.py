"""Operators as TVM's tensor expressions, in every algorithm that MetaSchedule has schedules of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tvm import te, topi
from tvm.topi.nn.winograd_util import winograd_transform_matrices

from benchmarks.order_rows import ROWS
from benchmarks.peers.base import PeerError
from search_space.workloads import Workload

Definition = Callable[[Workload], list[te.Tensor]]
"""Inputs and, last, the output."""


def make_definitions(workload: Workload, options: Mapping[str, Any]) -> dict[str, Definition]:
    """Maps algorithms to definitions: the direct one, and Winograd's where it fits.

    Args:
        workload: workload to define.
        options: `row` and `order` of `benchmarks.order_rows`, if it is one of these.

    Raises:
        PeerError: an operator that is not defined here.
    """
    if "row" in options:
        row = next(row for row in ROWS if row.name == options["row"])
        return {"direct": lambda _: row.tensors(options["order"], te)}
    if workload.operator not in _DEFINITIONS:
        raise PeerError(f"`workload` must be one of {', '.join(_DEFINITIONS)}, but got {workload.key}")
    found = {"direct": _DEFINITIONS[workload.operator]}
    if workload.operator == "conv2d" and _is_for_winograd(workload):
        found["winograd"] = _winograd
    return found


def _is_for_winograd(workload: Workload) -> bool:
    once = all(_pair(workload.args.get(name, 1)) == (1, 1) for name in ("stride", "dilation"))
    constant = workload.inputs[1].constant and tuple(workload.inputs[1].shape[:2]) == (3, 3)
    return once and constant and int(workload.args.get("groups", 1)) == 1


def _winograd(workload: Workload) -> list[te.Tensor]:
    """Defines F(4x4, 3x3) with transformed weights: 6, 6, out channels, in channels.

    TOPI's own no longer takes such weights. MetaSchedule's rules for a CPU expect these names of schedule rules and of
    the stages before them: they inline the padding and the tiles.
    """
    tile, side = 4, 6  # what is no plain convolution the direct definition has refused
    batch, _, _, deep = workload.inputs[0].shape
    _, height, width, channels = workload.output.shape
    across, down = -(-width // tile), -(-height // tile)
    data = te.placeholder(workload.inputs[0].shape, name="data")
    weight = te.placeholder((side, side, channels, deep), name="weight")
    back, forth, _ = winograd_transform_matrices(tile, 3, "float32")
    pad_h, pad_w = _pair(workload.args.get("padding", 0))
    after = [down * tile + 2 - data.shape[1] - pad_h, across * tile + 2 - data.shape[2] - pad_w]
    inlined = {"schedule_rule": "None"}
    padded = topi.nn.pad(data, (0, pad_h, pad_w, 0), (0, *after, 0), name="data_pad", attrs=inlined)
    tiles = te.compute(
        (side, side, batch * down * across, deep),
        lambda i, j, p, c: padded[p // (down * across), p // across % down * tile + i, p % across * tile + j, c],
        name="input_tile",
        attrs=inlined,
    )
    packed = _transform(tiles, forth, side, "data_pack")
    depth = te.reduce_axis((0, deep), name="ci")
    products = te.compute(
        (side, side, batch * down * across, channels),
        lambda i, j, p, c: te.sum(packed[i, j, p, depth] * weight[i, j, c, depth], axis=depth),
        name="bgemm",
        attrs={"layout_free_placeholders": [weight], "meta_schedule.write_cache_level": [2]},
    )
    inverse = _transform(products, back, tile, "inverse")
    output = te.compute(
        workload.output.shape,
        lambda n, h, w, c: inverse[h % tile, w % tile, n * down * across + h // tile * across + w // tile, c],
        name="conv2d_winograd",
    )
    return [data, weight, output]


def _transform(tensor: te.Tensor, matrix: te.Tensor, side: int, name: str) -> te.Tensor:
    """Multiplies by `matrix` on both sides of the first two axes, which have extent `side` afterwards."""
    rows, columns = (te.reduce_axis((0, tensor.shape[0]), name=axis) for axis in ("r_a", "r_b"))
    return te.compute(
        (side, side, *tensor.shape[2:]),
        lambda i, j, p, c: te.sum(
            tensor[rows, columns, p, c] * matrix[rows, i] * matrix[columns, j], axis=[rows, columns]
        ),
        name=name,
        attrs={"schedule_rule": f"conv2d_nhwc_winograd_{name}"},
    )


def _pair(value: Any) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else (int(value[0]), int(value[1]))


def _placeholders(workload: Workload) -> list[te.Tensor]:
    return [te.placeholder(spec.shape, name=spec.name) for spec in workload.inputs]


def _conv2d(workload: Workload) -> list[te.Tensor]:
    if len(workload.inputs) > 2 or workload.args.get("activation"):
        raise PeerError(f"`workload` must be a plain convolution, but got {workload.key}")
    data, weight = _placeholders(workload)
    stride, padding, dilation = (
        _pair(workload.args.get(n, d)) for n, d in (("stride", 1), ("padding", 0), ("dilation", 1))
    )
    groups = int(workload.args.get("groups", 1))
    layouts = {"data_layout": "NHWC", "kernel_layout": "HWIO", "auto_scheduler_should_rewrite_layout": True}
    return [data, weight, topi.nn.conv(data, weight, stride, padding, dilation, groups, **layouts)]


def _depthwise(workload: Workload) -> list[te.Tensor]:
    data, weight = _placeholders(workload)
    (stride_h, stride_w), (pad_h, pad_w) = _pair(workload.args["stride"]), _pair(workload.args["padding"])
    padded = topi.nn.pad(data, (0, pad_h, pad_w, 0), (0, pad_h, pad_w, 0), name="padded")
    rows = te.reduce_axis((0, weight.shape[0]), name="rows")
    columns = te.reduce_axis((0, weight.shape[1]), name="columns")
    result = te.compute(
        workload.output.shape,
        lambda n, h, w, c: te.sum(
            padded[n, h * stride_h + rows, w * stride_w + columns, c] * weight[rows, columns, c],
            axis=[rows, columns],
        ),
        name="depthwise",
        attrs={"layout_free_placeholders": [weight]},
    )
    return [data, weight, result]


def _conv2d_transpose(workload: Workload) -> list[te.Tensor]:
    """Defines a convolution of data with zeros between its elements, as TOPI does for images with channels first."""
    if len(workload.inputs) > 2 or workload.args.get("activation"):
        raise PeerError(f"`workload` must be a plain convolution, but got {workload.key}")
    data, weight = _placeholders(workload)
    kernel = weight.shape[:2]
    stride, padding, more = (_pair(workload.args[name]) for name in ("stride", "padding", "output_padding"))
    dilated = topi.nn.dilate(data, (1, *stride, 1), name="dilated")
    before = [int(k) - 1 - p for k, p in zip(kernel, padding, strict=True)]
    after = [first + extra for first, extra in zip(before, more, strict=True)]
    padded = topi.nn.pad(dilated, (0, *before, 0), (0, *after, 0), name="padded")
    rows, columns = te.reduce_axis((0, kernel[0]), name="rows"), te.reduce_axis((0, kernel[1]), name="columns")
    depth = te.reduce_axis((0, data.shape[3]), name="depth")
    result = te.compute(
        workload.output.shape,
        lambda n, h, w, c: te.sum(
            padded[n, h + rows, w + columns, depth] * weight[kernel[0] - 1 - rows, kernel[1] - 1 - columns, depth, c],
            axis=[rows, columns, depth],
        ),
        name="transposed",
        attrs={"layout_free_placeholders": [weight]},
    )
    return [data, weight, result]


def _product(workload: Workload) -> list[te.Tensor]:
    if len(workload.inputs) > 2 or workload.args.get("activation"):
        raise PeerError(f"`workload` must be a plain product, but got {workload.key}")
    data, weight = _placeholders(workload)
    depth = te.reduce_axis((0, data.shape[1]), name="depth")
    free = {"layout_free_placeholders": [weight]} if workload.inputs[1].constant else {}
    result = te.compute(
        workload.output.shape,
        lambda i, j: te.sum(data[i, depth] * weight[depth, j], axis=depth),
        name="product",
        attrs=free,
    )
    return [data, weight, result]


def _softmax(workload: Workload) -> list[te.Tensor]:
    (data,) = _placeholders(workload)
    return [data, topi.nn.fast_softmax(data, axis=1)]  # by a polynomial, as ours: the plain one calls `expf` a value


def _layer_norm(workload: Workload) -> list[te.Tensor]:
    data, *affine = _placeholders(workload)
    if not affine:
        raise PeerError(f"`workload` must have a scale and a shift, but got {workload.key}")
    return [
        data,
        *affine,
        topi.nn.layer_norm(data, affine[0], affine[1], [1], float(workload.args.get("epsilon", 1e-5))),
    ]


_DEFINITIONS: dict[str, Definition] = {
    "conv2d": _conv2d,
    "depthwise_conv2d": _depthwise,
    "conv2d_transpose": _conv2d_transpose,
    "matmul": _product,
    "dense": _product,
    "softmax": _softmax,
    "layer_norm": _layer_norm,
}

"""Layers of accelerators that have no multipliers behind their matrix unit: `clip((sum >> shift) + bias)` on int8.

`sum` is an int32 sum of int8 products. The shift rounds down and is one number for the tensor. The bias is one int32
per channel, in steps of the output. The layers exist channels-last, for CPUs, and in an accelerator's blocks, see
`search_space.operators.blocked`. Nothing is fused into the blocked layers: their kernels run on the accelerator, where
no other operation of the graph runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from autotune.graph.ops.base import GraphOp, Kind, Tensors, Types, register
from autotune.graph.ops.quantised import RANGES, require_types
from autotune.graph.types import Array, Attributes
from search_space import te
from search_space.ir.expr import Expr
from search_space.operators.checks import flag, spread
from search_space.operators.convolution import window_sum
from search_space.operators.naming import over
from search_space.operators.windows import normalise_padding, pad, pad_array, taps, window_over
from search_space.workloads import Workload

LARGEST_SHIFT = 15
LOW, HIGH = RANGES["int8"]
_ENDING: dict[str, Any] = {"shift": 0, "relu": False}
_WINDOW: dict[str, Any] = {"stride": 1, "padding": 0}


def _ending(attrs: dict[str, Any]) -> dict[str, Any]:
    shift = attrs["shift"]
    if isinstance(shift, bool) or not isinstance(shift, int) or not 0 <= shift <= LARGEST_SHIFT:
        raise ValueError(f"`shift` must be a whole number from 0 to {LARGEST_SHIFT}, but got shift={shift!r}")
    return {**attrs, "relu": flag("relu", attrs["relu"])}


def _layer(rank: int, weight_rank: int, attrs: dict[str, Any], types: Types) -> dict[str, Any]:
    data, weight, bias = types
    if (len(data.shape), len(weight.shape)) != (rank, weight_rank) or data.shape[-1] != weight.shape[-2]:
        raise ValueError(f"data and weight must share their channels, but got {data} and {weight}")
    if bias.shape != weight.shape[-1:]:
        raise ValueError(f"the bias must have {weight.shape[-1]} elements, but got {bias}")
    return _ending(attrs)


def _conv2d_attributes(attributes: Attributes, types: Types) -> dict[str, Any]:
    attrs = _layer(4, 4, require_types("int8", "int8", "int32", **_WINDOW, **_ENDING)(attributes, types), types)
    return {**attrs, **spread(2, stride=attrs["stride"]), "padding": normalise_padding(2, attrs["padding"])}


def _matmul_attributes(attributes: Attributes, types: Types) -> dict[str, Any]:
    return _layer(2, 2, require_types("int8", "int8", "int32", **_ENDING)(attributes, types), types)


def _finish(attrs: Attributes, total: te.Tensor, bias: te.Tensor) -> te.Tensor:
    low = 0 if attrs["relu"] else LOW

    def end(*index: Any) -> Expr:
        value = (total[index] >> attrs["shift"]) + bias[index[-1]]
        return te.minimum(te.maximum(value, low), HIGH).astype("int8")

    return te.compute(total.shape, end, name="out")


def _conv2d(attrs: Attributes, tensors: Tensors) -> te.Tensor:
    data, weight, bias = tensors
    window = window_over(data.shape, {**attrs, "kernel": weight.shape[:2]})
    return _finish(attrs, window_sum(pad(data, window, 0), weight, window, "int8"), bias)


def _matmul(attrs: Attributes, tensors: Tensors) -> te.Tensor:
    data, weight, bias = tensors
    rc = te.reduce_axis((0, data.shape[-1]), "rc")

    def body(m: Any, n: Any) -> te.Reduction:
        return te.sum(data[m, rc].astype("int32") * weight[rc, n].astype("int32"), axis=[rc])

    shape = (data.shape[0], weight.shape[-1])
    return _finish(attrs, te.compute(shape, over(("m", "n"), body), name="matmul"), bias)


def compute_output_bytes(attrs: Attributes, total: Array, bias: Array) -> Array:
    """Computes a layer's output bytes from its exact sums, channels last."""
    value = (total.astype(np.int64) >> attrs["shift"]) + bias
    found: Array = np.clip(value, 0 if attrs["relu"] else LOW, HIGH).astype(np.int8)
    return found


def _compute_conv2d(attrs: Attributes, data: Array, weight: Array, bias: Array) -> Array:
    """Computes one matrix product per filter tap, exact in float64."""
    window = window_over(data.shape, {**attrs, "kernel": weight.shape[:2]})
    total = np.zeros((data.shape[0], *window.output, weight.shape[-1]))
    for place, rows in taps(pad_array(data, window).astype(np.float64), window):
        total += rows @ weight[place].astype(np.float64)
    return compute_output_bytes(attrs, total, bias)


def _compute_matmul(attrs: Attributes, data: Array, weight: Array, bias: Array) -> Array:
    return compute_output_bytes(attrs, data.astype(np.float64) @ weight.astype(np.float64), bias)


def _block(types: Types) -> tuple[int, int, int]:
    """Returns (batch, output channels, input channels) of a block."""
    data, weight, _ = types
    outs, ins = weight.shape[-2:]
    return data.shape[-2], outs, ins


def _ranks(attrs: dict[str, Any], types: Types, rank: int) -> dict[str, Any]:
    for kind in types[:2]:
        if len(kind.shape) != rank:
            raise ValueError(f"data and weight must have {rank} dimensions, but got {kind}")
    return _ending(attrs)


def _conv2d_blocked_attributes(attributes: Attributes, types: Types) -> dict[str, Any]:
    attrs = _ranks(require_types("int8", "int8", "int32", **_WINDOW, **_ENDING)(attributes, types), types, 6)
    return {**attrs, **spread(2, stride=attrs["stride"]), "padding": normalise_padding(2, attrs["padding"])}


def _conv2d_blocked(attrs: Attributes, types: Types, constants: Sequence[bool]) -> Workload:
    """Returns the workload of data (n, c, h, w, batch, ins), weight (k, c, kh, kw, outs, ins), bias (k, batch, outs).

    n, c and k count blocks.
    """
    (n, c, height, width, *_), (k, _, *kernel, _, _) = types[0].shape, types[1].shape
    batch, outs, ins = block = _block(types)
    channels = {"batch": n * batch, "in_channels": c * ins, "out_channels": k * outs}
    extents = {"height": height, "width": width, "kernel": tuple(kernel)}
    return Workload("conv2d_blocked", {**channels, **extents, "block": block, **attrs})


def _dense_blocked_attributes(attributes: Attributes, types: Types) -> dict[str, Any]:
    return _ranks(require_types("int8", "int8", "int32", **_ENDING)(attributes, types), types, 4)


def _dense_blocked(attrs: Attributes, types: Types, constants: Sequence[bool]) -> Workload:
    """Returns the workload of data (n, c, batch, ins), weight (k, c, outs, ins), bias (k, batch, outs).

    n, c and k count blocks.
    """
    (n, c, *_), (k, *_) = types[0].shape, types[1].shape
    batch, outs, ins = block = _block(types)
    channels = {"batch": n * batch, "in_features": c * ins, "out_features": k * outs}
    return Workload("dense_blocked", {**channels, "block": block, **attrs})


register(
    GraphOp("shift_conv2d", Kind.compute, _conv2d_attributes, _conv2d, compute=_compute_conv2d),
    GraphOp("shift_matmul", Kind.compute, _matmul_attributes, _matmul, compute=_compute_matmul),
    GraphOp("conv2d_blocked", Kind.compute, _conv2d_blocked_attributes, workload=_conv2d_blocked, offloaded=True),
    GraphOp("dense_blocked", Kind.compute, _dense_blocked_attributes, workload=_dense_blocked, offloaded=True),
)

"""Evaluation of single ONNX nodes in NumPy: by ONNX's own evaluator, except where that is wrong or slow.

It folds constants at import and decides between two runtimes that disagree: it shares no code with the importer's
handlers and with graphs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import helper
from onnx.reference import ReferenceEvaluator

from autotune.graph.frontends.onnx import windows
from autotune.graph.frontends.onnx.samples import grid_sample
from autotune.graph.frontends.onnx.windows import Attributes
from autotune.graph.ir import Array
from search_space.dtypes import NARROW

TYPED_OPS = ("Cast", "CastLike", "ConstantOfShape")
"""Operators whose attributes state their result's dtype; others have the dtype of the floats that they read."""

SINCE = {"DequantizeLinear": 19, "QuantizeLinear": 19}
"""Operators whose older versions ONNX's evaluator lacks, although they are special cases of this one."""


class NodeError(ValueError):
    """A node that cannot be evaluated; the message has its name and the reason."""


def run_node(node: onnx.NodeProto, values: Mapping[str, Array], opset: int) -> dict[str, Array]:
    """Computes the outputs of a node by name.

    Args:
        node: node without subgraphs.
        values: values of its inputs, by name.
        opset: version of the default domain.

    Raises:
        NodeError: the node cannot be evaluated.
    """
    if node.op_type not in TYPED_OPS and (narrow := next(_narrow(node, values), None)) is not None:
        return _round_outputs(run_node(node, _widen_inputs(node, values), opset), narrow)
    names = [name for name in node.output if name]
    own = OWN.get(node.op_type) if node.domain in ("", "ai.onnx") and len(names) == 1 else None
    own = None if node.op_type == "Resize" and opset > 10 else own
    try:
        if own is not None:
            attrs = {item.name: helper.get_attribute_value(item) for item in node.attribute}
            with np.errstate(all="ignore"):
                outputs: Any = [own(attrs, opset, *(values[name] if name else None for name in node.input))]
        elif reason := _misread(node):
            raise ValueError(f"ONNX's evaluator {reason}")
        else:
            since = max(opset, SINCE.get(node.op_type, 0))
            outputs = _by_evaluator(node, {name: values[name] for name in node.input if name}, since)
    except Exception as error:  # ONNX's evaluator raises whatever error its NumPy code raises
        raise NodeError(_message(node, str(error) or type(error).__name__)) from error
    if len(outputs) != len(names) or not all(isinstance(value, (np.ndarray, np.generic)) for value in outputs):
        raise NodeError(_message(node, "it gives no arrays"))
    return dict(zip(names, map(np.asarray, outputs), strict=True))


def _narrow(node: onnx.NodeProto, values: Mapping[str, Array]) -> Iterator[np.dtype[Any]]:
    """Yields the 16-bit float dtypes that a node reads, in which NumPy would round after each function."""
    return (values[name].dtype for name in node.input if name and str(values[name].dtype) in NARROW)


def _widen_inputs(node: onnx.NodeProto, values: Mapping[str, Array]) -> dict[str, Array]:
    read = ((name, values[name]) for name in node.input if name)
    return {name: array.astype(np.float32) if str(array.dtype) in NARROW else array for name, array in read}


def _round_outputs(outputs: Mapping[str, Array], dtype: np.dtype[Any]) -> dict[str, Array]:
    with np.errstate(over="ignore"):
        return {name: a.astype(dtype) if a.dtype == np.float32 else a for name, a in outputs.items()}


def _misread(node: onnx.NodeProto) -> str:
    """Returns how ONNX's evaluator deviates from runtimes for a node; "" if it does not."""
    if any(item.type == onnx.AttributeProto.GRAPH for item in node.attribute):
        return "does not see the values around a graph within a node"
    if node.op_type == "Resize" and any(item.s == b"align_corners" for item in node.attribute):
        return "aligns other corners than runtimes do"
    if node.op_type in ("LSTM", "GRU", "RNN"):
        stated = {item.name for item in node.attribute} & {"activations", "clip", "input_forget"}
        if stated or (len(node.input) > 4 and node.input[4]):
            return f"does not look at {', '.join(sorted(stated)) or 'the lengths of sequences'}"
    return ""


def _by_evaluator(node: onnx.NodeProto, arrays: Mapping[str, Array], opset: int) -> Any:
    """Evaluates a node by ONNX's evaluator, which needs a model with opset and types."""
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in arrays.items()
    ]
    outputs = [helper.make_empty_tensor_value_info(name) for name in node.output if name]
    graph = helper.make_graph([node], "node", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    with np.errstate(all="ignore"):
        return ReferenceEvaluator(model).run(None, dict(arrays))


def _message(node: onnx.NodeProto, why: str) -> str:
    return f"{node.op_type} node {node.name or node.output[0]!r} cannot be computed by NumPy: {why.splitlines()[0]}"


def _cum_sum(attrs: Attributes, opset: int, x: Array, axis: Array) -> Array:
    """Computes running sums along an axis given as a scalar or a vector; ONNX's evaluator rejects the latter."""
    way = int(axis.reshape(-1)[0])
    turned = np.flip(x, way) if attrs.get("reverse", 0) else x
    sums = np.cumsum(turned, way, dtype=x.dtype)
    if attrs.get("exclusive", 0):
        sums = np.delete(np.insert(sums, 0, 0, way), -1, way)
    return np.flip(sums, way) if attrs.get("reverse", 0) else sums


def _gather_elements(attrs: Attributes, opset: int, data: Array, indices: Array) -> Array:
    """Computes out[i, j] = data[indices[i, j], j] for axis 0; ONNX's evaluator reads other rows, or fails."""
    axis = int(attrs.get("axis", 0)) % data.ndim
    places = np.where(indices < 0, indices + data.shape[axis], indices)
    cut = tuple(slice(None) if a == axis else slice(n) for a, n in enumerate(indices.shape))
    return np.take_along_axis(data[cut], places, axis)


def _log_softmax(attrs: Attributes, opset: int, x: Array) -> Array:
    """Computes log-softmax along an axis; before opset 13, which ONNX's evaluator ignores, over all axes from it on."""
    axis = int(attrs.get("axis", 1 if opset < 13 else -1)) % x.ndim
    axes = tuple(range(axis, x.ndim)) if opset < 13 else axis
    below = x - x.max(axes, keepdims=True)
    return np.asarray(below - np.log(np.exp(below).sum(axes, keepdims=True)))


def _hardmax(attrs: Attributes, opset: int, x: Array) -> Array:
    """Writes 1 at the first maximum; before opset 13 of all axes from `axis` on, as in `_log_softmax`."""
    axis = int(attrs.get("axis", 1 if opset < 13 else -1)) % x.ndim
    rows = x.reshape(math.prod(x.shape[:axis]), -1) if opset < 13 else np.moveaxis(x, axis, -1)
    out = (np.arange(rows.shape[-1]) == rows.argmax(-1)[..., None]).astype(x.dtype)
    return out.reshape(x.shape) if opset < 13 else np.moveaxis(out, -1, axis)


def _softmax(attrs: Attributes, opset: int, x: Array) -> Array:
    return np.asarray(np.exp(_log_softmax(attrs, opset, x)))


def _mean(attrs: Attributes, opset: int, *values: Array) -> Array:
    """Computes the mean of operands, which broadcast."""
    total = values[0]
    for value in values[1:]:
        total = total + value
    return np.asarray(total / len(values), total.dtype)


def _batch_normalization(
    attrs: Attributes, opset: int, x: Array, scale: Array, shift: Array, mean: Array, variance: Array
) -> Array:
    """Normalises by given statistics."""
    if attrs.get("training_mode", 0):
        raise ValueError("`training_mode` must be 0, but got training_mode=1")
    wide = [a.reshape(-1, *[1] * (x.ndim - 2)) for a in (scale, shift, mean, variance)]
    found = (x - wide[2]) / np.sqrt(wide[3] + attrs.get("epsilon", 1e-5)) * wide[0] + wide[1]
    return np.asarray(found, x.dtype)


def _unsqueeze(attrs: Attributes, opset: int, x: Array, axes: Array | None = None) -> Array:
    """Inserts axes of extent 1, named in any order."""
    return np.expand_dims(x, tuple(int(a) for a in (attrs["axes"] if axes is None else axes.reshape(-1))))


def _squeeze(attrs: Attributes, opset: int, x: Array, axes: Array | None = None) -> Array:
    """Removes axes of extent 1, named in any order; all by default."""
    named = attrs.get("axes") if axes is None else axes.reshape(-1)
    return np.squeeze(x, None if named is None else tuple(int(a) for a in named))


def _upsample(attrs: Attributes, opset: int, x: Array, scales: Array | None = None) -> Array:
    """Resizes by scales, as before opset 11: linear, or nearest, which rounds up along axes that shrink."""
    linear = attrs.get("mode", b"nearest") == b"linear"
    dtype = x.dtype
    for axis, scale in enumerate(np.asarray(attrs["scales"] if scales is None else scales, np.float64)):
        where, last = np.arange(int(x.shape[axis] * scale)) / scale, x.shape[axis] - 1
        positions = np.floor(where) if scale >= 1 or linear else np.ceil(where)
        below = np.take(x, np.clip(positions.astype(np.int64), 0, last), axis)
        if linear and not (where == positions).all():
            above = np.take(x, np.clip(positions.astype(np.int64) + 1, 0, last), axis)
            share = (where - positions).reshape(-1, *[1] * (x.ndim - axis - 1))
            below = below * (1 - share) + above * share
        x = below
    return np.asarray(x, dtype)


OWN: dict[str, Callable[..., Array]] = {
    "AveragePool": windows.average_pool,
    "BatchNormalization": _batch_normalization,
    "Conv": windows.conv,
    "ConvTranspose": windows.conv_transpose,
    "CumSum": _cum_sum,
    "GatherElements": _gather_elements,
    "GridSample": grid_sample,
    "GlobalMaxPool": windows.global_max_pool,
    "Hardmax": _hardmax,
    "LRN": windows.local_response_normalization,
    "LogSoftmax": _log_softmax,
    "MaxPool": windows.max_pool,
    "Mean": _mean,
    "Resize": _upsample,
    "Softmax": _softmax,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Upsample": _upsample,
}
"""Operator → its definition, a function of attributes, opset and inputs."""

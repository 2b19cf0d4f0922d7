"""Quantised graphs as ONNX models, so that another runtime can say whether the integers are right.

Sums of bytes are ConvInteger and MatMulInteger; what is done with them is written in int32, and the product behind
them in float32, so that a runtime that computes as the standard says gives the very same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from autotune.graph.ir import Array, Graph, GraphError, Node
from autotune.graph.passes.site import pair

OPSET = 17
_TYPES = {"float32": TensorProto.FLOAT, "uint8": TensorProto.UINT8, "int32": TensorProto.INT32}


def to_onnx(graph: Graph, also: Sequence[str] = ()) -> onnx.ModelProto:
    """The model of a quantised graph.

    Args:
        graph: result of `quantise`.
        also: values that are outputs, too.

    Raises:
        GraphError: an operation that has no ONNX form here.
    """
    export = _Export(graph)
    for node in graph.nodes:
        if node.op not in _EXPORTS:
            raise GraphError(f"an operation to export must be one of {', '.join(_EXPORTS)}, but got {node.op}")
        _EXPORTS[node.op](export, node)
    outputs = [helper.make_tensor_value_info(n, _TYPES[graph.type(n).dtype], None) for n in (*graph.outputs, *also)]
    inputs = [helper.make_tensor_value_info(n, _TYPES[t.dtype], t.shape) for n, t in graph.inputs.items()]
    made = helper.make_graph(export.nodes, graph.name, inputs, outputs, export.constants)
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)


class _Export:
    """Nodes and constants so far."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.nodes: list[onnx.NodeProto] = []
        self.constants = [numpy_helper.from_array(array, name) for name, array in graph.constants.items()]

    def add(self, op: str, inputs: Sequence[str], name: str = "", **attrs: Any) -> str:
        name = name or f"%{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], **attrs))
        return name

    def constant(self, array: Any, dtype: str) -> str:
        name = f"%c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array, dtype), name))
        return name

    def cast(self, name: str, dtype: str) -> str:
        return self.add("Cast", [name], to=_TYPES[dtype])

    def clip(self, value: str, low: int, high: int) -> str:
        """A float within limits."""
        return self.add("Clip", [value, *(self.constant(float(end), "float32") for end in (low, high))])

    def channels_first(self, name: str) -> str:
        return self.add("Transpose", [name], perm=(0, 3, 1, 2))

    def channels_last(self, name: str, out: str) -> str:
        return self.add("Transpose", [name], out, perm=(0, 2, 3, 1))


def _conv(x: _Export, node: Node) -> None:
    data, weight = node.inputs
    filters: Array = x.graph.constants[weight]
    groups = node.attrs.get("groups", 1)
    if node.op == "depthwise_conv2d":
        filters, groups = filters[:, :, None, :], filters.shape[-1]
    kernel = x.constant(filters.transpose(3, 2, 0, 1), str(filters.dtype))
    padding, stride, dilation = (pair(node.attrs[name]) for name in ("padding", "stride", "dilation"))
    attrs: dict[str, Any] = {"pads": (*padding, *padding), "strides": stride, "dilations": dilation, "group": groups}
    op = "ConvInteger" if node.type.dtype == "int32" else "Conv"
    x.channels_last(x.add(op, [x.channels_first(data), kernel], **attrs), node.name)


def _sum_pool(x: _Export, node: Node) -> None:
    channels = node.type.shape[-1]
    kernel, stride, padding = (pair(node.attrs[name]) for name in ("kernel", "stride", "padding"))
    ones = x.constant(np.ones((channels, 1, *kernel)), "int8")
    attrs: dict[str, Any] = {"pads": (*padding, *padding), "strides": stride, "group": channels}
    x.channels_last(x.add("ConvInteger", [x.channels_first(node.inputs[0]), ones], **attrs), node.name)


def _pool(x: _Export, node: Node) -> None:
    kernel, stride, padding = (pair(node.attrs[name]) for name in ("kernel", "stride", "padding"))
    attrs: dict[str, Any] = {"kernel_shape": kernel, "strides": stride, "pads": (*padding, *padding)}
    x.channels_last(x.add("MaxPool", [x.channels_first(node.inputs[0])], **attrs), node.name)


def _matmul(x: _Export, node: Node) -> None:
    x.add("MatMulInteger" if node.type.dtype == "int32" else "MatMul", node.inputs, node.name)


def _quantise(x: _Export, node: Node) -> None:
    data, inverse, zero = node.inputs
    near = x.add("Add", [x.add("Round", [x.add("Mul", [data, inverse])]), x.cast(zero, "float32")])
    x.add("Cast", [x.clip(near, 0, 255)], node.name, to=TensorProto.UINT8)


def _dequantise(x: _Export, node: Node) -> None:
    data, scale, zero = node.inputs
    x.add("Mul", [x.cast(x.add("Sub", [x.cast(data, "int32"), x.cast(zero, "int32")]), "float32"), scale], node.name)


def _dequantise_sum(x: _Export, node: Node) -> None:
    x.add("Mul", [x.add("Cast", [node.inputs[0]], to=TensorProto.FLOAT), node.inputs[1]], node.name)


def _requantise(x: _Export, node: Node) -> None:
    value = x.add("Mul", [x.cast(x.add("Add", node.inputs[:2]), "float32"), node.inputs[2]])
    x.add(
        "Cast",
        [x.clip(x.add("Round", [value]), node.attrs["low"], node.attrs["high"])],
        node.name,
        to=TensorProto.UINT8,
    )


def _multiply_wide(x: _Export, data: str, factor: str, name: str = "") -> str:
    return x.add("Mul", [x.cast(data, "int32"), factor], name)


def _add_widened(x: _Export, node: Node) -> None:
    x.add("Add", [node.inputs[0], _multiply_wide(x, *node.inputs[1:])], node.name)


def _shift_left(x: _Export, node: Node) -> None:
    powers = np.ldexp(1.0, x.graph.constants[node.inputs[1]])
    x.add("Mul", [node.inputs[0], x.constant(powers, "int32")], node.name)


def _pad(x: _Export, node: Node) -> None:
    sides = x.constant((*node.attrs["before"], *node.attrs["after"]), "int64")
    data, *given = node.inputs
    value = x.add("Squeeze", given) if given else x.constant(node.attrs["value"], node.type.dtype)
    x.add("Pad", [data, sides, value], node.name)


def _clip(x: _Export, node: Node) -> None:
    ends = [x.constant(node.attrs[name], "float32") for name in ("low", "high")]
    x.add("Clip", [node.inputs[0], *ends], node.name)


def _reshape(x: _Export, node: Node) -> None:
    x.add("Reshape", [node.inputs[0], x.constant(node.attrs["shape"], "int64")], node.name)


def _same(op: str) -> Callable[[_Export, Node], None]:
    def export(x: _Export, node: Node) -> None:
        x.add(op, node.inputs, node.name)

    return export


def _widen(x: _Export, node: Node) -> None:
    data, factor = node.inputs
    _multiply_wide(x, data, factor, node.name)


def _transpose(x: _Export, node: Node) -> None:
    x.add("Transpose", node.inputs, node.name, perm=node.attrs["axes"])


def _concat(x: _Export, node: Node) -> None:
    x.add("Concat", node.inputs, node.name, axis=node.attrs["axis"])


_EXPORTS: dict[str, Callable[[_Export, Node], None]] = {
    "conv2d": _conv,
    "depthwise_conv2d": _conv,
    "matmul": _matmul,
    "sum_pool2d": _sum_pool,
    "max_pool2d": _pool,
    "quantise": _quantise,
    "dequantise": _dequantise,
    "dequantise_sum": _dequantise_sum,
    "requantise": _requantise,
    "shift_left": _shift_left,
    "widen": _widen,
    "add_widened": _add_widened,
    "pad": _pad,
    "pad_with": _pad,
    "limit": _same("Clip"),
    "clip": _clip,
    "reshape": _reshape,
    "transpose": _transpose,
    "concat": _concat,
    "add": _same("Add"),
    "multiply": _same("Mul"),
    "relu": _same("Relu"),
    "sigmoid": _same("Sigmoid"),
    "softmax": _same("Softmax"),
    "copy": _same("Identity"),
}

"""Small ONNX models that ONNX Runtime's quantiser has made of random weights and inputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from autotune.graph.frontends.onnx.model import with_shapes
from autotune.graph.ir import Array


class Net:
    """Nodes in floats, so far."""

    def __init__(self, shape: Sequence[int], seed: int = 0) -> None:
        self.rng, self.shape = np.random.default_rng(seed), tuple(shape)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def constant(self, array: Any, dtype: str = "float32") -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(array, dtype), name))
        return name

    def draw_constant(self, *shape: int, fan: int = 1) -> str:
        return self.constant(self.rng.standard_normal(shape) / np.sqrt(fan))

    def add(self, op: str, *inputs: str, **attrs: Any) -> str:
        name = f"{op.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], name=name, **attrs))
        return name

    def conv(self, x: str, ins: int, outs: int, kernel: int = 3, group: int = 1, **attrs: Any) -> str:
        weight = self.draw_constant(outs, ins // group, kernel, kernel, fan=ins // group * kernel**2)
        attrs = {"pads": [kernel // 2] * 4, "group": group, **attrs}
        return self.add("Conv", x, weight, self.draw_constant(outs), **attrs)

    def model(self, *outputs: str, opset: int = 21) -> onnx.ModelProto:
        given = [helper.make_tensor_value_info("x", TensorProto.FLOAT, self.shape)]
        made = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
        graph = helper.make_graph(self.nodes, "net", given, made, self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
        return onnx.shape_inference.infer_shapes(model)


def residual() -> onnx.ModelProto:
    """Dense, depthwise and grouped convolutions, a residual with a projection, pools, a classifier."""
    net = Net((1, 3, 9, 9))
    start = net.add("Relu", net.conv("x", 3, 16, strides=[2, 2]))
    pooled = net.add("MaxPool", start, kernel_shape=[3, 3], strides=[1, 1], pads=[1, 1, 1, 1])
    deep = net.add("Clip", net.conv(pooled, 16, 16, group=16), net.constant(0.0), net.constant(1.5))
    groups = net.add("Relu", net.conv(deep, 16, 16, group=4))
    main, branch = net.conv(groups, 16, 24, 1), net.conv(pooled, 16, 24, 1)
    joined = net.add("Relu", net.add("Add", main, branch))
    again = net.add("Relu", net.add("Add", net.conv(joined, 24, 24), joined))
    flat = net.add("Flatten", net.add("GlobalAveragePool", again))
    return net.model(net.add("Gemm", flat, net.draw_constant(10, 24, fan=24), net.draw_constant(10), transB=1))


def branches() -> onnx.ModelProto:
    """Concatenations, a mean of windows, a transposition, a sigmoid."""
    net = Net((2, 4, 6, 6), 1)
    left, right = net.add("Relu", net.conv("x", 4, 8)), net.add("Sigmoid", net.conv("x", 4, 6, 1))
    both = net.add("Concat", left, right, axis=1)
    mean = net.add("AveragePool", both, kernel_shape=[2, 2], strides=[2, 2])
    most = net.add("MaxPool", both, kernel_shape=[2, 2], strides=[2, 2])
    joined = net.conv(net.add("Concat", mean, most, axis=1), 28, 12)
    rows = net.add("Reshape", net.add("Transpose", joined, perm=[0, 2, 3, 1]), net.constant([2, 9, 12], "int64"))
    return net.model(net.add("MatMul", rows, net.draw_constant(12, 5, fan=12)))


def block() -> onnx.ModelProto:
    """A block of a transformer without its normalisations: attention of two heads, and two layers."""
    net, rows, width = Net((1, 6, 16), 2), 6, 16

    def layer(x: str, ins: int, outs: int) -> str:
        return net.add("Add", net.add("MatMul", x, net.draw_constant(ins, outs, fan=ins)), net.draw_constant(outs))

    def heads(x: str, *perm: int) -> str:
        return net.add("Transpose", net.add("Reshape", x, net.constant([1, rows, 2, 8], "int64")), perm=perm)

    q, k, v = (layer("x", width, width) for _ in range(3))
    scores = net.add("MatMul", heads(q, 0, 2, 1, 3), heads(k, 0, 2, 3, 1))
    mixed = net.add("MatMul", net.add("Softmax", scores, axis=-1), heads(v, 0, 2, 1, 3))
    flat = net.add("Reshape", net.add("Transpose", mixed, perm=[0, 2, 1, 3]), net.constant([1, rows, width], "int64"))
    joined = net.add("Add", layer(flat, width, width), "x")
    return net.model(net.add("Add", layer(net.add("Relu", layer(joined, width, 32)), 32, width), joined))


def along(*sizes: int) -> onnx.ModelProto:
    """Convolutions over as many axes as there are sizes, with padding, a stride, groups and a bias."""
    net, axes = Net((1, 6, *sizes), 3), len(sizes)
    first = net.draw_constant(16, 6, *[3] * axes, fan=6 * 3**axes)
    value = net.add("Relu", net.add("Conv", "x", first, net.draw_constant(16), pads=[1] * 2 * axes))
    grouped = net.draw_constant(16, 4, *[3] * axes, fan=4 * 3**axes)
    value = net.add("Conv", value, grouped, net.draw_constant(16), group=4, strides=[2] * axes, pads=[1, 0] * axes)
    last = net.draw_constant(8, 16, *[1] * axes, fan=16)
    return net.model(net.add("Conv", value, last, net.draw_constant(8)))


def lines() -> onnx.ModelProto:
    """Convolutions over one axis."""
    return along(17)


def volumes() -> onnx.ModelProto:
    """Convolutions over three."""
    return along(5, 6, 4)


class _Reader:
    """Random inputs to calibrate on."""

    def __init__(self, feeds: Sequence[dict[str, Array]]) -> None:
        self._left: Iterator[dict[str, Array]] = iter(feeds)

    def get_next(self) -> dict[str, Array] | None:
        return next(self._left, None)


def input_shape(model: onnx.ModelProto) -> tuple[int, ...]:
    return tuple(dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim)


def draw(model: onnx.ModelProto, seed: int) -> dict[str, Array]:
    """Random inputs of a model with one input."""
    rng = np.random.default_rng(seed)
    return {model.graph.input[0].name: rng.standard_normal(input_shape(model)).astype(np.float32)}


def quantised_by_peer(model: onnx.ModelProto, folder: Path, activations: str, per_channel: bool) -> onnx.ModelProto:
    """The model as `quantize_static` makes it, in QDQ format.

    Args:
        model: model in floats.
        folder: folder for files.
        activations: `uint8` or `int8`.
        per_channel: whether each channel's weights have a scale of their own.
    """
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_static

    onnx.save(model, folder / "floats.onnx")
    quantize_static(
        folder / "floats.onnx",
        folder / "bytes.onnx",
        _Reader([draw(model, seed) for seed in range(3)]),  # type: ignore[arg-type]
        quant_format=QuantFormat.QDQ,
        activation_type=QuantType.QUInt8 if activations == "uint8" else QuantType.QInt8,
        weight_type=QuantType.QInt8,
        per_channel=per_channel,
    )
    return with_shapes(onnx.load(folder / "bytes.onnx"))

"""Seeded weights for models without weights: the model zoo's graphs fill theirs with one value.

Values keep their magnitude through the network, so that logits stay within tens. Weights are scaled as in He et al.,
"Delving Deep into Rectifiers", 2015, and by the variances of a batch normalisation behind them. A normalisation that
ends a residual branch has scales around a half, so that branches add little.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from autotune.graph.frontends.onnx.file import read_array
from autotune.graph.ir import Array, TensorType
from autotune.graph.limits import Budget

Shape = tuple[int, ...]

_KEEPING = (
    *("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Transpose", "Dropout"),
    *("MaxPool", "AveragePool", "GlobalAveragePool", "Concat", "LRN"),
)
"""Operators whose output is rectified if their input is."""


def with_weights(model: onnx.ModelProto, seed: int = 0) -> onnx.ModelProto:
    """Replaces constant tensors that nodes create in a static shape by seeded weights.

    Each weight depends only on the seed, its name and its position in the model. Weights that the model has stay
    unchanged.
    """
    if not any(n.op_type == "ConstantOfShape" for n in model.graph.node):
        return model
    arrays = {tensor.name: read_array(tensor) for tensor in model.graph.initializer}
    creators = [n for n in model.graph.node if n.op_type == "ConstantOfShape" and n.input[0] in arrays]
    users = _users(model)
    replaced = {n.output[0]: users[n.output[0]] for n in creators if n.output[0] in users}
    if not replaced:
        return model
    out = onnx.ModelProto()
    out.CopyFrom(model)
    kept = [node for node in out.graph.node if node.output[0] not in replaced]
    del out.graph.node[:]
    out.graph.node.extend(kept)
    shapes = {n.output[0]: tuple(int(v) for v in arrays[n.input[0]]) for n in creators}
    dtypes = {n.output[0]: _dtype(n) for n in creators}
    context, budget = _WeightPositions(model, arrays), Budget()
    for name, (node, place) in replaced.items():
        budget.take(f"the weight {name!r}", TensorType(shapes[name], str(dtypes[name])))
        rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
        array = context.draw(node, place, shapes[name], rng).astype(dtypes[name])
        out.graph.initializer.append(numpy_helper.from_array(array, name))
    return out


def _dtype(node: onnx.NodeProto) -> np.dtype[Any]:
    """Returns the dtype of a node's constant."""
    values = (numpy_helper.to_array(item.t).dtype for item in node.attribute if item.name == "value")
    return next(values, np.dtype(np.float32))


def _users(model: onnx.ModelProto) -> dict[str, tuple[onnx.NodeProto, int]]:
    """Maps each value to the first node that uses it as a weight, and its input number, through changes of shape."""
    through: dict[str, str] = {}
    users: dict[str, tuple[onnx.NodeProto, int]] = {}
    for node in model.graph.node:
        if node.op_type in ("Unsqueeze", "Squeeze", "Identity"):
            through[node.output[0]] = through.get(node.input[0], node.input[0])
            continue
        for place, name in enumerate(node.input):
            if place in _DRAWS.get(node.op_type, {}):
                users.setdefault(through.get(name, name), (node, place))
    return users


_DRAWS: dict[str, dict[int, str]] = {
    "Conv": {1: "weight", 2: "small"},
    "Gemm": {1: "weight", 2: "small"},
    "MatMul": {1: "weight"},
    "BatchNormalization": {1: "scale", 2: "small", 3: "small", 4: "variance"},
    "Mul": {0: "scale", 1: "scale"},
    "Add": {0: "small", 1: "small"},
}
"""Operator → input number of a weight → distribution."""


class _WeightPositions:
    """The positions of weights in a model: nodes before and behind theirs.

    Args:
        model: model in topological order.
        arrays: tensors of the model, by name.
    """

    def __init__(self, model: onnx.ModelProto, arrays: Mapping[str, Array]) -> None:
        self._arrays = arrays
        self._makers = {name: node for node in model.graph.node for name in node.output}
        self._readers: dict[str, list[onnx.NodeProto]] = {}
        for node in model.graph.node:
            for name in node.input:
                self._readers.setdefault(name, []).append(node)

    def draw(self, node: onnx.NodeProto, index: int, shape: Shape, rng: np.random.Generator) -> Array:
        """Draws a weight for an input of a node."""
        kind = _DRAWS[node.op_type][index]
        if kind == "small":
            return rng.standard_normal(shape) * 0.1
        if kind == "variance":
            return rng.uniform(0.5, 1.5, shape)
        if kind == "scale":
            return rng.uniform(0.8, 1.2, shape) * (0.5 if self._ends_branch(node) else 1.0)
        gain = 2.0 if self._is_rectified(node.input[0]) else 1.0
        values: Array = rng.standard_normal(shape) * np.sqrt(gain / _fan_in(node, shape))
        expected = self._expected_variance(node)
        return values if expected is None else values * np.sqrt(expected).reshape(-1, *[1] * (len(shape) - 1))

    def _is_rectified(self, name: str) -> bool:
        """Tells whether a value is a rectifier's output, perhaps moved or pooled: half of its variance is gone."""
        while (node := self._makers.get(name)) is not None and node.op_type in _KEEPING:
            name = node.input[0]
        return node is not None and node.op_type in ("Relu", "Clip", "LeakyRelu", "PRelu")

    def _ends_branch(self, node: onnx.NodeProto) -> bool:
        """Tells whether a normalisation's output is added to another activation."""
        readers = self._readers.get(node.output[0], [])
        return node.op_type == "BatchNormalization" and any(n.op_type in ("Sum", "Add") for n in readers)

    def _expected_variance(self, node: onnx.NodeProto) -> Array | None:
        """Returns the variance of a convolution's output channels that a normalisation behind it expects, or None."""
        if node.op_type != "Conv":
            return None
        behind = (n for n in self._readers.get(node.output[0], []) if n.op_type == "BatchNormalization")
        return next((self._arrays[n.input[4]] for n in behind if n.input[4] in self._arrays), None)


def _fan_in(node: onnx.NodeProto, shape: Shape) -> int:
    """Counts the products that are summed to one output element."""
    if node.op_type == "Conv":
        return max(1, prod(shape[1:]))
    flipped = any(item.name == "transB" and item.i for item in node.attribute)
    return max(1, shape[-1] if flipped else shape[-2] if len(shape) > 1 else shape[0])

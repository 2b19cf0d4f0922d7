"""Weights that a model does not carry: the model zoo's graphs make them of one value, so seeded ones take their place.

Values keep their size through the network, so that logits stay within tens: weights are scaled as He et al., "Delving
Deep into Rectifiers", 2015, and by the variances that the model carries for a batch normalisation behind them; one that
ends a residual branch has scales around a half, so that a branch adds little to what it is added to.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from autotune.graph.frontends.onnx.file import array_of
from autotune.graph.ir import Array, TensorType
from autotune.graph.limits import Budget

Shape = tuple[int, ...]

_KEEPING = (
    *("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Transpose", "Dropout"),
    *("MaxPool", "AveragePool", "GlobalAveragePool", "Concat", "LRN"),
)
"""Operators behind which a value is rectified where their input is."""


def with_weights(model: onnx.ModelProto, seed: int = 0) -> onnx.ModelProto:
    """The model with seeded weights as initialisers where nodes make constant tensors of a known shape.

    Each depends on the seed, its name and its place in the model alone. Weights that the model carries stay as they
    are.
    """
    if not any(n.op_type == "ConstantOfShape" for n in model.graph.node):
        return model
    known = {tensor.name: array_of(tensor) for tensor in model.graph.initializer}
    made = [n for n in model.graph.node if n.op_type == "ConstantOfShape" and n.input[0] in known]
    users = _users(model)
    replaced = {n.output[0]: users[n.output[0]] for n in made if n.output[0] in users}
    if not replaced:
        return model
    out = onnx.ModelProto()
    out.CopyFrom(model)
    kept = [node for node in out.graph.node if node.output[0] not in replaced]
    del out.graph.node[:]
    out.graph.node.extend(kept)
    shapes = {n.output[0]: tuple(int(v) for v in known[n.input[0]]) for n in made}
    dtypes = {n.output[0]: _dtype(n) for n in made}
    places, budget = _Places(model, known), Budget()
    for name, (node, place) in replaced.items():
        budget.take(f"the weight {name!r}", TensorType(shapes[name], str(dtypes[name])))
        rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
        array = places.drawn(node, place, shapes[name], rng).astype(dtypes[name])
        out.graph.initializer.append(numpy_helper.from_array(array, name))
    return out


def _dtype(node: onnx.NodeProto) -> np.dtype[Any]:
    """Of what a node makes constant."""
    values = (numpy_helper.to_array(item.t).dtype for item in node.attribute if item.name == "value")
    return next(values, np.dtype(np.float32))


def _users(model: onnx.ModelProto) -> dict[str, tuple[onnx.NodeProto, int]]:
    """Value → the first node that takes it as a weight, and at which place; shape changes are seen through."""
    through: dict[str, str] = {}
    found: dict[str, tuple[onnx.NodeProto, int]] = {}
    for node in model.graph.node:
        if node.op_type in ("Unsqueeze", "Squeeze", "Identity"):
            through[node.output[0]] = through.get(node.input[0], node.input[0])
            continue
        for place, name in enumerate(node.input):
            if place in _DRAWS.get(node.op_type, {}):
                found.setdefault(through.get(name, name), (node, place))
    return found


_DRAWS: dict[str, dict[int, str]] = {
    "Conv": {1: "weight", 2: "small"},
    "Gemm": {1: "weight", 2: "small"},
    "MatMul": {1: "weight"},
    "BatchNormalization": {1: "scale", 2: "small", 3: "small", 4: "variance"},
    "Mul": {0: "scale", 1: "scale"},
    "Add": {0: "small", 1: "small"},
}
"""Operator → place of a weight → how it is drawn."""


class _Places:
    """Where weights stand in a model: what is in front of their node and behind it.

    Args:
        model: in topological order.
        known: tensors that it carries.
    """

    def __init__(self, model: onnx.ModelProto, known: Mapping[str, Array]) -> None:
        self._known = known
        self._makers = {name: node for node in model.graph.node for name in node.output}
        self._readers: dict[str, list[onnx.NodeProto]] = {}
        for node in model.graph.node:
            for name in node.input:
                self._readers.setdefault(name, []).append(node)

    def drawn(self, node: onnx.NodeProto, place: int, shape: Shape, rng: np.random.Generator) -> Array:
        """A weight of that shape for a place of a node."""
        kind = _DRAWS[node.op_type][place]
        if kind == "small":
            return rng.standard_normal(shape) * 0.1
        if kind == "variance":
            return rng.uniform(0.5, 1.5, shape)
        if kind == "scale":
            return rng.uniform(0.8, 1.2, shape) * (0.5 if self._ends_branch(node) else 1.0)
        gain = 2.0 if self._rectified(node.input[0]) else 1.0
        values: Array = rng.standard_normal(shape) * np.sqrt(gain / _fan_in(node, shape))
        expected = self._expected_variance(node)
        return values if expected is None else values * np.sqrt(expected).reshape(-1, *[1] * (len(shape) - 1))

    def _rectified(self, name: str) -> bool:
        """Whether a value is a rectifier's output, moved and pooled as it may be: half of its variance is gone."""
        while (node := self._makers.get(name)) is not None and node.op_type in _KEEPING:
            name = node.input[0]
        return node is not None and node.op_type in ("Relu", "Clip", "LeakyRelu", "PRelu")

    def _ends_branch(self, node: onnx.NodeProto) -> bool:
        """Whether a normalisation's output is added to another activation."""
        readers = self._readers.get(node.output[0], [])
        return node.op_type == "BatchNormalization" and any(n.op_type in ("Sum", "Add") for n in readers)

    def _expected_variance(self, node: onnx.NodeProto) -> Array | None:
        """Of each output channel of a convolution, where the model carries what a normalisation behind it expects."""
        if node.op_type != "Conv":
            return None
        behind = (n for n in self._readers.get(node.output[0], []) if n.op_type == "BatchNormalization")
        return next((self._known[n.input[4]] for n in behind if n.input[4] in self._known), None)


def _fan_in(node: onnx.NodeProto, shape: Shape) -> int:
    """Products that are added up to one output element."""
    if node.op_type == "Conv":
        return max(1, prod(shape[1:]))
    flipped = any(item.name == "transB" and item.i for item in node.attribute)
    return max(1, shape[-1] if flipped else shape[-2] if len(shape) > 1 else shape[0])

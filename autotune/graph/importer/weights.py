"""Weights that a model does not carry: the model zoo's graphs make them of one value, so seeded ones take their place.

Scaled as He et al., "Delving Deep into Rectifiers", 2015, so that activations keep their size through the network.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from math import prod

import numpy as np
import onnx
from onnx import numpy_helper

from autotune.graph.ir import Array

Shape = tuple[int, ...]


def with_weights(model: onnx.ModelProto, seed: int = 0) -> onnx.ModelProto:
    """The model with seeded weights as initialisers where nodes make constant tensors of a known shape.

    Each depends on the seed and its name alone. Weights that the model carries stay as they are.
    """
    known = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
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
    for name, (node, place) in replaced.items():
        rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
        array = _drawn(node, place, shapes[name], rng).astype(np.float32)
        out.graph.initializer.append(numpy_helper.from_array(array, name))
    return out


def _users(model: onnx.ModelProto) -> dict[str, tuple[onnx.NodeProto, int]]:
    """Value → the first node that takes it as a weight, and at which place; shape changes are seen through."""
    through: dict[str, str] = {}
    found: dict[str, tuple[onnx.NodeProto, int]] = {}
    for node in model.graph.node:
        if node.op_type in ("Unsqueeze", "Squeeze", "Identity"):
            through[node.output[0]] = through.get(node.input[0], node.input[0])
            continue
        for place, name in enumerate(node.input):
            if node.op_type in _DRAWS and place in _DRAWS[node.op_type]:
                found.setdefault(through.get(name, name), (node, place))
    return found


def _he(fan_in: int) -> Callable[[Shape, np.random.Generator], Array]:
    return lambda shape, rng: rng.standard_normal(shape) * np.sqrt(2 / fan_in)


def _small(shape: Shape, rng: np.random.Generator) -> Array:
    return rng.standard_normal(shape) * 0.1


def _around_one(shape: Shape, rng: np.random.Generator) -> Array:
    return rng.uniform(0.8, 1.2, shape)


def _variance(shape: Shape, rng: np.random.Generator) -> Array:
    return rng.uniform(0.5, 1.5, shape)


_DRAWS: dict[str, dict[int, Callable[[Shape, np.random.Generator], Array] | None]] = {
    "Conv": {1: None, 2: _small},
    "Gemm": {1: None, 2: _small},
    "MatMul": {1: None},
    "BatchNormalization": {1: _around_one, 2: _small, 3: _small, 4: _variance},
    "Mul": {0: _around_one, 1: _around_one},
    "Add": {0: _small, 1: _small},
}
"""Operator → place of a weight → how it is drawn; None: by its fan-in."""


def _drawn(node: onnx.NodeProto, place: int, shape: Shape, rng: np.random.Generator) -> Array:
    draw = _DRAWS[node.op_type][place]
    if draw is not None:
        return draw(shape, rng)
    if node.op_type == "Conv":
        return _he(max(1, prod(shape[1:])))(shape, rng)
    flipped = any(item.name == "transB" and item.i for item in node.attribute)
    return _he(shape[1] if flipped else shape[0])(shape, rng)

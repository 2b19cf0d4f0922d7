"""Weights for models that carry none: seeded values in place of tensors filled with one number."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from autotune.graph.ir import Array
from autotune.graph.onnx_model import infer, shapes

_MOVES = ("Reshape", "Unsqueeze", "Squeeze", "Identity", "Flatten", "Transpose")
_LAYERS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
_ROLES = {
    **{(op, 1): "weight" for op in _LAYERS},
    **{(op, 2): "bias" for op in ("Conv", "ConvTranspose", "Gemm")},
    ("BatchNormalization", 1): "scale",
    ("BatchNormalization", 2): "bias",
    ("BatchNormalization", 3): "mean",
    ("BatchNormalization", 4): "variance",
    ("LayerNormalization", 1): "scale",
    ("LayerNormalization", 2): "bias",
    ("Mul", 0): "scale",
    ("Mul", 1): "scale",
    ("Add", 0): "bias",
    ("Add", 1): "bias",
}


@dataclass(frozen=True)
class _Use:
    """What a tensor is for.

    Attributes:
        role: weight, bias, scale, mean or variance.
        fan_in: terms added up for one output element; 1 for what is no weight.
        branch: whether the output of its node is added to another activation.
    """

    role: str
    fan_in: int = 1
    branch: bool = False


def with_weights(model: onnx.ModelProto, seed: int = 0) -> onnx.ModelProto:
    """The model with seeded values where `ConstantOfShape` nodes fill weights, as in the graphs of the `onnx` package.

    Weights are normal with variance 2 / fan in (He et al., 2015); biases and means are small; scales lie around 1 and
    variances between 0.5 and 1.5. A batch normalisation that ends a residual branch has scales around 0.7, so that
    activations grow slowly with depth. Values depend on the seed and the tensor's name. Initialisers are
    kept as they are, and so is a model none of whose layers has such weights.

    Args:
        model: with fixed shapes.
        seed: of the values.
    """
    uses = _uses(model)
    if not any(use.role == "weight" for use in uses.values()):
        return model
    known = shapes(infer(model))
    filled = onnx.ModelProto()
    filled.CopyFrom(model)
    graph = filled.graph
    kept = [node for node in graph.node if not (node.op_type == "ConstantOfShape" and node.output[0] in uses)]
    for name, use in uses.items():
        graph.initializer.append(numpy_helper.from_array(_draw(use, known[name], _generator(seed, name)), name))
    del graph.node[:]
    graph.node.extend(kept)
    read = {name for node in kept for name in node.input}
    weights = [tensor for tensor in graph.initializer if tensor.name in read]
    del graph.initializer[:]
    graph.initializer.extend(weights)
    # Initialisers that are inputs, as IR version 3 has it, may be given by a caller and are thus no constants.
    named = {tensor.name for tensor in weights} | {tensor.name for tensor in model.graph.initializer}
    inputs = [value for value in graph.input if value.name not in named]
    del graph.input[:]
    graph.input.extend(inputs)
    filled.ir_version = max(filled.ir_version, 4)
    return filled


def _generator(seed: int, name: str) -> np.random.Generator:
    return np.random.default_rng([seed, crc32(name.encode())])


def _draw(use: _Use, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    if use.role == "weight":
        values = rng.normal(0, math.sqrt(2 / use.fan_in), shape)
    elif use.role == "scale":
        values = rng.uniform(0.8, 1.2, shape) * (math.sqrt(0.5) if use.branch else 1)
    elif use.role == "variance":
        values = rng.uniform(0.5, 1.5, shape)
    else:
        values = rng.normal(0, 0.05, shape)
    return values.astype(np.float32)


def _uses(model: onnx.ModelProto) -> dict[str, _Use]:
    """What the outputs of ConstantOfShape nodes are for, those whose use is known."""
    graph = model.graph
    known = shapes(infer(model))
    constants = {tensor.name for tensor in graph.initializer} | {
        n.output[0] for n in graph.node if n.op_type == "Constant"
    }
    readers: dict[str, list[tuple[onnx.NodeProto, int]]] = {}
    for node in graph.node:
        for place, name in enumerate(node.input):
            readers.setdefault(name, []).append((node, place))
    found: dict[str, _Use] = {}
    for node in graph.node:
        if node.op_type != "ConstantOfShape" or node.input[0] not in constants:
            continue
        value = next((a.t for a in node.attribute if a.name == "value"), None)
        if value is None or value.data_type == TensorProto.FLOAT:
            use = _use(node.output[0], readers, known)
            if use is not None:
                found[node.output[0]] = use
    return found


def _use(
    name: str,
    readers: Mapping[str, list[tuple[onnx.NodeProto, int]]],
    known: Mapping[str, tuple[int, ...]],
) -> _Use | None:
    for node, place in readers.get(name, []):
        if node.op_type in _MOVES and place == 0:
            use = _use(node.output[0], readers, known)
            if use is not None:
                return use
        elif (node.op_type, place) in _ROLES:
            role = _ROLES[node.op_type, place]
            if role == "weight":
                return _Use(role, _fan_in(node, known[name]))
            branch = any(n.op_type in ("Sum", "Add") for n, _ in readers.get(node.output[0], []))
            return _Use(role, branch=branch and node.op_type == "BatchNormalization")
    return None


def _fan_in(node: onnx.NodeProto, shape: tuple[int, ...]) -> int:
    attributes: dict[str, Any] = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    if node.op_type == "Conv":
        return math.prod(shape[1:])
    if node.op_type == "ConvTranspose":
        strides: list[int] = attributes.get("strides", [1])
        return max(1, shape[0] * math.prod(shape[2:]) // math.prod(strides))
    if len(shape) == 1 or attributes.get("transB", 0):
        return shape[-1]
    return shape[-2]

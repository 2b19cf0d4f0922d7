"""Weights for models that carry none: seeded values in place of tensors filled with one number."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from autotune.graph.ir import Array
from autotune.graph.onnx_model import infer, shapes

_MOVES = ("Reshape", "Unsqueeze", "Squeeze", "Identity", "Flatten", "Transpose")
_KEEP = (*_MOVES, "MaxPool", "AveragePool", "GlobalAveragePool", "Dropout", "Concat", "LRN")
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
        factor: of the values, of a weight's variance.
        spread: variance of each output channel that the batch normalisation behind a convolution expects, where the
            model says.
    """

    role: str
    fan_in: int = 1
    factor: float = 1.0
    spread: Array | None = None


def with_weights(model: onnx.ModelProto, seed: int = 0) -> onnx.ModelProto:
    """The model with initialisers in place of the `ConstantOfShape` nodes that `seeded` has values for.

    Args:
        model: with fixed shapes; stays as it is.
        seed: of the values.
    """
    values = seeded(model, seed)
    if not values:
        return model
    filled = onnx.ModelProto()
    filled.CopyFrom(model)
    graph = filled.graph
    kept = [node for node in graph.node if node.output[0] not in values]
    gone = {node.input[0] for node in graph.node if node.output[0] in values}
    gone -= {name for node in kept for name in node.input}
    del graph.node[:]
    graph.node.extend(kept)
    weights = [tensor for tensor in graph.initializer if tensor.name not in gone]
    # Initialisers that are inputs, as IR version 3 has it, may be given by a caller and are thus no constants.
    inputs = [value for value in graph.input if value.name not in {tensor.name for tensor in graph.initializer}]
    del graph.initializer[:], graph.input[:]
    graph.initializer.extend([*weights, *(numpy_helper.from_array(array, name) for name, array in values.items())])
    graph.input.extend(inputs)
    filled.ir_version = max(filled.ir_version, 4)
    return filled


def seeded(model: onnx.ModelProto, seed: int = 0) -> dict[str, Array]:
    """Values for the weights that `ConstantOfShape` nodes fill with one number, as in the graphs of the `onnx` package.

    Weights are normal with variance 2 / fan in behind a rectifier (He et al., 2015), else 1 / fan in, times the
    variance that a batch normalisation behind the layer expects where the model has it; biases and means are small;
    scales lie around 1 and variances between 0.5 and 1.5. A batch normalisation that ends a residual branch has scales
    around 0.5, so that activations grow slowly with depth. A tensor's values depend on the seed and its name alone.
    Initialisers have no place here: they stay as they are. So does a model none of whose layers has such weights.

    Args:
        model: with fixed shapes.
        seed: of the values.
    """
    uses = _uses(model)
    if not any(use.role == "weight" for use in uses.values()):
        return {}
    known = shapes(infer(model))
    return {name: _draw(use, known[name], _generator(seed, name)) for name, use in uses.items()}


def _generator(seed: int, name: str) -> np.random.Generator:
    return np.random.default_rng([seed, crc32(name.encode())])


def _draw(use: _Use, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    if use.role == "weight":
        values = rng.standard_normal(shape, np.float32)
        values *= np.float32(math.sqrt(use.factor / use.fan_in))
        if use.spread is not None:
            values *= np.sqrt(use.spread).reshape(-1, *[1] * (len(shape) - 1))
        return values
    low, high = {"scale": (0.8, 1.2), "variance": (0.5, 1.5)}.get(use.role, (-0.1, 0.1))
    return (rng.uniform(low, high, shape) * use.factor).astype(np.float32)


class _Uses:
    """Follows tensors of a graph to what they are for."""

    def __init__(self, model: onnx.ModelProto) -> None:
        graph = model.graph
        self._shapes = shapes(infer(model))
        self._weights = {tensor.name: tensor for tensor in graph.initializer}
        self._makers = {name: node for node in graph.node for name in node.output}
        self._readers: dict[str, list[tuple[onnx.NodeProto, int]]] = {}
        for node in graph.node:
            for place, name in enumerate(node.input):
                self._readers.setdefault(name, []).append((node, place))

    def find(self, name: str) -> _Use | None:
        """What a tensor is for, moved and reshaped as it may be."""
        for node, place in self._readers.get(name, []):
            if node.op_type in _MOVES and place == 0:
                use = self.find(node.output[0])
                if use is not None:
                    return use
            elif (node.op_type, place) in _ROLES:
                return self._role(_ROLES[node.op_type, place], node, name)
        return None

    def _role(self, role: str, node: onnx.NodeProto, name: str) -> _Use:
        after = [reader for reader, _ in self._readers.get(node.output[0], [])]
        if role == "weight":
            spread = next((self._variance(n) for n in after if n.op_type == "BatchNormalization"), None)
            gain = 2.0 if self._rectified(node.input[0]) else 1.0
            return _Use(role, _fan_in(node, self._shapes[name]), gain, spread if node.op_type == "Conv" else None)
        branch = node.op_type == "BatchNormalization" and any(n.op_type in ("Sum", "Add") for n in after)
        return _Use(role, factor=0.5 if branch and role == "scale" else 1.0)

    def _rectified(self, name: str) -> bool:
        """Whether a value is the output of a rectifier, moved and pooled as it may be."""
        while (node := self._makers.get(name)) is not None and node.op_type in _KEEP:
            name = node.input[0]
        return node is not None and node.op_type in ("Relu", "Clip", "LeakyRelu", "PRelu")

    def _variance(self, node: onnx.NodeProto) -> Array | None:
        tensor = self._weights.get(node.input[4])
        return None if tensor is None else numpy_helper.to_array(tensor)


def _uses(model: onnx.ModelProto) -> dict[str, _Use]:
    """What the outputs of ConstantOfShape nodes are for, those whose use is known."""
    uses, graph = _Uses(model), model.graph
    constants = {tensor.name for tensor in graph.initializer}
    constants |= {node.output[0] for node in graph.node if node.op_type == "Constant"}
    found: dict[str, _Use] = {}
    for node in graph.node:
        if node.op_type == "ConstantOfShape" and node.input[0] in constants:
            value = next((a.t for a in node.attribute if a.name == "value"), None)
            use = uses.find(node.output[0])
            if use is not None and (value is None or value.data_type == TensorProto.FLOAT):
                found[node.output[0]] = use
    return found


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

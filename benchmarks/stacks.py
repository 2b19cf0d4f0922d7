"""Stacks of layers of one kind as ONNX files, to time a layer in a precision without conversions around it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

from benchmarks.subjects import Subject

LAYERS = 8
"""Layers of a stack, each with a ReLU: the conversions at its ends are spread over them."""


def convolutions(size: int, channels: int, kernel: int = 3, groups: int = 1, seed: int = 0) -> onnx.ModelProto:
    """Builds convolutions of square images that keep their size and channels."""
    weights = (channels, channels // groups, kernel, kernel)
    attrs = {"kernel_shape": [kernel] * 2, "pads": [kernel // 2] * 4, "group": groups}
    return _stack((1, channels, size, size), weights, channels, "Conv", attrs, seed)


def products(rows: int, width: int, seed: int = 0) -> onnx.ModelProto:
    """Builds products of rows by square weights."""
    return _stack((rows, width), (width, width), width, "Gemm", {}, seed)


def _stack(
    shape: tuple[int, ...],
    weights: tuple[int, ...],
    biases: int,
    operator: str,
    attrs: Mapping[str, object],
    seed: int,
) -> onnx.ModelProto:
    rng, nodes, constants = np.random.default_rng(seed), [], []
    fan_in = weights[0] if operator == "Gemm" else int(np.prod(weights[1:]))
    for index in range(LAYERS):
        weight = rng.standard_normal(weights) * np.sqrt(2 / fan_in)  # activations keep their size under ReLU
        for name, array in (("w", weight), ("b", 0.1 * rng.standard_normal(biases))):
            constants.append(numpy_helper.from_array(array.astype(np.float32), f"{name}{index}"))
        nodes.append(helper.make_node(operator, [f"x{index}", f"w{index}", f"b{index}"], [f"y{index}"], **attrs))
        nodes.append(helper.make_node("Relu", [f"y{index}"], [f"x{index + 1}"]))
    x, y = (helper.make_tensor_value_info(f"x{index}", onnx.TensorProto.FLOAT, shape) for index in (0, LAYERS))
    graph = helper.make_graph(nodes, "stack", [x], [y], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


STACKS: Mapping[str, Callable[..., onnx.ModelProto]] = {
    f"{LAYERS}_conv3x3_56_64": partial(convolutions, 56, 64),
    f"{LAYERS}_conv3x3_14_256": partial(convolutions, 14, 256),
    f"{LAYERS}_conv3x3_17_97": partial(convolutions, 17, 97),
    f"{LAYERS}_conv1x1_28_256": partial(convolutions, 28, 256, 1),
    f"{LAYERS}_depthwise3x3_28_192": partial(convolutions, 28, 192, 3, 192),
    f"{LAYERS}_dense_128_768_768": partial(products, 128, 768),
    f"{LAYERS}_dense_1_1024_1024": partial(products, 1, 1024),
}
"""Name: layers, kind, size, channels or sizes → the model of a seed."""


@dataclass(frozen=True)
class Stack(Subject):
    """One of `STACKS`."""

    def file(self, folder: Path, seed: int) -> Path:
        """Writes its ONNX file into the folder."""
        path = folder / "stack.onnx"
        onnx.save(STACKS[self.name](seed=seed), path)
        return path

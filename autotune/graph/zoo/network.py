"""Helper for builders of ONNX models: nodes are added one by one, with seeded weights in the model itself."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

OPSET = 17


class Network:
    """An ONNX graph under construction.

    Args:
        name: name of the graph.
        seed: seed of the weights.
    """

    def __init__(self, name: str, seed: int) -> None:
        self.name = name
        self.rng = np.random.default_rng(seed)
        self._nodes: list[onnx.NodeProto] = []
        self._weights: list[onnx.TensorProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []

    def input(self, name: str, shape: tuple[int | str, ...], kind: int = TensorProto.FLOAT) -> str:
        """Adds an input and returns its name."""
        self._inputs.append(helper.make_tensor_value_info(name, kind, shape))
        return name

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        """Adds a node of one output and returns its name."""
        name = f"{op}_{len(self._nodes)}"
        self._nodes.append(helper.make_node(op, list(inputs), [name], name=name, **attributes))
        return name

    def constant(self, array: NDArray[Any]) -> str:
        """Adds a weight and returns its name."""
        name = f"weight_{len(self._weights)}"
        self._weights.append(numpy_helper.from_array(array, name))
        return name

    def number(self, value: float) -> str:
        """Adds a constant without dimensions."""
        return self.constant(np.array(value, np.float32))

    def normal(self, *shape: int, scale: float) -> str:
        """Adds a weight drawn from a normal distribution of mean 0 and standard deviation `scale`."""
        return self.constant((self.rng.standard_normal(shape) * scale).astype(np.float32))

    def uniform(self, *shape: int, low: float, high: float) -> str:
        """Adds a weight drawn from a uniform distribution."""
        return self.constant(self.rng.uniform(low, high, shape).astype(np.float32))

    def linear(self, x: str, inputs: int, outputs: int) -> str:
        """Adds x weight + bias."""
        product = self.add("MatMul", x, self.normal(inputs, outputs, scale=math.sqrt(1 / inputs)))
        return self.add("Add", product, self.normal(outputs, scale=0.1))

    def conv(
        self, x: str, inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1, gain: float = 2.0
    ) -> str:
        """Adds a convolution with batch normalisation; `gain` is 2 before a ReLU, 1 elsewhere (He et al., 2015)."""
        fan_in = inputs // groups * kernel**2
        weight = self.normal(outputs, inputs // groups, kernel, kernel, scale=math.sqrt(gain / fan_in))
        pads = [kernel // 2] * 4
        out = self.add("Conv", x, weight, strides=[stride] * 2, pads=pads, group=groups, kernel_shape=[kernel] * 2)
        scale, variance = (self.uniform(outputs, low=low, high=high) for low, high in ((0.8, 1.2), (0.5, 1.5)))
        shift, mean = (self.normal(outputs, scale=0.1) for _ in range(2))
        return self.add("BatchNormalization", out, scale, shift, mean, variance, epsilon=1e-5)

    def classifier(self, x: str, channels: int, classes: int) -> str:
        """Adds a mean over the image, then a dense layer."""
        flat = self.add("Flatten", self.add("GlobalAveragePool", x))
        weight = self.normal(classes, channels, scale=math.sqrt(1 / channels))
        return self.add("Gemm", flat, weight, self.normal(classes, scale=0.1), transB=1)

    def finish(self, output: str, shape: tuple[int | str, ...]) -> onnx.ModelProto:
        """Returns the model."""
        outputs = [helper.make_tensor_value_info(output, TensorProto.FLOAT, shape)]
        graph = helper.make_graph(self._nodes, self.name, self._inputs, outputs, self._weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)

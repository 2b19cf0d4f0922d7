"""Small ONNX graphs for tests."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def save_conv(
    path: Path,
    shape: tuple[object, ...] = (1, 8, 6, 6),
    weight: tuple[int, ...] = (16, 8, 3, 3),
    bias: bool = False,
    **attributes: object,
) -> Path:
    """Writes a model of one Conv on an input of `shape`."""
    weights = [numpy_helper.from_array(np.ones(weight, np.float32), "w")]
    if bias:
        weights.append(numpy_helper.from_array(np.ones(weight[:1], np.float32), "b"))
    node = helper.make_node("Conv", ["x", "w", "b"][: 2 + bias], ["y"], name="only", **attributes)
    return save(path, [node], {"x": shape}, weights)


def save(
    path: Path,
    nodes: list[onnx.NodeProto],
    inputs: dict[str, tuple[object, ...]],
    weights: list[onnx.TensorProto],
) -> Path:
    """Writes a model; its last node's first output is the output."""
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.FLOAT, None)],
        weights,
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    return path


def weight(name: str, *shape: int) -> onnx.TensorProto:
    """A constant of ones."""
    return numpy_helper.from_array(np.ones(shape, np.float32), name)

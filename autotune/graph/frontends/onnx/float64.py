"""ONNX models in float64: what decides where two computations in float32 disagree.

Node by node as ONNX defines them, by `nodes`, with every float32 widened. Neither the importer nor a graph nor a
kernel takes part, so that what agrees with it was imported right and computed right.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import onnx
from onnx import numpy_helper

from autotune.graph.frontends.onnx.nodes import run_node
from autotune.graph.ir import Array


def evaluate_in_float64(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """Outputs of a model by name, every float32 of it in float64.

    Args:
        model: with shapes inferred.
        feeds: inputs by name, as the model declares them.

    Raises:
        NodeError: a node that cannot be computed.
    """
    return _evaluated(model, feeds, _widened)


def evaluate_nodes(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """The same in the types of the model: what a node gives in 16-bit floats is rounded to them.

    Raises:
        NodeError: a node that cannot be computed.
    """
    return _evaluated(model, feeds, lambda array: array)


def _evaluated(model: onnx.ModelProto, feeds: Mapping[str, Array], kept: Callable[[Array], Array]) -> dict[str, Array]:
    """Values are dropped after they were read last, so that memory is that of the largest few."""
    opset = next(o.version for o in model.opset_import if o.domain in ("", "ai.onnx"))
    graph = model.graph
    outputs = [value.name for value in graph.output]
    last = {name: place for place, node in enumerate(graph.node) for name in node.input}
    values = {tensor.name: kept(numpy_helper.to_array(tensor)) for tensor in graph.initializer}
    values |= {name: kept(array) for name, array in feeds.items()}
    for place, node in enumerate(graph.node):
        found = run_node(node, values, opset)
        values.update((name, kept(array)) for name, array in found.items())
        for name in {*node.input, *found}:
            if last.get(name, -1) <= place and name not in outputs:
                values.pop(name, None)
    return {name: values[name] for name in outputs}


def _widened(array: Array) -> Array:
    return array.astype(np.float64) if array.dtype == np.float32 else array

"""Evaluation of ONNX models in float64, to decide between two computations in float32 that disagree.

`nodes` computes node by node as ONNX defines them, with every float32 widened. Importer, graph and kernels are not
involved, so that a result that agrees was imported and computed correctly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import onnx
from onnx import numpy_helper

from autotune.graph.frontends.onnx.nodes import run_node
from autotune.graph.ir import Array


def evaluate_in_float64(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """Computes the outputs of a model by name, with float64 in place of float32.

    Args:
        model: model with inferred shapes.
        feeds: inputs by name, as the model declares them.

    Raises:
        NodeError: a node cannot be computed.
    """
    return _evaluate(model, feeds, _widen)


def evaluate_nodes(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """Computes the outputs of a model in its own dtypes: 16-bit results of nodes are rounded to them.

    Raises:
        NodeError: a node cannot be computed.
    """
    return _evaluate(model, feeds, lambda array: array)


def _evaluate(
    model: onnx.ModelProto, feeds: Mapping[str, Array], convert: Callable[[Array], Array]
) -> dict[str, Array]:
    """Computes nodes in order and drops values after their last use, which bounds memory."""
    opset = next(o.version for o in model.opset_import if o.domain in ("", "ai.onnx"))
    graph = model.graph
    outputs = [value.name for value in graph.output]
    last = {name: step for step, node in enumerate(graph.node) for name in node.input}
    values = {tensor.name: convert(numpy_helper.to_array(tensor)) for tensor in graph.initializer}
    values |= {name: convert(array) for name, array in feeds.items()}
    for step, node in enumerate(graph.node):
        found = run_node(node, values, opset)
        values.update((name, convert(array)) for name, array in found.items())
        for name in {*node.input, *found}:
            if last.get(name, -1) <= step and name not in outputs:
                values.pop(name, None)
    return {name: values[name] for name in outputs}


def _widen(array: Array) -> Array:
    return array.astype(np.float64) if array.dtype == np.float32 else array

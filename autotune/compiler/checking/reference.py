"""Outputs of a model by another runtime: ONNX Runtime, or NumPy where it is missing or lacks an operator."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import onnx

from autotune.compiler.checking.process import NetworkProcess, RuntimeFailure, RuntimeLacksOperator
from autotune.graph.evaluate import evaluate
from autotune.graph.frontends.onnx.float64 import evaluate_nodes
from autotune.graph.frontends.onnx.nodes import NodeError
from autotune.graph.ir import Array, Graph


def reference_outputs(
    model: onnx.ModelProto, graph: Graph, feeds: Mapping[str, Array], threads: int, folder: Path
) -> tuple[str, dict[str, Array]]:
    """Computes the reference outputs of a model; returns the runtime's name, and the outputs by name.

    Args:
        model: model with its weights.
        graph: imported from it, before any pass.
        feeds: inputs by name.
        threads: number of threads of the runtime.
        folder: folder of the files that are handed over.

    Raises:
        RuntimeFailure: ONNX Runtime fails for another reason than an operator that it lacks.
    """
    file = folder / "model.onnx"
    onnx.save(model, file)
    try:
        with NetworkProcess("onnxruntime", threads, model=str(file)) as process:
            return "onnxruntime", process.infer(feeds)
    except RuntimeLacksOperator:
        pass
    except RuntimeFailure as error:
        if "No module named" not in str(error):
            raise
        return "numpy", numpy_outputs(model, graph, feeds)
    try:
        return "ONNX's evaluator", evaluate_nodes(model, feeds)
    except NodeError:
        return "numpy", numpy_outputs(model, graph, feeds)


def numpy_outputs(model: onnx.ModelProto, graph: Graph, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """Computes the outputs of a model by name, from the graph that was imported from it."""
    values = evaluate(graph, feeds)
    names = [value.name for value in model.graph.output]
    return {name: values[result] for name, result in zip(names, graph.outputs, strict=True)}

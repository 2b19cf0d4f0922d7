"""Errors of a network that another quantiser made, beside its model in floats."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from autotune.compiler.checking.comparison import relative_error
from autotune.graph.evaluate import compute, evaluate
from autotune.graph.ir import Array, Graph
from autotune.graph.quantise import ByteGraph
from autotune.graph.quantise.imported import SIGN


def errors_against_floats(graph: Graph, imported_layers: ByteGraph, feeds: Mapping[str, Array]) -> dict[str, float]:
    """Measures the error of each value that a model rounds to bytes, and of its outputs.

    Each is compared with the value that NumPy computes in floats from the bytes before it, so that a number which falls
    to the other side of a tie moves nothing else.

    Args:
        graph: graph of the model, optimised: it dequantises, computes in floats, and quantises.
        imported_layers: quantised network made of it.
        feeds: inputs.

    Returns:
        Errors by name: 0 for bytes off by one step at most, else their relative error; for outputs the relative error.
    """
    ours = evaluate(imported_layers.graph, feeds)
    stored: dict[str, Array] = {}
    for old, new in imported_layers.names.items():
        node = graph.node(old)
        if node is not None and node.type.shape == ours[new].shape:
            signed = old in imported_layers.signed
            stored[old] = (ours[new].astype(np.int16) - SIGN).astype(np.int8) if signed else ours[new]
    values = evaluate(graph, feeds, stored)
    errors = {}
    for name, bytes_ in stored.items():
        node = graph.node(name)
        assert node is not None
        wanted = compute(node, values)
        steps = int(np.abs(bytes_.astype(np.int64) - wanted.astype(np.int64)).max(initial=0))
        errors[name] = 0.0 if steps <= 1 else relative_error(bytes_, wanted)
    for mine, name in zip(imported_layers.graph.outputs, graph.outputs, strict=True):
        errors.setdefault(name, relative_error(ours[mine], values[name]))
    return errors

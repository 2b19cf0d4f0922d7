"""A network that another quantiser made, beside what its model says in floats."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from autotune.compiler.checking.comparison import relative_error
from autotune.graph.evaluate import compute, evaluate
from autotune.graph.ir import Array, Graph
from autotune.graph.quantise import Imported
from autotune.graph.quantise.imported import SIGN


def errors_against_floats(graph: Graph, imported: Imported, feeds: Mapping[str, Array]) -> dict[str, float]:
    """How wrong the values are that a model rounds to bytes, and its outputs.

    Each is held against what NumPy makes in floats of the bytes before it, so that a number which falls to the other
    side of a tie moves nothing else.

    Args:
        graph: the model's, optimised: it dequantises, computes in floats, and quantises.
        imported: made of it.
        feeds: inputs.

    Returns:
        Of bytes 0 up to one step, else their relative error; of outputs the relative error.
    """
    ours = evaluate(imported.graph, feeds)
    given: dict[str, Array] = {}
    for old, new in imported.names.items():
        node = graph.node(old)
        if node is not None and node.type.shape == ours[new].shape:
            signed = old in imported.signed
            given[old] = (ours[new].astype(np.int16) - SIGN).astype(np.int8) if signed else ours[new]
    values = evaluate(graph, feeds, given)
    errors = {}
    for name, found in given.items():
        node = graph.node(name)
        assert node is not None
        wanted = compute(node, values)
        steps = int(np.abs(found.astype(np.int64) - wanted.astype(np.int64)).max(initial=0))
        errors[name] = 0.0 if steps <= 1 else relative_error(found, wanted)
    for mine, name in zip(imported.graph.outputs, graph.outputs, strict=True):
        errors.setdefault(name, relative_error(ours[mine], values[name]))
    return errors

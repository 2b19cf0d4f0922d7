"""Integers of a network that is quantised: which are exact, and how wrong one is."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from autotune.compiler.checking.comparison import relative_error
from autotune.graph.evaluate import compute
from autotune.graph.ir import Array, Graph
from search_space.dtypes import FLOATS

EXACT = ("clip", "concat", "copy", "dequantise", "max_pool2d", "pad", "relu", "reshape", "slice", "transpose")
"""Operations that round no float: every order of computing them gives the same."""


def rounded_integers(graph: Graph) -> list[str]:
    """Integers of a graph that are made of floats which are computed, and not merely moved or compared."""
    computed: set[str] = set()
    for node in graph.nodes:
        if node.type.dtype in FLOATS and (node.op not in EXACT or computed.intersection(node.inputs)):
            computed.add(node.name)
    return [n.name for n in graph.nodes if n.type.dtype not in FLOATS and computed.intersection(n.inputs)]


def data_in_bytes(graph: Graph) -> list[str]:
    """Values made by nodes that products read as data which they round to bytes themselves."""
    given = {node.inputs[0] for node in graph.nodes if node.op == "dynamic_matmul"}
    return [node.name for node in graph.nodes if node.name in given]


def error_of(graph: Graph, name: str, found: Array, values: Mapping[str, Array], rounded: Collection[str]) -> float:
    """How wrong a value of a quantised network is.

    Args:
        graph: quantised.
        name: of the value.
        found: what the executable gives.
        values: of the reference, those of `rounded` as the executable gives them.
        rounded: names of the integers that are made of computed floats.

    Returns:
        The relative error of a float. Of an integer 0 where it is exact, else 1, whatever its size; of a byte that a
        float is rounded to 0 up to one step, else its relative error.
    """
    node = graph.node(name)
    if name in rounded and node is not None:
        wanted = compute(node, values)
        steps = int(np.max(np.abs(found.astype(np.int64) - wanted.astype(np.int64)), initial=0))
        return 0.0 if node.op in ("quantise", "quantise_linear") and steps <= 1 else relative_error(found, wanted)
    if found.dtype.kind == "f":
        return relative_error(found, values[name])
    return 0.0 if np.array_equal(found, values[name]) else 1.0

"""Integers of a quantised network: which are exact, and the error of the others."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from autotune.compiler.checking.comparison import relative_error
from autotune.graph.evaluate import compute
from autotune.graph.ir import Array, Graph
from search_space.dtypes import FLOATS

EXACT = ("clip", "concat", "copy", "dequantise", "max_pool2d", "pad", "relu", "reshape", "slice", "transpose")
"""Operations that round no float: their result does not depend on the order of computation."""


def rounded_integers(graph: Graph) -> list[str]:
    """Lists integers of a graph that are made of computed floats, and not only of moved or compared ones."""
    computed: set[str] = set()
    for node in graph.nodes:
        if node.type.dtype in FLOATS and (node.op not in EXACT or computed.intersection(node.inputs)):
            computed.add(node.name)
    return [n.name for n in graph.nodes if n.type.dtype not in FLOATS and computed.intersection(n.inputs)]


def data_in_bytes(graph: Graph) -> list[str]:
    """Lists values made by nodes that products read as data which they round to bytes themselves."""
    given = {node.inputs[0] for node in graph.nodes if node.op == "dynamic_matmul"}
    return [node.name for node in graph.nodes if node.name in given]


def compute_error(
    graph: Graph, name: str, actual: Array, values: Mapping[str, Array], rounded_names: Collection[str]
) -> float:
    """Computes the error of a value of a quantised network.

    Args:
        graph: quantised graph.
        name: name of the value.
        actual: value that the executable computes.
        values: values of the reference; those of `rounded_names` are the executable's.
        rounded_names: names of the integers that are made of computed floats.

    Returns:
        The relative error of a float; of an integer 0 where it is exact, else 1, whatever its size. For a byte rounded
        from a float, 0 if it is off by one step at most, else its relative error.
    """
    node = graph.node(name)
    if name in rounded_names and node is not None:
        wanted = compute(node, values)
        steps = int(np.max(np.abs(actual.astype(np.int64) - wanted.astype(np.int64)), initial=0))
        return 0.0 if node.op in ("quantise", "quantise_linear") and steps <= 1 else relative_error(actual, wanted)
    if actual.dtype.kind == "f":
        return relative_error(actual, values[name])
    return 0.0 if np.array_equal(actual, values[name]) else 1.0

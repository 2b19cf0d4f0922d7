"""Elimination of common subexpressions: equal values are computed once, and equal constants are stored once."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np

from autotune.graph.ir import Array, Graph, GraphBuilder, Node, rewrite

COMMUTATIVE = frozenset({"add", "multiply", "maximum", "minimum"})
"""Commutative operations."""

_SAMPLES = 64
"""Elements that are read to tell constants apart before all of their bytes are compared."""


def common_subexpressions(graph: Graph) -> Graph:
    """Merges nodes with the same operation and inputs, and constants of equal bytes."""
    seen: dict[Hashable, str] = {}
    same = _equal_constants(graph)

    def visit(builder: GraphBuilder, node: Node, inputs: list[str]) -> str | None:
        # Constants keep their names in the new graph: they are added before any node.
        read = [same.get(name, name) for name in inputs]
        given = sorted(read) if node.op in COMMUTATIVE else read
        key = (node.op, tuple(given), tuple(sorted(node.attrs.items())), node.type)
        if key not in seen:
            seen[key] = builder.add(node.op, read, node.name, **node.attrs)
        return seen[key]

    return rewrite(graph, visit)


def _equal_constants(graph: Graph) -> dict[str, str]:
    """Maps each constant that equals an earlier one, byte for byte, to the earlier one."""
    classes: dict[Hashable, list[str]] = {}
    same = {}
    for name, array in graph.constants.items():
        alike = classes.setdefault(_sample(array), [])
        first = next((other for other in alike if equal_bytes(array, graph.constants[other])), None)
        if first is None:
            alike.append(name)
        else:
            same[name] = first
    return same


def _sample(array: Array) -> Hashable:
    """Computes a key that equal constants share, without a read of all elements."""
    places = np.arange(0, array.size, max(1, array.size // _SAMPLES))
    shown: Any = array[np.unravel_index(places, array.shape)] if array.ndim else array
    return array.shape, str(array.dtype), shown.tobytes()


def equal_bytes(first: Array, second: Array) -> bool:
    """Tells whether two arrays of one shape and dtype hold the same bytes: NaN equals NaN, -0 differs from 0."""
    return np.array_equal(_bytes(first), _bytes(second))


def _bytes(array: Array) -> Array:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)

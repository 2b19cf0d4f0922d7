"""Computes alike values once, and keeps alike constants once."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np

from autotune.graph.ir import Array, Builder, Graph, Node, rewrite

COMMUTATIVE = frozenset({"add", "multiply", "maximum", "minimum"})
"""Operations whose operands may change places."""

_SAMPLES = 64


def common_subexpressions(graph: Graph) -> Graph:
    """The graph in which the same operation on the same values stands once, and equal constants are one."""
    seen: dict[Hashable, str] = {}
    same = _equal_constants(graph)

    def visit(builder: Builder, node: Node, inputs: list[str]) -> str | None:
        # Constants keep their names in the new graph: they are added before any node.
        read = [same.get(name, name) for name in inputs]
        given = sorted(read) if node.op in COMMUTATIVE else read
        key = (node.op, tuple(given), tuple(sorted(node.attrs.items())), node.type)
        if key not in seen:
            seen[key] = builder.add(node.op, read, node.name, **node.attrs)
        return seen[key]

    return rewrite(graph, visit)


def _equal_constants(graph: Graph) -> dict[str, str]:
    """Each constant that equals an earlier one byte for byte → that one."""
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
    """What equal constants have in common, found without reading all of them."""
    places = np.arange(0, array.size, max(1, array.size // _SAMPLES))
    shown: Any = array[np.unravel_index(places, array.shape)] if array.ndim else array
    return array.shape, str(array.dtype), shown.tobytes()


def equal_bytes(first: Array, second: Array) -> bool:
    """Whether two arrays of one shape and dtype hold the same bytes: not a number equals itself, -0 is not 0."""
    return np.array_equal(_bytes(first), _bytes(second))


def _bytes(array: Array) -> Array:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)

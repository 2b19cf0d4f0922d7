"""Values that operations compare, which must be stored alike where a graph rounds values to a 16-bit float.

The gradient of a maximum goes to the elements that equal it, and that of a limited value is 0 where the value equals a
limit. If one side of such a comparison were rounded and the other were not, equal numbers would differ. The
comparisons of an operation are read off its tensor expression, so that each operation is covered.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from autotune.graph.ir import Graph, Node
from autotune.graph.ops import find
from autotune.graph.types import TensorType
from search_space.dtypes import FLOATS, numpy_dtype
from search_space.ir.expr import walk
from search_space.schedule.state import operations
from search_space.tensor import Operation

COMPARISONS = frozenset({"eq", "ne", "lt", "le"})
"""Operators of expressions that compare two numbers."""

CHOICES = frozenset({"relu", "relu6", "maximum", "minimum", "max_pool2d"})
"""Operations whose results are elements of their inputs, 0 or 6; so are maxima and minima of a `reduce`."""

MOST_ELEMENTS = 1 << 16
"""Elements of the largest constant that is tested: a larger one, such as a weight, counts as not represented."""


@dataclass(frozen=True)
class Comparison:
    """A comparison of floats in an operation.

    Attributes:
        inputs: numbers of the inputs that both sides read, sorted.
        constants: constants on one side.
    """

    inputs: tuple[int, ...]
    constants: tuple[float, ...] = ()


def list_comparisons(graph: Graph, node: Node) -> tuple[Comparison, ...]:
    """Lists the comparisons of floats that a node makes, except those of one input with itself."""
    types = tuple(graph.type(name) for name in node.inputs)
    return _list_comparisons(node.op, tuple(node.attrs.items()), types)


@lru_cache(1024)
def _list_comparisons(
    name: str, items: tuple[tuple[str, Any], ...], types: tuple[TensorType, ...]
) -> tuple[Comparison, ...]:
    operation = find(name)
    if operation.moves or (operation.define is None and operation.workload is None):
        return ()
    *inputs, output = operation.tensors(dict(items), types)
    numbers = {tensor.op: number for number, tensor in enumerate(inputs)}
    read: dict[Operation, frozenset[int]] = {}
    comparisons: dict[Comparison, None] = {}
    for stage in operations([output], inputs):
        read[stage] = frozenset({numbers[stage]} if stage in numbers else ()).union(
            *(read[tensor.op] for tensor in stage.inputs)
        )
        for test in walk(stage.body) if stage.body is not None else ():
            if test.op not in COMPARISONS or test.args[0].dtype not in FLOATS:
                continue
            loads = [each.args[0].op for side in test.args for each in walk(side) if each.op == "load"]
            compared = frozenset[int]().union(*(read[op] for op in loads))
            constants = tuple(float(side.value) for side in test.args if side.is_const)
            if len(compared) + len(constants) > 1:
                comparisons[Comparison(tuple(sorted(compared)), constants)] = None
    return tuple(comparisons)


def stored_alike(graph: Graph, names: Collection[str], dtype: str) -> set[str]:
    """Removes values that an operation compares with numbers that are not rounded, from those that are stored rounded.

    A constant counts as rounded if the type represents it. Rounding keeps the order, so that a number beyond such a
    limit stays at it; a number within half a step of it may be rounded to it.

    Args:
        graph: graph in float32, after the passes.
        names: values in float32 to store in `dtype`.
        dtype: `bfloat16` or `float16`.
    """
    stored = set(names)
    while True:
        rounded = _list_rounded(graph, stored, dtype)
        unlike = set()
        for node in graph.nodes:
            if rounded.isdisjoint(node.inputs):
                continue
            for comparison in list_comparisons(graph, node):
                compared = {node.inputs[number] for number in comparison.inputs}
                if not (compared <= rounded and _represents(dtype, comparison.constants)):
                    unlike |= compared & rounded
        remaining = stored - _with_sources(graph, unlike)
        if remaining == stored:
            return stored
        stored = remaining


def _represents(dtype: str, numbers: Sequence[float] | np.ndarray[Any, Any]) -> bool:
    """Tells whether a 16-bit float represents numbers exactly; NaN counts as represented."""
    wide = np.asarray(numbers, np.float32)
    with np.errstate(over="ignore"):
        return bool(np.array_equal(wide.astype(numpy_dtype(dtype)).astype(np.float32), wide, equal_nan=True))


def _passes_on(node: Node) -> bool:
    """Tells whether the elements of a node's value are among those of its inputs, 0 and 6."""
    chooses = node.op in CHOICES or (node.op == "reduce" and node.attrs["reducer"] in ("max", "min"))
    return chooses or find(node.op).moves


def _list_rounded(graph: Graph, stored_names: Collection[str], dtype: str) -> set[str]:
    """Collects all values whose elements a 16-bit float represents if some are stored in it."""
    floats = [name for name in (*graph.inputs, *graph.constants) if graph.type(name).dtype in FLOATS]
    typed = {name for name in floats if graph.type(name).dtype == dtype}
    small = [
        (name, array)
        for name, array in graph.constants.items()
        if graph.type(name).dtype in FLOATS and array.size <= MOST_ELEMENTS
    ]
    rounded = typed | {name for name, array in small if _represents(dtype, array)}
    for node in graph.nodes:
        if node.type.dtype not in FLOATS:
            continue
        moved = find(node.op).moves and node.op != "cast"
        # A concatenation of parts in both types is rounded as a whole.
        if node.name in stored_names or node.type.dtype == dtype or (moved and not typed.isdisjoint(node.inputs)):
            typed.add(node.name)
        if node.name in typed or (_passes_on(node) and rounded.issuperset(node.inputs)):
            rounded.add(node.name)
    return rounded


def _with_sources(graph: Graph, names: Collection[str]) -> set[str]:
    """Adds to values those whose elements they have."""
    values = set(names)
    for node in reversed(graph.nodes):
        if node.name in values and _passes_on(node):
            values.update(node.inputs)
    return values

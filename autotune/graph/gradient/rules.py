"""Gradients of operations as graph operations, where that is better than a derivative of their expression.

A rule is a function of the builder, the node, the names of its inputs, and the gradient of its output. It returns the
gradient of each input, None where an input has none. Operations without a rule are differentiated by their expression.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np

from autotune.graph.ir import GraphBuilder, Node
from autotune.graph.ops import Kind, find
from autotune.graph.ops.base import widen_types
from autotune.graph.ops.derivatives import derivative_op, describe

Gradients = Sequence[str | None]
Rule = Callable[[GraphBuilder, Node, Sequence[str], str], Gradients]
RULES: dict[str, Rule] = {}
"""Operation → rule."""


def rule(*operations: str) -> Callable[[Rule], Rule]:
    """Registers the rule of operations."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(operations, function))
        return function

    return register


def differentiate_node(
    builder: GraphBuilder, node: Node, inputs: Sequence[str], slope: str, wanted: Sequence[bool]
) -> Gradients:
    """Adds the gradients of a node's inputs.

    Args:
        builder: builder of the graph that has the node's value.
        node: node to differentiate.
        inputs: names of its inputs.
        slope: gradient of its output, in float32 also where that is of 16 bits.
        wanted: flag for each input, whether it needs a gradient.

    Raises:
        ValueError: the operation has no gradient.
    """
    if node.op in RULES:
        shares = RULES[node.op](builder, node, inputs, slope)
        return [share if need else None for share, need in zip(shares, wanted, strict=True)]
    types = widen_types([builder.type(name) for name in inputs])
    values = [*inputs, node.name, slope]
    gradients: list[str | None] = []
    for number, need in enumerate(wanted):
        attrs = describe(node.op, node.attrs, types, number) if need else None
        if attrs is None:
            gradients.append(None)
            continue
        name = f"{node.name}_gradient"
        gradient = builder.add(derivative_op(node.op), [values[slot] for slot in attrs["reads"]], name, **attrs)
        if find(node.op).kind is Kind.elementwise:
            gradient = sum_to(builder, gradient, types[number].shape)
        gradients.append(gradient)
    return gradients


def sum_to(builder: GraphBuilder, value: str, shape: tuple[int, ...]) -> str:
    """Sums a value over the axes along which an input of a shape was broadcast to it."""
    own = builder.type(value).shape
    if own == shape:
        return value
    padded = (1,) * (len(own) - len(shape)) + shape
    axes = tuple(axis for axis, (n, m) in enumerate(zip(own, padded, strict=True)) if n != m)
    if len(axes) == len(own):  # a reduction leaves an axis
        value, axes = builder.add("reshape", [value], shape=(1, math.prod(own))), (1,)
    if axes:
        value = builder.add("reduce", [value], f"{value}_sum", axes=axes, reducer="sum")
    return value if builder.type(value).shape == shape else builder.add("reshape", [value], shape=shape)


@rule("add")
def _add(builder: GraphBuilder, node: Node, inputs: Sequence[str], slope: str) -> Gradients:
    return [sum_to(builder, slope, builder.type(name).shape) for name in inputs]


@rule("subtract")
def _subtract(builder: GraphBuilder, node: Node, inputs: Sequence[str], slope: str) -> Gradients:
    first, second = (builder.type(name).shape for name in inputs)
    return [sum_to(builder, slope, first), sum_to(builder, builder.add("negative", [slope]), second)]


@rule("reshape", "as_bytes")
def _reshape(builder: GraphBuilder, node: Node, inputs: Sequence[str], slope: str) -> Gradients:
    return [builder.add("reshape", [slope], shape=builder.type(inputs[0]).shape)]


@rule("copy", "cast")
def _copy(builder: GraphBuilder, node: Node, inputs: Sequence[str], slope: str) -> Gradients:
    return [slope]


@rule("transpose")
def _transpose(builder: GraphBuilder, node: Node, inputs: Sequence[str], slope: str) -> Gradients:
    return [builder.add("transpose", [slope], axes=tuple(int(axis) for axis in np.argsort(node.attrs["axes"])))]


@rule("broadcast_to")
def _broadcast_to(builder: GraphBuilder, node: Node, inputs: Sequence[str], slope: str) -> Gradients:
    return [sum_to(builder, slope, builder.type(inputs[0]).shape)]


@rule("concat")
def _concat(builder: GraphBuilder, node: Node, inputs: Sequence[str], slope: str) -> Gradients:
    axis, shape = node.attrs["axis"], node.type.shape
    extents = [builder.type(name).shape[axis] for name in inputs]
    parts = []
    for begin, extent in zip(itertools.accumulate(extents, initial=0), extents, strict=False):
        start = tuple(begin if at == axis else 0 for at in range(len(shape)))
        size = tuple(extent if at == axis else n for at, n in enumerate(shape))
        parts.append(builder.add("slice", [slope], begin=start, size=size))
    return parts


@rule("reduce")
def _reduce(builder: GraphBuilder, node: Node, inputs: Sequence[str], slope: str) -> Gradients:
    """Spreads the gradient of a sum or a mean over its elements; other reducers are differentiated by expression."""
    (source,) = inputs
    (kind,), reducer = widen_types([builder.type(source)]), node.attrs["reducer"]
    if reducer not in ("sum", "mean", "pivoted_mean"):
        attrs = describe(node.op, node.attrs, [kind], 0)
        if attrs is None:
            return [None]
        values = [source, node.name, slope]
        return [builder.add("gradient", [values[slot] for slot in attrs["reads"]], f"{node.name}_gradient", **attrs)]
    if reducer != "sum":  # a mean through differences from the first element has the gradient of a mean
        share = np.asarray(node.type.size / kind.size, node.type.dtype)
        slope = builder.add("multiply", [slope, builder.constant(share, "share")])
    ones = tuple(1 if axis in node.attrs["axes"] else n for axis, n in enumerate(kind.shape))
    return [builder.add("broadcast_to", [builder.add("reshape", [slope], shape=ones)], shape=kind.shape)]


@rule("gather")
def _gather(builder: GraphBuilder, node: Node, inputs: Sequence[str], slope: str) -> Gradients:
    """Sums the gradients of the rows with the same index."""
    table, indices = (builder.type(name) for name in inputs)
    axis, rank = node.attrs["axis"], len(indices.shape)
    if axis:  # the gathered axis comes first, as it does in the table then
        order = (*range(axis, axis + rank), *range(axis), *range(axis + rank, len(node.type.shape)))
        slope = builder.add("transpose", [slope], axes=order)
    total = builder.add("scatter_sum", [slope, inputs[1]], rows=table.shape[axis])
    if axis:
        total = builder.add("transpose", [total], axes=(*range(1, axis + 1), 0, *range(axis + 1, len(table.shape))))
    return [total, None]


@rule("power")
def _power(builder: GraphBuilder, node: Node, inputs: Sequence[str], slope: str) -> Gradients:
    """Computes y x^(y - 1), 0 for y = 0, and x^y log(x), which is 0 where x is 0 and y is not negative."""
    x, y = inputs
    one, none = (builder.constant(np.asarray(number, node.type.dtype)) for number in (1, 0))
    lower = builder.add("power", [x, builder.add("subtract", [y, one])])
    by_x = builder.add("multiply", [slope, builder.add("multiply", [y, lower])])
    by_x = builder.add("where", [builder.add("equal", [y, none]), none, by_x])
    by_y = builder.add("multiply", [slope, builder.add("multiply", [node.name, builder.add("log", [x])])])
    both = builder.add("logical_and", [builder.add("equal", [x, none]), builder.add("less_equal", [none, y])])
    by_y = builder.add("where", [both, none, by_y])
    return [sum_to(builder, by_x, builder.type(x).shape), sum_to(builder, by_y, builder.type(y).shape)]

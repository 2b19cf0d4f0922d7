"""Gradients of operations as graph operations, where that is better than a derivative of their expression.

Gradients may lack extents along which they are equal: they broadcast to the value. `sums.py` sums them over axes.

A rule is a function of the builder, the node, the names of its inputs, and the gradient of its output. It returns the
gradient of each input, None where an input has none; or None alone if it does not apply to the node. Nodes without a
rule are differentiated by their expression.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np

from autotune.graph.emitter import LabelledEmitter
from autotune.graph.gradient.sums import expand, sum_to, with_rank
from autotune.graph.ir import GraphBuilder, Node
from autotune.graph.ops import Kind, find
from autotune.graph.ops.base import widen_types
from autotune.graph.ops.derivatives import derivative_op, describe

Gradients = Sequence[str | None]
Rule = Callable[[GraphBuilder, Node, Sequence[str], str], Gradients | None]
RULES: dict[str, Rule] = {}
"""Operation → rule."""
_BROADCASTING: set[str] = set()
"""Operations whose rules take gradients that broadcast to the output."""

_LIMITS: dict[str, tuple[float, float | None]] = {"relu": (0.0, None), "relu6": (0.0, 6.0)}
"""Operation → lower and upper limit of its output."""


def rule(*operations: str, broadcasts: bool = False) -> Callable[[Rule], Rule]:
    """Registers the rule of operations.

    Args:
        operations: names of operations.
        broadcasts: whether the rule takes gradients of the output that broadcast to its shape.
    """

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(operations, function))
        if broadcasts:
            _BROADCASTING.update(operations)
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
        slope: gradient of its output, in float32 also where that is of 16 bits; it may broadcast to the output.
        wanted: flag for each input, whether it needs a gradient.

    Raises:
        ValueError: the operation has no gradient.
    """
    by_element = find(node.op).kind is Kind.elementwise
    if node.op not in _BROADCASTING and not (by_element and node.op not in RULES):
        slope = expand(builder, slope, node.type.shape)
    shares = RULES[node.op](builder, node, inputs, slope) if node.op in RULES else None
    if shares is not None:
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
        gradients.append(sum_to(builder, gradient, node.type.shape, types[number].shape) if by_element else gradient)
    return gradients


@rule("add", broadcasts=True)
def _add(builder: GraphBuilder, node: Node, inputs: Sequence[str], slope: str) -> Gradients:
    return [sum_to(builder, slope, node.type.shape, builder.type(name).shape) for name in inputs]


@rule("subtract", broadcasts=True)
def _subtract(builder: GraphBuilder, node: Node, inputs: Sequence[str], slope: str) -> Gradients:
    first, second = (sum_to(builder, slope, node.type.shape, builder.type(name).shape) for name in inputs)
    return [first, None if second is None else builder.add("negative", [second])]


@rule("negative", broadcasts=True)
def _negative(builder: GraphBuilder, node: Node, inputs: Sequence[str], slope: str) -> Gradients:
    return [builder.add("negative", [slope])]


@rule("multiply", broadcasts=True)
def _multiply(builder: GraphBuilder, node: Node, inputs: Sequence[str], slope: str) -> Gradients:
    first, second = inputs
    if first == second:
        emitter = LabelledEmitter(builder, f"{node.name}_gradient")
        twice = emitter.add("multiply", [slope, emitter.scalar(2.0, slope)])
        return [builder.add("multiply", [twice, first]), None]
    shares = []
    for name, other in ((first, second), (second, first)):
        share = builder.add("multiply", [slope, other])
        shares.append(sum_to(builder, share, node.type.shape, builder.type(name).shape))
    return shares


@rule("relu", "relu6", "clip")
def _limit(builder: GraphBuilder, node: Node, inputs: Sequence[str], slope: str) -> Gradients:
    """Reads the output, which later layers need, too: it is at a limit exactly if the input is at it or beyond."""
    limits = _LIMITS[node.op] if node.op in _LIMITS else (node.attrs["low"], node.attrs["high"])
    low, high = (limit if limit is not None and math.isfinite(limit) else None for limit in limits)
    return [builder.add("limited_slope", [slope, node.name], low=low, high=high)]


@rule("reshape", "as_bytes")
def _reshape(builder: GraphBuilder, node: Node, inputs: Sequence[str], slope: str) -> Gradients:
    return [builder.add("reshape", [slope], shape=builder.type(inputs[0]).shape)]


@rule("copy", "cast", broadcasts=True)
def _copy(builder: GraphBuilder, node: Node, inputs: Sequence[str], slope: str) -> Gradients:
    return [slope]


@rule("transpose", broadcasts=True)
def _transpose(builder: GraphBuilder, node: Node, inputs: Sequence[str], slope: str) -> Gradients:
    axes = tuple(int(axis) for axis in np.argsort(node.attrs["axes"]))
    return [builder.add("transpose", [with_rank(builder, slope, len(axes))], axes=axes)]


@rule("broadcast_to", broadcasts=True)
def _broadcast_to(builder: GraphBuilder, node: Node, inputs: Sequence[str], slope: str) -> Gradients:
    return [sum_to(builder, slope, node.type.shape, builder.type(inputs[0]).shape)]


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
def _reduce(builder: GraphBuilder, node: Node, inputs: Sequence[str], slope: str) -> Gradients | None:
    """Spreads the gradient of a sum or a mean over its elements; other reducers are differentiated by expression."""
    (source,) = inputs
    (kind,), reducer = widen_types([builder.type(source)]), node.attrs["reducer"]
    if reducer not in ("sum", "mean", "pivoted_mean"):
        return None
    if reducer != "sum":  # a mean through differences from the first element has the gradient of a mean
        emitter = LabelledEmitter(builder, f"{node.name}_gradient")
        slope = emitter.add("multiply", [slope, emitter.scalar(node.type.size / kind.size, slope)])
    ones = tuple(1 if axis in node.attrs["axes"] else n for axis, n in enumerate(kind.shape))
    return [builder.add("reshape", [slope], shape=ones)]


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
    emitter = LabelledEmitter(builder, f"{node.name}_gradient")
    one, none = (emitter.scalar(number, x) for number in (1.0, 0.0))
    lower = builder.add("power", [x, builder.add("subtract", [y, one])])
    by_x = builder.add("multiply", [slope, builder.add("multiply", [y, lower])])
    by_x = builder.add("where", [builder.add("equal", [y, none]), none, by_x])
    by_y = builder.add("multiply", [slope, builder.add("multiply", [node.name, builder.add("log", [x])])])
    both = builder.add("logical_and", [builder.add("equal", [x, none]), builder.add("less_equal", [none, y])])
    by_y = builder.add("where", [both, none, by_y])
    shape = node.type.shape
    return [sum_to(builder, share, shape, builder.type(name).shape) for name, share in ((x, by_x), (y, by_y))]

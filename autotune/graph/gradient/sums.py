"""Sums of gradients over axes along which an input was broadcast.

Factors that are equal along these axes are multiplied after the sum. So the gradients of a normalisation's mean,
deviation, scale and shift, which are sums of the same products, share two sums over the data.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from autotune.graph.emitter import LabelledEmitter
from autotune.graph.ir import GraphBuilder, Node

_MEANS = ("mean", "pivoted_mean")


def with_rank(builder: GraphBuilder, value: str, rank: int) -> str:
    """Reshapes a value to a rank by axes of one element in front."""
    shape = builder.type(value).shape
    return reshape(builder, value, (*[1] * (rank - len(shape)), *shape))


def reshape(builder: GraphBuilder, value: str, shape: tuple[int, ...]) -> str:
    """Reshapes a value, if it has another shape."""
    return value if builder.type(value).shape == shape else builder.add("reshape", [value], shape=shape)


def expand(builder: GraphBuilder, value: str, shape: tuple[int, ...]) -> str:
    """Broadcasts a value to a shape, if it has another one."""
    return value if builder.type(value).shape == shape else builder.add("broadcast_to", [value], shape=shape)


def sum_to(builder: GraphBuilder, value: str, full: tuple[int, ...], shape: tuple[int, ...]) -> str | None:
    """Sums a gradient over the axes along which an input of a shape was broadcast to the output.

    Args:
        builder: builder of the graph.
        value: gradient that broadcasts to the output.
        full: shape of the output.
        shape: shape of the input.

    Returns:
        Gradient that broadcasts to the input; None if it is 0.
    """
    padded = (*[1] * (len(full) - len(shape)), *shape)
    axes = tuple(axis for axis, (n, m) in enumerate(zip(full, padded, strict=True)) if n != m)
    value = with_rank(builder, value, len(full))
    total = _sum_over(builder, value, full, axes) if axes else value
    return None if total is None else reshape(builder, total, builder.type(total).shape[len(full) - len(shape) :])


def _sum_over(builder: GraphBuilder, value: str, full: tuple[int, ...], axes: Sequence[int]) -> str | None:
    """Sums a value, broadcast to a shape of its rank, over axes, which are left with one element."""
    factors, constants, negative = _list_factors(builder, value, full, axes)
    if len(factors) == 1 and _is_centred(builder, factors[0], axes):
        return None
    count = math.prod(full[axis] for axis in axes)
    if factors:
        product = factors[0]
        for factor in factors[1:]:
            product = builder.add("multiply", [product, factor])
        own = builder.type(product).shape
        count = math.prod(full[axis] for axis in axes if own[axis] == 1)
        total = _reduce(builder, product, [axis for axis in axes if own[axis] != 1])
    else:
        total, *constants = constants
    for constant in constants:
        total = builder.add("multiply", [total, constant])
    if count != 1:
        total = builder.add("multiply", [total, LabelledEmitter(builder, "count").scalar(count, total)])
    return builder.add("negative", [total]) if negative else total


def _list_factors(
    builder: GraphBuilder, value: str, full: tuple[int, ...], axes: Sequence[int]
) -> tuple[list[str], list[str], bool]:
    """Lists the factors of a product, of the rank of `full`: those that vary along axes in order of names, the others.

    The last result tells whether the product of all is negated.
    """
    waiting, varying, constants, negative = [value], [], [], False
    while waiting:
        name = waiting.pop()
        kind, node = builder.type(name), builder.node(name)
        if all(extent == 1 for extent in _at(kind.shape, len(full), axes)):
            constants.append(with_rank(builder, name, len(full)))
        elif node is not None and node.op == "negative":
            waiting, negative = [*waiting, node.inputs[0]], not negative
        elif node is not None and node.op == "multiply":
            waiting += node.inputs
        else:
            varying.append(with_rank(builder, name, len(full)))
    return sorted(varying), constants, negative


def _at(shape: tuple[int, ...], rank: int, axes: Sequence[int]) -> list[int]:
    """Returns the extents of a shape along axes of a value of a rank that it broadcasts to."""
    padded = (*[1] * (rank - len(shape)), *shape)
    return [padded[axis] for axis in axes]


def _is_centred(builder: GraphBuilder, value: str, axes: Sequence[int]) -> bool:
    """Tells whether a value is another one less its mean over axes: its sum over these is 0."""
    node = builder.node(value)
    if node is None or node.op != "subtract":
        return False
    data, mean = node.inputs
    source: Node | None = builder.node(mean)
    while source is not None and source.op == "reshape":
        source = builder.node(source.inputs[0])
    if source is None or source.op != "reduce" or source.attrs["reducer"] not in _MEANS or source.inputs[0] != data:
        return False
    shape = node.type.shape
    ones = [1 if axis in axes else n for axis, n in enumerate(shape)]
    same = set(source.attrs["axes"]) == set(axes)
    return same and _at(builder.type(mean).shape, len(shape), range(len(shape))) == ones


def _reduce(builder: GraphBuilder, value: str, axes: Sequence[int]) -> str:
    """Sums a value over axes, which are left with one element."""
    own = builder.type(value).shape
    ones = tuple(1 if axis in axes else n for axis, n in enumerate(own))
    if not axes:
        return value
    if len(axes) == len(own):  # a reduction leaves an axis
        value, axes = builder.add("reshape", [value], shape=(1, math.prod(own))), (1,)
    return reshape(builder, builder.add("reduce", [value], f"{value}_sum", axes=tuple(axes), reducer="sum"), ones)

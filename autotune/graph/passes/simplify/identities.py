"""Element-wise operations that have no effect, or that a simpler operation replaces."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from autotune.graph.ir import Node
from autotune.graph.passes.site import Rule, Site, orders
from search_space.dtypes import FLOATS, numpy_dtype

_NEUTRAL: Mapping[str, float] = {"add": 0.0, "subtract": 0.0, "multiply": 1.0, "divide": 1.0}
_COMMUTATIVE = ("add", "multiply", "maximum", "minimum")
_BOUNDS: Mapping[str, tuple[float, float]] = {
    "relu": (0.0, math.inf),
    "relu6": (0.0, 6.0),
    "sigmoid": (0.0, 1.0),
    "tanh": (-1.0, 1.0),
    "exp": (0.0, math.inf),
    "abs": (0.0, math.inf),
    "softmax": (0.0, 1.0),
}
"""Lower and upper bounds of the results of operations."""

_SUMS = ("conv1d", "conv2d", "conv3d", "depthwise_conv2d", "conv2d_transpose", "matmul", "batch_matmul")
"""Operations whose results are sums of products."""

_KEEPING = ("reshape", "transpose", "slice", "max_pool2d")
"""Operations whose results lie within the bounds of their inputs."""


def neutral_operand(site: Site, node: Node) -> str | None:
    """Simplifies x + 0, x - 0, x * 1, x / 1, and affine steps with a scale of 1 or a shift of 0.

    All are exact, for NaN and infinities too, except that -0 + 0 is 0: see `_is_no_sum`.
    """
    if node.op in _NEUTRAL:
        for source, other in list(orders(node))[: 2 if node.op in _COMMUTATIVE else 1]:
            if site.scalar(other) != _NEUTRAL[node.op] or site.type(source) != node.type:
                continue
            if node.op in ("multiply", "divide") or _is_no_sum(site, source, other, node.op == "subtract"):
                return site.new[source]
    if node.op == "affine" and site.type(node.inputs[0]) == node.type:
        source, scale, shift = (site.new[name] for name in node.inputs)
        one, zero = site.scalar(node.inputs[1]) == 1, site.scalar(node.inputs[2]) == 0
        zero = zero and _is_no_sum(site, node.inputs[0], node.inputs[2])
        if one and zero:
            return source
        if one or zero:
            return site.add("add" if one else "multiply", [source, shift if one else scale], node.name)
    return None


def _is_no_sum(site: Site, source: str, zeros: str, negative: bool = False) -> bool:
    """Tells whether a sum with zeros, or a difference from them, equals its other operand even if that is -0.

    This holds for integers, and for floats if -0 is added or 0 subtracted. The sign of a zero that is a sum of products
    is arbitrary, so these qualify, too.
    """
    array = site.array(zeros)
    assert array is not None
    if array.dtype.kind not in "fV" or site.node(source, *_SUMS) is not None:
        return True
    return bool((np.signbit(array.astype(np.float32)) != negative).all())


_OF_EQUALS: Mapping[str, bool] = {"subtract": False, "equal": True, "less_equal": True, "less": False}
"""Results of integer operations with two equal operands, which need not be read."""


def equal_operands(site: Site, node: Node) -> str | None:
    """Replaces a choice between a value and itself by it, and integer operations on equal operands by their result.

    Floats are excluded: NaN differs from itself, and infinities give NaN.
    """
    if node.op == "where" and node.inputs[1] == node.inputs[2]:
        value = site.new[node.inputs[1]]
    elif node.op in _OF_EQUALS and node.inputs[0] == node.inputs[1]:
        dtype = site.type(node.inputs[0]).dtype
        if dtype in FLOATS:
            return None
        kind = numpy_dtype(node.type.dtype)
        value = site.builder.constant(np.full((1,) * len(node.type.shape), _OF_EQUALS[node.op], kind))
    else:
        return None
    if site.builder.type(value).shape == node.type.shape:
        return value
    return site.add("broadcast_to", [value], node.name, shape=node.type.shape)


def bounds(site: Site, name: str) -> tuple[float, float]:
    """Computes bounds of an old value."""
    node = site.graph.node(name)
    if node is None:
        return -math.inf, math.inf
    if node.op in _KEEPING or node.op == "avg_pool2d":
        low, high = bounds(site, node.inputs[0])
        # Padding of an average may count as zeros, and rounding may exceed the largest input.
        return (low, high) if node.op in _KEEPING else (0.0 if low >= 0 else -math.inf, 0.0 if high <= 0 else math.inf)
    if node.op == "clip":
        return min(node.attrs["low"], node.attrs["high"]), node.attrs["high"]
    if node.op == "concat":
        each = [bounds(site, name) for name in node.inputs]
        return min(low for low, _ in each), max(high for _, high in each)
    return _BOUNDS.get(node.op, (-math.inf, math.inf))


def _limits(site: Site, node: Node) -> tuple[str, float, float] | None:
    """Returns the operand and limits of a node that limits it from below, above or both; no limit is NaN."""
    if node.op == "clip":
        low, high = node.attrs["low"], node.attrs["high"]
        # If the lower limit is the greater one, all numbers become the upper one.
        return None if math.isnan(low) or math.isnan(high) else (node.inputs[0], min(low, high), high)
    if node.op in ("relu", "relu6"):
        return node.inputs[0], *_BOUNDS[node.op]
    if node.op in ("maximum", "minimum"):
        for source, other in orders(node):
            limit = site.scalar(other)
            if limit is not None and not math.isnan(limit) and site.type(source) == node.type:
                return (source, limit, math.inf) if node.op == "maximum" else (source, -math.inf, limit)
    return None


def simplify_limits(site: Site, node: Node) -> str | None:
    """Simplifies limits: drops redundant ones, merges consecutive ones, writes (0, inf) as relu and (0, 6) as relu6."""
    limits = _limits(site, node)
    if limits is None or not node.type.dtype.startswith("float"):
        return None
    source, low, high = limits
    before = site.graph.node(source)
    inner = _limits(site, before) if before is not None and site.private(source) else None
    if inner is not None:
        name, inner_low, inner_high = inner
        if max(low, inner_low) <= min(high, inner_high):
            source, low, high = name, max(low, inner_low), min(high, inner_high)
    least, most = bounds(site, source)
    # A limit that the operand satisfies already is dropped.
    wanted = (-math.inf if low <= least else low), (math.inf if high >= most else high)
    op = _operation(*wanted)
    if (op, source, *wanted) == (node.op, *limits):
        return None
    if op is not None:
        return _limit(site, node, op, source, wanted)
    same = site.type(source) == node.type
    return site.new[source] if same else site.add("cast", [site.new[source]], node.name, dtype=node.type.dtype)


def _operation(low: float, high: float) -> str | None:
    """Returns the simplest operation with two limits; None if both are infinite."""
    if low == -math.inf:
        return None if high == math.inf else "minimum"
    if high == math.inf:
        return "relu" if low == 0 else "maximum"
    return "relu6" if (low, high) == (0.0, 6.0) else "clip"


def _limit(site: Site, node: Node, op: str, source: str, limits: tuple[float, float]) -> str:
    inputs, (low, high) = [site.new[source]], limits
    if op == "clip":
        return site.add(op, inputs, node.name, low=low, high=high)
    if op in ("minimum", "maximum"):
        limit = np.full((1,) * min(1, len(node.type.shape)), high if op == "minimum" else low)
        inputs.append(site.constant(limit, node.name))
    return site.add(op, inputs, node.name)


RULES: tuple[Rule, ...] = (neutral_operand, equal_operands, simplify_limits)

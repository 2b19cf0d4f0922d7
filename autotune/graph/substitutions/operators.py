"""The operations of terms: what each computes, how it stands in a graph, and when a node of a graph is one.

Attributes of windows are not part of a term: all convolutions of a rule slide alike, and so do all pools of one kind.
They are bound where a rule is matched (`Windows`). Operations on weights alone cost nothing: they are folded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from autotune.graph.ir import Array, Attributes, Builder, Node, TensorType
from autotune.graph.passes.site import pair
from search_space.operators.windows import Window, both_sides, padded, taps

Pair = tuple[int, int]


@dataclass(frozen=True)
class Sliding:
    """How convolutions slide."""

    stride: Pair = (1, 1)
    padding: Pair | tuple[Pair, Pair] = (1, 1)
    dilation: Pair = (1, 1)

    def wider(self, steps: int) -> Sliding | None:
        """With so many dilated steps more of padding; None where less than nothing is left."""
        more = [steps * d for d in self.dilation]
        (top, bottom), (left, right) = both_sides(self.padding)
        height, width = (top + more[0], bottom + more[0]), (left + more[1], right + more[1])
        if min(*height, *width) < 0:
            return None
        alike = height[0] == height[1] and width[0] == width[1]
        return replace(self, padding=(height[0], width[0]) if alike else (height, width))

    @property
    def attrs(self) -> dict[str, Any]:
        """As a node has them."""
        return {"stride": self.stride, "padding": self.padding, "dilation": self.dilation}


@dataclass(frozen=True)
class Pooling:
    """How pools slide."""

    kernel: Pair = (3, 3)
    stride: Pair = (1, 1)
    padding: Pair = (1, 1)
    count_padding: bool = False


@dataclass(frozen=True)
class Windows:
    """What the operations of a rule have for attributes; None where the source has no such operation."""

    conv: Sliding | None = None
    depthwise: Sliding | None = None
    max_pool: Pooling | None = None
    avg_pool: Pooling | None = None

    def bind(self, name: str, value: Sliding | Pooling | None) -> Windows | None:
        """With one more bound; None where another one is, or the value is none."""
        held = getattr(self, name)
        if value is None or (held is not None and held != value):
            return None
        changed: dict[str, Any] = {name: value}
        return replace(self, **changed)


@dataclass(frozen=True)
class Shape:
    """What is known of an operand: its shape, and whether it is a weight."""

    shape: tuple[int, ...]
    weight: bool

    @property
    def rank(self) -> int:
        """Dimensions."""
        return len(self.shape)


Matched = Callable[[Node, Windows], Windows | None]


@dataclass(frozen=True)
class TermOp:
    """One operation of terms.

    Attributes:
        name: in terms.
        arity: operands.
        accepts: shapes of operands → whether they go together as rules mean it, which is stricter than graphs are.
        compute: windows and float64 arrays → the value; None where a window does not fit its data.
        emit: adds it to a graph; the name of the value.
        op: of the nodes in graphs that may be one; none for what is made of weights alone and stands in targets only.
        matches: node and windows bound so far → windows bound then, or None where the node is no such operation.
        commutative: operands may change places.
        window: field of `Windows` that it reads.
        roles: for each operand, w where it must be a weight, x where it must be none, n where its
            extent alone is read, and a dot for any.
    """

    name: str
    arity: int
    accepts: Callable[..., bool]
    compute: Callable[..., Array | None]
    emit: Callable[..., str]
    op: str = ""
    matches: Matched = lambda node, windows: windows
    commutative: bool = False
    window: str = ""
    roles: str = "..."


FIRST, LAST = "first", "last"
"""Operations that read their second operand for its last extent alone."""


def _same(first: Shape, second: Shape) -> bool:
    return first.shape == second.shape and first.weight == second.weight


def _is_data(*operands: Shape, rank: int) -> bool:
    return all(not o.weight and o.rank == rank for o in operands)


def _vector(x: Shape, v: Shape) -> bool:
    """One number for each place of the last axis."""
    return v.weight and v.rank == 1 and x.rank > 1 and x.shape[-1:] == v.shape


def _node(op: str, **attrs: Any) -> Callable[..., str]:
    def emit(builder: Builder, names: Sequence[str], windows: Windows) -> str:
        return builder.add(op, names, **attrs)

    return emit


def _elementwise(name: str, compute: Callable[..., Array], op: str = "") -> TermOp:
    return TermOp(name, 2, _same, lambda w, x, y: compute(x, y), _node(op or name), op or name, commutative=True)


def _by_vector(name: str, op: str, compute: Callable[..., Array]) -> TermOp:
    return TermOp(name, 2, _vector, lambda w, x, v: compute(x, v), _node(op), op, roles=".w")


# Joining and cutting.


def _concat(name: str, axis: int, accepts: Callable[[Shape, Shape], bool], matched: bool = True) -> TermOp:
    def fits(x: Shape, y: Shape) -> bool:
        if x.rank != y.rank or x.weight != y.weight or x.rank < -axis or not accepts(x, y):
            return False
        at = axis % x.rank
        return x.shape[:at] + x.shape[at + 1 :] == y.shape[:at] + y.shape[at + 1 :]

    def matches(node: Node, windows: Windows) -> Windows | None:
        return windows if node.attrs["axis"] == axis % len(node.type.shape) else None

    compute: Callable[..., Array] = lambda w, x, y: np.concatenate((x, y), axis)  # noqa: E731
    return TermOp(name, 2, fits, compute, _node("concat", axis=axis), "concat" if matched else "", matches)


def _cut(name: str, at_end: bool) -> TermOp:
    """The first or last places of the last axis, as many as the last axis of the second operand has."""

    def accepts(x: Shape, like: Shape) -> bool:
        return not x.weight and x.rank > 1 and like.shape[-1] < x.shape[-1]

    def compute(windows: Windows, x: Array, like: Array) -> Array:
        size = like.shape[-1]
        return x[..., x.shape[-1] - size :] if at_end else x[..., :size]

    def emit(builder: Builder, names: Sequence[str], windows: Windows) -> str:
        shape, size = builder.type(names[0]).shape, builder.type(names[1]).shape[-1]
        begin = shape[-1] - size if at_end else 0
        return builder.add("slice", [names[0]], begin=(*(0 for _ in shape[1:]), begin), size=(*shape[:-1], size))

    return TermOp(name, 2, accepts, compute, emit, "slice", roles="xn")


# Convolutions.


def _window(x: Array, kernel: Sequence[int], by: Sliding | Pooling) -> Window:
    dilation = by.dilation if isinstance(by, Sliding) else (1, 1)
    return Window(tuple(x.shape[1:3]), tuple(kernel), by.stride, both_sides(by.padding), dilation)


def _sliding(node: Node) -> Sliding:
    return Sliding(pair(node.attrs["stride"]), pair(node.attrs["padding"]), pair(node.attrs["dilation"]))


def _convolved(x: Array, w: Array, by: Sliding) -> Array | None:
    window = _window(x, w.shape[:2], by)
    if min(window.output) < 1:
        return None
    return np.asarray(sum(tap @ w[place] for place, tap in taps(padded(x, window), window)))


def _depthwise(x: Array, w: Array, by: Sliding) -> Array | None:
    window = _window(x, w.shape[:2], by)
    if min(window.output) < 1:
        return None
    return np.asarray(sum(tap * w[place] for place, tap in taps(padded(x, window), window)))


def _convolution(name: str, steps: int) -> TermOp:
    """A convolution; the wide one has one step more of padding on each side."""

    def by(windows: Windows) -> Sliding:
        assert windows.conv is not None
        found = windows.conv.wider(steps)
        assert found is not None
        return found

    def emit(builder: Builder, names: Sequence[str], windows: Windows) -> str:
        return builder.add("conv2d", names, **by(windows).attrs)

    def matches(node: Node, windows: Windows) -> Windows | None:
        if node.attrs["groups"] != 1:
            return None
        return windows.bind("conv", _sliding(node).wider(-steps))

    compute: Callable[..., Array | None] = lambda w, x, k: _convolved(x, k, by(w))  # noqa: E731
    return TermOp(name, 2, _fits_weight, compute, emit, "conv2d", matches, window="conv", roles="xw")


def _fits_weight(x: Shape, w: Shape) -> bool:
    return _is_data(x, rank=4) and w.weight and w.rank == 4 and x.shape[3] == w.shape[2]


_POINT = Sliding(padding=(0, 0))


def _is_point(x: Shape, w: Shape) -> bool:
    return _fits_weight(x, w) and w.shape[:2] == (1, 1)


def _matches_point(node: Node, windows: Windows) -> Windows | None:
    by = _sliding(node)
    return windows if node.attrs["groups"] == 1 and (by.stride, by.padding) == (_POINT.stride, _POINT.padding) else None


def _emit_depthwise(builder: Builder, names: Sequence[str], windows: Windows) -> str:
    assert windows.depthwise is not None
    return builder.add("depthwise_conv2d", names, **windows.depthwise.attrs)


def _emit_enlarged(builder: Builder, names: Sequence[str], windows: Windows) -> str:
    return builder.add("pad", names, before=(1, 1, 0, 0), after=(1, 1, 0, 0))


def _emit_rows(builder: Builder, names: Sequence[str], windows: Windows) -> str:
    """A weight with each input channel times a number."""
    (size,) = builder.type(names[1]).shape
    return builder.add("multiply", [names[0], builder.add("reshape", [names[1]], shape=(size, 1))])


def _emit_chained(builder: Builder, names: Sequence[str], windows: Windows) -> str:
    """The weight of a convolution and of one of single pixels after it."""
    first, second = (builder.type(name).shape for name in names)
    rows = builder.add("reshape", [names[0]], shape=(first[0] * first[1] * first[2], first[3]))
    out = builder.add("matmul", [rows, builder.add("reshape", [names[1]], shape=second[2:])])
    return builder.add("reshape", [out], shape=(*first[:3], second[3]))


def _emit_through(builder: Builder, names: Sequence[str], windows: Windows) -> str:
    """A vector times a matrix."""
    size, columns = builder.type(names[1]).shape
    out = builder.add("matmul", [builder.add("reshape", [names[0]], shape=(1, size)), names[1]])
    return builder.add("reshape", [out], shape=(columns,))


# Pools.


def _pool(name: str, op: str) -> TermOp:
    def compute(windows: Windows, x: Array) -> Array | None:
        by = getattr(windows, name)
        window = _window(x, by.kernel, by)
        if min(window.output) < 1:
            return None
        if name == "max_pool":
            return np.asarray(np.max([tap for _, tap in taps(padded(x, window, -np.inf), window)], axis=0))
        ones = np.ones_like(x[:1, :, :, :1])
        total, count = (np.sum([tap for _, tap in taps(padded(a, window), window)], axis=0) for a in (x, ones))
        return np.asarray(total / (by.kernel[0] * by.kernel[1] if by.count_padding else count))

    def emit(builder: Builder, names: Sequence[str], windows: Windows) -> str:
        by = getattr(windows, name)
        attrs: Attributes = {"kernel": by.kernel, "stride": by.stride, "padding": by.padding}
        return builder.add(op, names, **attrs, **({} if name == "max_pool" else {"count_padding": by.count_padding}))

    def matches(node: Node, windows: Windows) -> Windows | None:
        a = node.attrs
        by = Pooling(pair(a["kernel"]), pair(a["stride"]), pair(a["padding"]), a.get("count_padding", False))
        return windows.bind(name, by)

    return TermOp(name, 1, lambda x: _is_data(x, rank=4), compute, emit, op, matches, window=name, roles="x")


def _matrices(x: Shape, y: Shape) -> bool:
    return x.rank == y.rank == 2 and x.shape[1] == y.shape[0]


_ALL: tuple[TermOp, ...] = (
    TermOp("relu", 1, lambda x: not x.weight, lambda w, x: np.maximum(x, 0), _node("relu"), "relu"),
    _elementwise("add", np.add),
    _elementwise("mul", np.multiply, "multiply"),
    _by_vector("add_v", "add", np.add),
    _by_vector("mul_v", "multiply", np.multiply),
    TermOp(
        "affine",
        3,
        lambda x, s, t: not x.weight and _vector(x, s) and _vector(x, t),
        lambda w, x, s, t: x * s + t,
        _node("affine"),
        "affine",
        roles="xww",
    ),
    _concat("concat", -1, lambda x, y: True),
    _concat("concat_batch", 0, lambda x, y: not x.weight),
    _concat("concat_in", -2, lambda x, y: x.weight and x.rank in (2, 4), matched=False),
    _cut(FIRST, at_end=False),
    _cut(LAST, at_end=True),
    _convolution("conv", 0),
    _convolution("conv_wide", 1),
    TermOp(
        "point",
        2,
        _is_point,
        lambda w, x, k: _convolved(x, k, _POINT),
        _node("conv2d", **_POINT.attrs),
        "conv2d",
        _matches_point,
        roles="xw",
    ),
    TermOp(
        "depthwise",
        2,
        lambda x, w: _is_data(x, rank=4) and w.weight and w.rank == 3 and x.shape[3] == w.shape[2],
        lambda w, x, k: _depthwise(x, k, w.depthwise),
        _emit_depthwise,
        "depthwise_conv2d",
        lambda node, windows: windows.bind("depthwise", _sliding(node)),
        window="depthwise",
        roles="xw",
    ),
    _pool("max_pool", "max_pool2d"),
    _pool("avg_pool", "avg_pool2d"),
    TermOp("matmul", 2, _matrices, lambda w, x, y: x @ y, _node("matmul"), "matmul"),
    TermOp("turn", 1, lambda x: x.rank == 2, lambda w, x: x.T, _node("transpose", axes=(1, 0)), "transpose"),
    TermOp(
        "enlarge",
        1,
        lambda w: w.weight and w.rank == 4,
        lambda _, w: np.pad(w, ((1, 1), (1, 1), (0, 0), (0, 0))),
        _emit_enlarged,
        roles="ww",
    ),
    TermOp(
        "scale_in",
        2,
        lambda w, v: w.weight and v.weight and w.rank in (2, 4) and v.shape == w.shape[-2:-1],
        lambda _, w, v: w * v[:, None],
        _emit_rows,
        roles="ww",
    ),
    TermOp(
        "chain",
        2,
        lambda w, u: w.weight and u.weight and w.rank == u.rank == 4 and u.shape[:3] == (1, 1, w.shape[3]),
        lambda _, w, u: w @ u[0, 0],
        _emit_chained,
        roles="ww",
    ),
    TermOp(
        "through",
        2,
        lambda v, w: v.weight and w.weight and v.rank == 1 and w.rank == 2 and v.shape == w.shape[:1],
        lambda _, v, w: v @ w,
        _emit_through,
        roles="ww",
    ),
)

TERM_OPS: dict[str, TermOp] = {op.name: op for op in _ALL}
"""Operations of terms by name."""

COMMUTATIVE = frozenset(op.name for op in _ALL if op.commutative)
"""Names of those whose operands may change places."""


def shape_of(kind: TensorType, weight: bool) -> Shape:
    """What rules see of a value of a graph."""
    return Shape(kind.shape, weight)

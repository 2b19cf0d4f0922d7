"""Operations of terms: which operands each accepts, which nodes it emits, and which nodes of a graph match it.

Attributes of windows are not part of a term: all convolutions of a rule slide alike, and so do all pools of one kind.
They are bound where a rule is matched (`Windows`). Operations on weights alone cost nothing: they are folded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from autotune.graph.ir import Attributes, GraphBuilder, Node
from autotune.graph.passes.site import pair
from search_space.operators.windows import both_sides

Pair = tuple[int, int]


@dataclass(frozen=True)
class Sliding:
    """Attributes of a convolution's window."""

    stride: Pair = (1, 1)
    padding: Pair | tuple[Pair, Pair] = (1, 1)
    dilation: Pair = (1, 1)

    def wider(self, steps: int) -> Sliding | None:
        """Pads by so many more dilated steps; None if a padding would be negative."""
        more = [steps * d for d in self.dilation]
        (top, bottom), (left, right) = both_sides(self.padding)
        height, width = (top + more[0], bottom + more[0]), (left + more[1], right + more[1])
        if min(*height, *width) < 0:
            return None
        alike = height[0] == height[1] and width[0] == width[1]
        return replace(self, padding=(height[0], width[0]) if alike else (height, width))

    @property
    def attrs(self) -> dict[str, Any]:
        """Attributes of the node."""
        return {"stride": self.stride, "padding": self.padding, "dilation": self.dilation}


@dataclass(frozen=True)
class Pooling:
    """Attributes of a pool's window."""

    kernel: Pair = (3, 3)
    stride: Pair = (1, 1)
    padding: Pair = (1, 1)
    count_padding: bool = False


@dataclass(frozen=True)
class Windows:
    """Attributes of a rule's windows by kind of operation; None if the source has no such operation."""

    conv: Sliding | None = None
    depthwise: Sliding | None = None
    max_pool: Pooling | None = None
    avg_pool: Pooling | None = None

    def bind(self, name: str, value: Sliding | Pooling | None) -> Windows | None:
        """Binds one window; None if another is bound to the name, or `value` is None."""
        held = getattr(self, name)
        if value is None or (held is not None and held != value):
            return None
        changed: dict[str, Any] = {name: value}
        return replace(self, **changed)


@dataclass(frozen=True)
class Shape:
    """Shape of an operand, and whether it is a weight."""

    shape: tuple[int, ...]
    weight: bool

    @property
    def rank(self) -> int:
        """Dimensions."""
        return len(self.shape)


MatchWindows = Callable[[Node, Windows], Windows | None]


@dataclass(frozen=True)
class TermOp:
    """One operation of terms.

    Attributes:
        name: name in terms.
        arity: operands.
        accepts: shapes of operands → whether they go together as rules mean it, which is stricter than graphs are.
        emit: adds it to a graph; the name of the value.
        op: node's operation in graphs; empty for operations on weights, which occur in targets only.
        matches: node and windows bound so far → windows bound then, or None where the node does not match.
        window: field of `Windows` that it reads.
    """

    name: str
    arity: int
    accepts: Callable[..., bool]
    emit: Callable[..., str]
    op: str = ""
    matches: MatchWindows = lambda node, windows: windows
    window: str = ""


FIRST, LAST = "first", "last"
"""Operations that read their second operand for its last extent alone."""


def _same(first: Shape, second: Shape) -> bool:
    return first.shape == second.shape and first.weight == second.weight


def _is_data(*operands: Shape, rank: int) -> bool:
    return all(not o.weight and o.rank == rank for o in operands)


def _vector(x: Shape, v: Shape) -> bool:
    """Tells whether an operand has one number for each index of the other's last axis."""
    return v.weight and v.rank == 1 and x.rank > 1 and x.shape[-1:] == v.shape


def _is_affine(x: Shape, scale: Shape, shift: Shape) -> bool:
    return not x.weight and _vector(x, scale) and _vector(x, shift)


def _node(op: str, **attrs: Any) -> Callable[..., str]:
    def emit(builder: GraphBuilder, names: Sequence[str], windows: Windows) -> str:
        return builder.add(op, names, **attrs)

    return emit


# Joining and cutting.


def _concat(name: str, axis: int, accepts: Callable[[Shape, Shape], bool], matched: bool = True) -> TermOp:
    def fits(x: Shape, y: Shape) -> bool:
        if x.rank != y.rank or x.weight != y.weight or x.rank < -axis or not accepts(x, y):
            return False
        at = axis % x.rank
        return x.shape[:at] + x.shape[at + 1 :] == y.shape[:at] + y.shape[at + 1 :]

    def matches(node: Node, windows: Windows) -> Windows | None:
        return windows if node.attrs["axis"] == axis % len(node.type.shape) else None

    return TermOp(name, 2, fits, _node("concat", axis=axis), "concat" if matched else "", matches)


def _cut(name: str, at_end: bool) -> TermOp:
    """Makes the slice of the first or last elements of the last axis, as many as the second operand's last axis has."""

    def accepts(x: Shape, like: Shape) -> bool:
        return not x.weight and x.rank > 1 and like.shape[-1] < x.shape[-1]

    def emit(builder: GraphBuilder, names: Sequence[str], windows: Windows) -> str:
        shape, size = builder.type(names[0]).shape, builder.type(names[1]).shape[-1]
        begin = shape[-1] - size if at_end else 0
        return builder.add("slice", [names[0]], begin=(*(0 for _ in shape[1:]), begin), size=(*shape[:-1], size))

    return TermOp(name, 2, accepts, emit, "slice")


# Convolutions.


def _sliding(node: Node) -> Sliding:
    return Sliding(pair(node.attrs["stride"]), pair(node.attrs["padding"]), pair(node.attrs["dilation"]))


def _convolution(name: str, steps: int) -> TermOp:
    """Makes a convolution; the wide one has one step more of padding on each side."""

    def by(windows: Windows) -> Sliding:
        assert windows.conv is not None
        found = windows.conv.wider(steps)
        assert found is not None
        return found

    def emit(builder: GraphBuilder, names: Sequence[str], windows: Windows) -> str:
        return builder.add("conv2d", names, **by(windows).attrs)

    def matches(node: Node, windows: Windows) -> Windows | None:
        if node.attrs["groups"] != 1:
            return None
        return windows.bind("conv", _sliding(node).wider(-steps))

    return TermOp(name, 2, _fits_weight, emit, "conv2d", matches, window="conv")


def _fits_weight(x: Shape, w: Shape) -> bool:
    return _is_data(x, rank=4) and w.weight and w.rank == 4 and x.shape[3] == w.shape[2]


POINT = Sliding(padding=(0, 0))
"""Window of 1×1 convolutions."""


def _is_point(x: Shape, w: Shape) -> bool:
    return _fits_weight(x, w) and w.shape[:2] == (1, 1)


def _matches_point(node: Node, windows: Windows) -> Windows | None:
    by = _sliding(node)
    return windows if node.attrs["groups"] == 1 and (by.stride, by.padding) == (POINT.stride, POINT.padding) else None


def _emit_depthwise(builder: GraphBuilder, names: Sequence[str], windows: Windows) -> str:
    assert windows.depthwise is not None
    return builder.add("depthwise_conv2d", names, **windows.depthwise.attrs)


def _emit_enlarged(builder: GraphBuilder, names: Sequence[str], windows: Windows) -> str:
    return builder.add("pad", names, before=(1, 1, 0, 0), after=(1, 1, 0, 0))


def _emit_rows(builder: GraphBuilder, names: Sequence[str], windows: Windows) -> str:
    """Multiplies each input channel of a weight by a number."""
    (size,) = builder.type(names[1]).shape
    return builder.add("multiply", [names[0], builder.add("reshape", [names[1]], shape=(size, 1))])


def _emit_chained(builder: GraphBuilder, names: Sequence[str], windows: Windows) -> str:
    """Computes the weight of a convolution followed by a 1×1 convolution."""
    first, second = (builder.type(name).shape for name in names)
    rows = builder.add("reshape", [names[0]], shape=(first[0] * first[1] * first[2], first[3]))
    out = builder.add("matmul", [rows, builder.add("reshape", [names[1]], shape=second[2:])])
    return builder.add("reshape", [out], shape=(*first[:3], second[3]))


def _emit_through(builder: GraphBuilder, names: Sequence[str], windows: Windows) -> str:
    """Multiplies a vector by a matrix."""
    size, columns = builder.type(names[1]).shape
    out = builder.add("matmul", [builder.add("reshape", [names[0]], shape=(1, size)), names[1]])
    return builder.add("reshape", [out], shape=(columns,))


# Pools.


def _pool(name: str, op: str) -> TermOp:
    def emit(builder: GraphBuilder, names: Sequence[str], windows: Windows) -> str:
        by = getattr(windows, name)
        attrs: Attributes = {"kernel": by.kernel, "stride": by.stride, "padding": by.padding}
        return builder.add(op, names, **attrs, **({} if name == "max_pool" else {"count_padding": by.count_padding}))

    def matches(node: Node, windows: Windows) -> Windows | None:
        a = node.attrs
        by = Pooling(pair(a["kernel"]), pair(a["stride"]), pair(a["padding"]), a.get("count_padding", False))
        return windows.bind(name, by)

    return TermOp(name, 1, lambda x: _is_data(x, rank=4), emit, op, matches, window=name)


def _matrices(x: Shape, y: Shape) -> bool:
    return x.rank == y.rank == 2 and x.shape[1] == y.shape[0]


_ALL: tuple[TermOp, ...] = (
    TermOp("relu", 1, lambda x: not x.weight, _node("relu"), "relu"),
    TermOp("add", 2, _same, _node("add"), "add"),
    TermOp("mul", 2, _same, _node("multiply"), "multiply"),
    TermOp("add_v", 2, _vector, _node("add"), "add"),
    TermOp("mul_v", 2, _vector, _node("multiply"), "multiply"),
    TermOp("affine", 3, _is_affine, _node("affine"), "affine"),
    _concat("concat", -1, lambda x, y: True),
    _concat("concat_batch", 0, lambda x, y: not x.weight),
    _concat("concat_in", -2, lambda x, y: x.weight and x.rank in (2, 4), matched=False),
    _cut(FIRST, at_end=False),
    _cut(LAST, at_end=True),
    _convolution("conv", 0),
    _convolution("conv_wide", 1),
    TermOp("point", 2, _is_point, _node("conv2d", **POINT.attrs), "conv2d", _matches_point),
    TermOp(
        "depthwise",
        2,
        lambda x, w: _is_data(x, rank=4) and w.weight and w.rank == 3 and x.shape[3] == w.shape[2],
        _emit_depthwise,
        "depthwise_conv2d",
        lambda node, windows: windows.bind("depthwise", _sliding(node)),
        window="depthwise",
    ),
    _pool("max_pool", "max_pool2d"),
    _pool("avg_pool", "avg_pool2d"),
    TermOp("matmul", 2, _matrices, _node("matmul"), "matmul"),
    TermOp("turn", 1, lambda x: x.rank == 2, _node("transpose", axes=(1, 0)), "transpose"),
    TermOp("enlarge", 1, lambda w: w.weight and w.rank == 4, _emit_enlarged),
    TermOp(
        "scale_in",
        2,
        lambda w, v: w.weight and v.weight and w.rank in (2, 4) and v.shape == w.shape[-2:-1],
        _emit_rows,
    ),
    TermOp(
        "chain",
        2,
        lambda w, u: w.weight and u.weight and w.rank == u.rank == 4 and u.shape[:3] == (1, 1, w.shape[3]),
        _emit_chained,
    ),
    TermOp(
        "through",
        2,
        lambda v, w: v.weight and w.weight and v.rank == 1 and w.rank == 2 and v.shape == w.shape[:1],
        _emit_through,
    ),
)

TERM_OPS: dict[str, TermOp] = {op.name: op for op in _ALL}
"""Operations of terms by name."""

"""Values that are stored with their axes in another order than in the graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from autotune.graph.ir import Array, GraphBuilder

Axes = tuple[int, ...]


@dataclass(frozen=True)
class PermutedValue:
    """A transposed value: axis i of the value is axis `axes[i]` of the array `source`."""

    source: str
    axes: Axes

    @property
    def plain(self) -> bool:
        """Tells whether the value is stored in its own order."""
        return self.axes == identity(len(self.axes))


@dataclass(frozen=True)
class Rows:
    """A matrix with the rows of `source`, (rows, columns), and its columns in another order.

    Attributes:
        source: name of the stored matrix.
        extents: extents of a stored row as an array of several axes.
        axes: order of these axes in the value.
    """

    source: str
    extents: tuple[int, ...]
    axes: Axes


Form = PermutedValue | Rows


def identity(rank: int) -> Axes:
    """Returns the permutation that keeps every axis in place."""
    return tuple(range(rank))


def compose(first: Sequence[int], then: Sequence[int]) -> Axes:
    """Composes transpositions: by `first`, then by `then`."""
    return tuple(first[a] for a in then)


def inverse(axes: Sequence[int]) -> Axes:
    """Returns the axes of the inverse transposition."""
    return tuple(axes.index(i) for i in range(len(axes)))


def keeps_order(shape: Sequence[int], axes: Sequence[int]) -> bool:
    """Tells whether a transposition of `shape` by `axes` moves only axes of extent 1, and thus no element."""
    moved = [a for a in axes if shape[a] != 1]
    return moved == sorted(moved)


def transpose(builder: GraphBuilder, name: str, axes: Axes, new_name: str = "") -> str:
    """Transposes `name` by the cheapest means: nothing, a new constant, a reshape, or a transpose."""
    shape = builder.type(name).shape
    if axes == identity(len(shape)):
        return name
    array = builder.array(name)
    if array is not None:
        return builder.constant(array.transpose(axes), new_name or name)
    if keeps_order(shape, axes):
        return builder.add("reshape", [name], new_name, shape=tuple(shape[a] for a in axes))
    return builder.add("transpose", [name], new_name, axes=axes)


def trim(array: Array) -> Array:
    """Removes leading axes of extent 1, which broadcasting restores."""
    shape = array.shape
    while len(shape) > 1 and shape[0] == 1:
        shape = shape[1:]
    return array.reshape(shape)


def rows_in_order(weight: Array, rows: Rows) -> Array:
    """Permutes a (columns, n) weight so that its product with the stored rows is the same."""
    n = weight.shape[1]
    extents = [rows.extents[a] for a in rows.axes]
    back = inverse(rows.axes)
    if weight.T.flags.c_contiguous:  # PyTorch's layout of weights: their rows stay contiguous
        turned = weight.T.reshape(n, *extents).transpose(0, *(axis + 1 for axis in back))
        return np.ascontiguousarray(turned).reshape(n, prod(extents)).T
    return np.ascontiguousarray(weight.reshape(*extents, n).transpose(*back, len(back))).reshape(prod(extents), n)


@dataclass(frozen=True)
class RewrittenReshape:
    """A reshape of a transposed value, rewritten as a transposition after a reshape.

    Attributes:
        inner: transposition of the stored value that may be needed first.
        shape: shape that its result is reshaped to.
        axes: transposition after the reshape.
    """

    inner: Axes
    shape: tuple[int, ...]
    axes: Axes


def through_reshape(source_shape: Sequence[int], axes: Sequence[int], shape: Sequence[int]) -> RewrittenReshape:
    """Moves a transposition by `axes` of an array of shape `source_shape` behind a reshape to `shape`.

    Both shapes are cut into the shortest runs of axes with equal products. A run moves as a whole; the inner
    transposition restores the order within a run.
    """
    value = [source_shape[a] for a in axes]
    # Runs in memory order: then only axes out of order within a run have to move.
    order = sorted(runs(value, shape), key=lambda run: min((axes[i] for i in run[0] if value[i] != 1), default=-1))
    inner = [axes[i] for run, _ in order for i in run]
    if keeps_order(source_shape, inner):
        inner = list(range(len(source_shape)))
    outer = [j for _, run in order for j in run]
    return RewrittenReshape(tuple(inner), tuple(shape[j] for j in outer), inverse(outer))


def runs(source: Sequence[int], target: Sequence[int]) -> list[tuple[list[int], list[int]]]:
    """Cuts the axes of two shapes of equal size into the shortest runs of equal products.

    An axis of extent 1 belongs to the run of the axis before it, so that every run has axes on both sides. If both
    shapes begin with such axes, such as a batch of one, these form a run of their own and stay in front.
    """
    before, after = ([i for i in range(len(shape)) if prod(shape[: i + 1]) == 1] for shape in (source, target))
    pieces: list[tuple[list[int], list[int]]] = [(before, after)] if before and after else []
    left, right = ([i for i, extent in enumerate(shape) if extent != 1] for shape in (source, target))
    while left:
        run: tuple[list[int], list[int]] = ([left.pop(0)], [right.pop(0)])
        while (a := prod(source[i] for i in run[0])) != (b := prod(target[j] for j in run[1])):
            if a < b:
                run[0].append(left.pop(0))
            else:
                run[1].append(right.pop(0))
        pieces.append(run)
    pieces = pieces or [([], [])]
    for side, shape in enumerate((source, target)):
        known = {axis for run in pieces for axis in run[side]}
        for axis in (i for i, extent in enumerate(shape) if extent == 1 and i not in known):
            run = next((run for run in reversed(pieces) if run[side] and min(run[side]) < axis), pieces[0])
            run[side].append(axis)
    return [(sorted(left), sorted(right)) for left, right in pieces]

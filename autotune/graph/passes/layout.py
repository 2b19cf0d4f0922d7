"""Values that are kept with their axes in another order than the graph says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from autotune.graph.ir import Array, Builder

Axes = tuple[int, ...]


@dataclass(frozen=True)
class Permuted:
    """A value that is `stored` transposed by `axes`: its axis i is axis `axes[i]` of what is stored."""

    stored: str
    axes: Axes

    @property
    def plain(self) -> bool:
        """Whether the value is what is stored."""
        return self.axes == identity(len(self.axes))


@dataclass(frozen=True)
class Rows:
    """A matrix whose rows are those of `stored`, (rows, columns), with the columns in another order.

    Attributes:
        stored: the matrix.
        extents: of a row as it is stored, an array of several axes.
        axes: the order in which the value has those axes.
    """

    stored: str
    extents: tuple[int, ...]
    axes: Axes


Form = Permuted | Rows


def identity(rank: int) -> Axes:
    """Every axis in its place."""
    return tuple(range(rank))


def compose(first: Sequence[int], then: Sequence[int]) -> Axes:
    """The axes of a transposition by `first` and one by `then` after it."""
    return tuple(first[a] for a in then)


def inverse(axes: Sequence[int]) -> Axes:
    """The axes of the transposition that undoes this one."""
    return tuple(axes.index(i) for i in range(len(axes)))


def keeps_order(shape: Sequence[int], axes: Sequence[int]) -> bool:
    """Whether a transposition of `shape` by `axes` moves axes of extent 1 alone, and so no element."""
    moved = [a for a in axes if shape[a] != 1]
    return moved == sorted(moved)


def transposed(builder: Builder, name: str, axes: Axes, wanted: str = "") -> str:
    """`name` transposed: itself, a constant, a reshape or a transpose, whichever is least."""
    shape = builder.type(name).shape
    if axes == identity(len(shape)):
        return name
    array = builder.array(name)
    if array is not None:
        return builder.constant(array.transpose(axes), wanted or name)
    if keeps_order(shape, axes):
        return builder.add("reshape", [name], wanted, shape=tuple(shape[a] for a in axes))
    return builder.add("transpose", [name], wanted, axes=axes)


def trimmed(array: Array) -> Array:
    """Without leading axes of extent 1, which broadcasting restores."""
    shape = array.shape
    while len(shape) > 1 and shape[0] == 1:
        shape = shape[1:]
    return array.reshape(shape)


def rows_in_order(weight: Array, rows: Rows) -> Array:
    """The (columns, n) weight that gives the same product with the rows as they are stored."""
    n = weight.shape[1]
    extents = [rows.extents[a] for a in rows.axes]
    back = inverse(rows.axes)
    if weight.T.flags.c_contiguous:  # a layer's weights as PyTorch has them: rows of theirs stay together
        turned = weight.T.reshape(n, *extents).transpose(0, *(axis + 1 for axis in back))
        return np.ascontiguousarray(turned).reshape(n, prod(extents)).T
    return np.ascontiguousarray(weight.reshape(*extents, n).transpose(*back, len(back))).reshape(prod(extents), n)


@dataclass(frozen=True)
class Reshaped:
    """How the reshape of a transposed value becomes a transposition after a reshape.

    Attributes:
        inner: a transposition of what is stored, which its axes may need first.
        shape: to which that is reshaped.
        axes: of the transposition of the result.
    """

    inner: Axes
    shape: tuple[int, ...]
    axes: Axes


def through_reshape(stored: Sequence[int], axes: Sequence[int], shape: Sequence[int]) -> Reshaped:
    """Brings a transposition by `axes` of an array of shape `stored` behind a reshape to `shape`.

    Both shapes are cut into the shortest runs of axes that hold as many elements. A run moves as a whole; what is out
    of order within a run is left to the inner transposition.
    """
    value = [stored[a] for a in axes]
    # Runs in the order in which they lie in memory: then only what is out of order within one has to move.
    order = sorted(runs(value, shape), key=lambda run: min((axes[i] for i in run[0] if value[i] != 1), default=-1))
    inner = [axes[i] for run, _ in order for i in run]
    if keeps_order(stored, inner):
        inner = list(range(len(stored)))
    outer = [j for _, run in order for j in run]
    return Reshaped(tuple(inner), tuple(shape[j] for j in outer), inverse(outer))


def runs(source: Sequence[int], target: Sequence[int]) -> list[tuple[list[int], list[int]]]:
    """Axes of two shapes of as many elements, cut into the shortest runs of equal products.

    An axis of extent 1 belongs to the run of the axis before it, so that no run has axes on one side alone. Where both
    shapes begin with such axes, as with a batch of one, these are a run: they stay in front.
    """
    before, after = ([i for i in range(len(shape)) if prod(shape[: i + 1]) == 1] for shape in (source, target))
    found: list[tuple[list[int], list[int]]] = [(before, after)] if before and after else []
    left, right = ([i for i, extent in enumerate(shape) if extent != 1] for shape in (source, target))
    while left:
        run: tuple[list[int], list[int]] = ([left.pop(0)], [right.pop(0)])
        while (a := prod(source[i] for i in run[0])) != (b := prod(target[j] for j in run[1])):
            if a < b:
                run[0].append(left.pop(0))
            else:
                run[1].append(right.pop(0))
        found.append(run)
    found = found or [([], [])]
    for side, shape in enumerate((source, target)):
        known = {axis for run in found for axis in run[side]}
        for axis in (i for i, extent in enumerate(shape) if extent == 1 and i not in known):
            run = next((run for run in reversed(found) if run[side] and min(run[side]) < axis), found[0])
            run[side].append(axis)
    return [(sorted(left), sorted(right)) for left, right in found]

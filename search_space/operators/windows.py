"""Sliding windows over 1, 2 or 3 axes between batch and channels: padding, indices, and their NumPy versions.

Arrays are channels-last: (batch, spatial..., channels).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from search_space import te
from search_space.ir.expr import Expr
from search_space.operators.base import Args, Array
from search_space.operators.checks import sizes, spread
from search_space.operators.naming import over
from search_space.tags import Tag

Single = int | tuple[int]
Pair = int | tuple[int, int]
Triple = int | tuple[int, int, int]
Padding = int | Sequence[int | Sequence[int]]
"""One number; one for each axis; or (before, after) for each axis."""
EXTENTS = ("depth", "height", "width")
"""Names of the extents of three spatial axes; fewer axes have the last names."""


@dataclass(frozen=True)
class Window:
    """A window that slides. Every field has one number per spatial axis, the padding two: before and after."""

    extent: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    dilation: tuple[int, ...]

    @staticmethod
    def of(args: Args) -> Window:
        """Makes the window that an operator's arguments describe."""
        extent = tuple(args[name] for name in EXTENTS if name in args)
        dilation = args.get("dilation", (1,) * len(extent))
        return Window(extent, args["kernel"], args["stride"], both_sides(args["padding"]), dilation)

    @property
    def output(self) -> tuple[int, ...]:
        """Extents of the output."""
        fields = zip(self.padded_extents, self.reach, self.stride, strict=True)
        return tuple((n - r) // s + 1 for n, r, s in fields)

    @property
    def padded_extents(self) -> tuple[int, ...]:
        """Extents of the padded input."""
        return tuple(n + sum(sides) for n, sides in zip(self.extent, self.padding, strict=True))

    @property
    def before(self) -> tuple[int, ...]:
        """Padding before the first element of each axis."""
        return tuple(sides[0] for sides in self.padding)

    @property
    def is_padded(self) -> bool:
        """True if there is any padding."""
        return any(map(any, self.padding))

    @property
    def reach(self) -> tuple[int, ...]:
        """Number of elements from the first to the last of a window, dilation included."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilation, strict=True))

    @property
    def spatial(self) -> tuple[str, ...]:
        """Names of the spatial axes."""
        return tuple(name[0] for name in EXTENTS[-len(self.extent) :])

    def reduce_axes(self) -> list[te.IterVar]:
        """Makes fresh axes that run over a window, named rd, rh, rw."""
        return [te.reduce_axis((0, k), f"r{name}") for k, name in zip(self.kernel, self.spatial, strict=True)]

    def index(self, at: Sequence[Any], within: Sequence[Any]) -> list[Expr]:
        """Returns the index in the padded input of element `within` of the window at output `at`."""
        fields = zip(at, self.stride, within, self.dilation, strict=True)
        return [a * s + r * d for a, s, r, d in fields]


def window_arguments(
    rank: int, kernel: Any, stride: Any, padding: Any, dilation: Any = None, **extents: Any
) -> dict[str, Any]:
    """Checks the arguments of a window and spreads them over `rank` axes, the extents first."""
    args: dict[str, Any] = sizes(**extents) | spread(rank, kernel=kernel, stride=stride)
    args["padding"] = normalise_padding(rank, padding)
    if dilation is not None:
        args |= spread(rank, dilation=dilation)
    window = Window.of(args)
    for name, reach, padded in zip(EXTENTS[-rank:], window.reach, window.padded_extents, strict=True):
        if reach > padded:
            shown = (
                f"kernel={list(window.kernel)}, dilation={list(window.dilation)}, padding={_to_lists(args['padding'])}"
            )
            raise ValueError(f"`kernel` must fit the padded {name}, but got {shown}, {name}={args[name]}")
    return args


def window_over(shape: Sequence[int], args: Args) -> Window:
    """Makes the checked window over data of `shape` (batch, spatial..., channels) from the arguments of a window."""
    extents = dict(zip(EXTENTS[5 - len(shape) :], shape[1:-1], strict=True))
    fields = {name: args[name] for name in ("kernel", "stride", "padding", "dilation") if name in args}
    return Window.of(window_arguments(len(extents), **fields, **extents))


def normalise_padding(rank: int, padding: Any) -> tuple[Any, ...]:
    """Checks a padding and returns its canonical form: a number per axis, or (before, after) if some differ.

    Raises:
        ValueError: neither one number, nor `rank` numbers, nor `rank` pairs; or a negative number.
    """
    listed = isinstance(padding, Sequence) and len(padding) == rank
    if not listed or not any(isinstance(item, Sequence) for item in padding):
        return spread(rank, 0, padding=padding)["padding"]
    sides = [item if isinstance(item, Sequence) else (item, item) for item in padding]
    pairs = tuple(spread(2, 0, padding=tuple(pair))["padding"] for pair in sides)
    return pairs if any(before != after for before, after in pairs) else tuple(before for before, _ in pairs)


def both_sides(padding: Sequence[Any]) -> tuple[tuple[int, int], ...]:
    """Returns the padding before and after each axis, from the result of `normalise_padding`."""
    return tuple((item, item) if isinstance(item, int) else (item[0], item[1]) for item in padding)


def _to_lists(padding: Sequence[Any]) -> list[Any]:
    return [item if isinstance(item, int) else list(item) for item in padding]


def pad(data: te.Tensor, window: Window, value: Any, channels: int = 0) -> te.Tensor:
    """Puts `value` around data (batch, spatial..., channels), in a stage tagged `pad`; returns unpadded data unchanged.

    Args:
        data: the source.
        window: window with the padding.
        value: value of the padding.
        channels: number of channels of the result, if channels are appended to those of the data; 0: unchanged.
    """
    if not window.is_padded and not channels:
        return data

    def body(n: te.IterVar, *rest: te.IterVar) -> Expr:
        *at, c = rest
        sides = list(zip(at, window.padding, window.extent, strict=True))
        inside = [bound for i, (p, q), extent in sides if p or q for bound in (i >= p, i < extent + p)]
        inside += [c < data.shape[-1]] if channels else []
        return te.if_then_else(te.all(*inside), data[(n, *(i - p for i, (p, _), _ in sides), c)], value)

    shape = (data.shape[0], *window.padded_extents, channels or data.shape[-1])
    return te.compute(shape, over(("n", *window.spatial, "c"), body), name="pad", tag=Tag.PAD)


def slide(
    source: te.Tensor,
    window: Window,
    name: str,
    reduction: Callable[[Expr, list[te.IterVar], te.IterVar], te.Reduction],
) -> te.Tensor:
    """Reduces the window of each channel by itself: (batch, output..., channels).

    Args:
        source: padded data.
        window: window over the data.
        name: name of the stage.
        reduction: an element of the window, the window's axes and the channel → the reduction.
    """
    within = window.reduce_axes()

    def body(n: te.IterVar, *rest: te.IterVar) -> te.Reduction:
        *at, c = rest
        return reduction(source[(n, *window.index(at, within), c)], within, c)

    shape = (source.shape[0], *window.output, source.shape[-1])
    return te.compute(shape, over(("n", *window.spatial, "c"), body), name=name)


def pad_array(data: Array, window: Window, value: Any = 0) -> Array:
    """Pads an array (batch, spatial..., channels) with `value`."""
    sides = [(0, 0), *window.padding, (0, 0)]
    return np.pad(data, sides, constant_values=value) if window.is_padded else data


def taps(data: Array, window: Window) -> Iterator[tuple[tuple[int, ...], Array]]:
    """Lists each position in the window with its elements for every output: (batch, output..., channels)."""
    for place in itertools.product(*(range(k) for k in window.kernel)):
        yield place, data[(slice(None), *_cuts(place, window))]


def window_rows(data: Array, window: Window) -> Iterator[tuple[tuple[int, ...], Array]]:
    """Lists the rows of the window, and the data under each: (batch, output..., kernel of the last axis, channels)."""
    extent, reach, step, gap = window.output[-1], window.reach[-1], window.stride[-1], window.dilation[-1]
    rows = np.lib.stride_tricks.sliding_window_view(data, reach, axis=-2)[..., ::step, :, ::gap]
    rows = rows[..., :extent, :, :].swapaxes(-1, -2)
    for place in itertools.product(*(range(k) for k in window.kernel[:-1])):
        yield place, rows[(slice(None), *_cuts(place, window))]


def _cuts(position: Sequence[int], window: Window) -> list[slice]:
    """Returns slices of the padded axes under a position in the window, for the axes that `position` has."""
    fields = zip(position, window.dilation, window.output, window.stride, strict=False)
    return [slice(r * d, r * d + (n - 1) * s + 1, s) for r, d, n, s in fields]

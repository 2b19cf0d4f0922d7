"""Operations of terms computed on arrays, independently of the graphs that terms describe."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from autotune.graph.ir import Array
from autotune.lab.substitutions.operators import FIRST, LAST, POINT, Pooling, Sliding, Windows
from search_space.operators.windows import Window, both_sides, pad_array, taps

COMMUTATIVE = frozenset({"add", "mul"})
"""Operations whose operands may change places."""

ROLES = {
    **dict.fromkeys(("add_v", "mul_v"), ".w"),
    "affine": "xww",
    **dict.fromkeys((FIRST, LAST), "xn"),
    **dict.fromkeys(("conv", "conv_wide", "point", "depthwise"), "xw"),
    **dict.fromkeys(("max_pool", "avg_pool"), "x"),
    **dict.fromkeys(("enlarge", "scale_in", "chain", "through"), "ww"),
}
"""Roles of each operand: w for a weight, x for an activation, n for one read for its extent alone, a dot for any.

Operations that are missing here take any.
"""


def _window(x: Array, kernel: Sequence[int], by: Sliding | Pooling) -> Window:
    dilation = by.dilation if isinstance(by, Sliding) else (1, 1)
    return Window(tuple(x.shape[1:3]), tuple(kernel), by.stride, both_sides(by.padding), dilation)


def _convolve(x: Array, w: Array, by: Sliding | None) -> Array | None:
    """Computes a convolution, dense (rows, columns, in, out) or depthwise (rows, columns, channels); or None."""
    assert by is not None
    window = _window(x, w.shape[:2], by)
    if min(window.output) < 1:
        return None
    products = (tap @ w[place] if w.ndim == 4 else tap * w[place] for place, tap in taps(pad_array(x, window), window))
    return np.asarray(sum(products))


def _max_pooled(windows: Windows, x: Array) -> Array | None:
    by = windows.max_pool
    assert by is not None
    window = _window(x, by.kernel, by)
    if min(window.output) < 1:
        return None
    return np.asarray(np.max([tap for _, tap in taps(pad_array(x, window, -np.inf), window)], axis=0))


def _average(windows: Windows, x: Array) -> Array | None:
    by = windows.avg_pool
    assert by is not None
    window = _window(x, by.kernel, by)
    if min(window.output) < 1:
        return None
    ones = np.ones_like(x[:1, :, :, :1])
    total, count = (np.sum([tap for _, tap in taps(pad_array(a, window), window)], axis=0) for a in (x, ones))
    return np.asarray(total / (by.kernel[0] * by.kernel[1] if by.count_padding else count))


def _wide(windows: Windows) -> Sliding | None:
    assert windows.conv is not None
    return windows.conv.wider(1)


COMPUTE: dict[str, Callable[..., Array | None]] = {
    "relu": lambda _, x: np.maximum(x, 0),
    "add": lambda _, x, y: x + y,
    "mul": lambda _, x, y: x * y,
    "add_v": lambda _, x, v: x + v,
    "mul_v": lambda _, x, v: x * v,
    "affine": lambda _, x, s, t: x * s + t,
    "concat": lambda _, x, y: np.concatenate((x, y), -1),
    "concat_batch": lambda _, x, y: np.concatenate((x, y), 0),
    "concat_in": lambda _, x, y: np.concatenate((x, y), -2),
    FIRST: lambda _, x, like: x[..., : like.shape[-1]],
    LAST: lambda _, x, like: x[..., x.shape[-1] - like.shape[-1] :],
    "conv": lambda windows, x, w: _convolve(x, w, windows.conv),
    "conv_wide": lambda windows, x, w: _convolve(x, w, _wide(windows)),
    "point": lambda _, x, w: _convolve(x, w, POINT),
    "depthwise": lambda windows, x, w: _convolve(x, w, windows.depthwise),
    "max_pool": _max_pooled,
    "avg_pool": _average,
    "matmul": lambda _, x, y: x @ y,
    "turn": lambda _, x: x.T,
    "enlarge": lambda _, w: np.pad(w, ((1, 1), (1, 1), (0, 0), (0, 0))),
    "scale_in": lambda _, w, v: w * v[:, None],
    "chain": lambda _, w, u: w @ u[0, 0],
    "through": lambda _, v, w: v @ w,
}
"""Name → windows and float64 arrays to the value; None where a window does not fit its data."""

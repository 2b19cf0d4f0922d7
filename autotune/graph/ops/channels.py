"""Windows and rows that the operator library does not have: any pool, LRN, log-softmax. Channels-last."""

from __future__ import annotations

import math
from functools import reduce
from typing import Any

import numpy as np

from autotune.graph.ir import Array, Attributes
from autotune.graph.ops.base import GraphOp, Kind, Tensors, Types, exactly, register
from search_space import te
from search_space.ir.expr import Expr
from search_space.operators.checks import sides, spread
from search_space.operators.naming import over
from search_space.operators.windows import Window, pad, padded, taps

_SMALLEST = {"float32": -math.inf, "float16": -math.inf, "bfloat16": -math.inf, "uint8": 0, "bool": 0}


def _lowest(dtype: str) -> Any:
    """What is no larger than any number of a dtype."""
    return _SMALLEST[dtype] if dtype in _SMALLEST else int(np.iinfo(dtype).min)


def _window_attributes(given: Attributes, types: Types) -> dict[str, Any]:
    kind = types[0]
    rank = len(kind.shape) - 2
    if len(types) != 1 or not 1 <= rank <= 3:
        raise ValueError(f"the input must be of 1, 2 or 3 axes between batch and channels, but got {kind}")
    args: dict[str, Any] = spread(rank, **{n: given.get(n, 1) for n in ("kernel", "stride", "dilation")})
    args["padding"] = sides("padding", given.get("padding", 0), rank)
    args["reducer"] = given["reducer"]
    if args["reducer"] not in ("max", "sum"):
        raise ValueError(f"`reducer` must be max or sum, but got reducer={args['reducer']!r}")
    if min(_window(args, kind.shape).output) < 1:
        raise ValueError(f"`kernel` must fit the padded input, but got kernel={list(args['kernel'])} on {kind}")
    return args


def _window(attrs: Attributes, shape: tuple[int, ...]) -> Window:
    return Window(shape[1:-1], attrs["kernel"], attrs["stride"], attrs["padding"], attrs["dilation"])


def _slide(attrs: Attributes, tensors: Tensors) -> te.Tensor:
    (data,) = tensors
    window = _window(attrs, data.shape)
    largest = attrs["reducer"] == "max"
    source, within = pad(data, window, _lowest(data.dtype) if largest else 0), window.reduce_axes()

    def body(n: Any, *rest: Any) -> te.Reduction:
        *at, c = rest
        element = source[(n, *window.index(at, within), c)]
        return te.max(element, axis=within) if largest else te.sum(element, axis=within)

    shape = (data.shape[0], *window.output, data.shape[-1])
    return te.compute(shape, over(("n", *window.spatial, "c"), body), name="window")


def _slid(attrs: Attributes, x: Array) -> Array:
    window = _window(attrs, x.shape)
    if attrs["reducer"] == "max":
        return reduce(np.maximum, (tap for _, tap in taps(padded(x, window, _lowest(str(x.dtype))), window)))
    wide = x.astype(np.float64) if x.dtype.kind == "f" else x
    return reduce(np.add, (tap for _, tap in taps(padded(wide, window), window)))


def _lrn(attrs: Attributes, tensors: Tensors) -> te.Tensor:
    """x / (bias + alpha / size * the sum of squares over `size` channels around)^beta (Krizhevsky et al., 2012)."""
    (x,) = tensors
    size, channels, before = attrs["size"], x.shape[-1], (attrs["size"] - 1) // 2
    r = te.reduce_axis((0, size), "r")

    def squares(*index: Any) -> te.Reduction:
        *at, c = index
        near = c + r - before
        element = x[(*at, near)]
        return te.sum(te.if_then_else(te.all(near >= 0, near < channels), element * element, 0.0), axis=r)

    total = te.compute(x.shape, squares, name="squares")
    share = attrs["alpha"] / size

    def scaled(*index: Any) -> Expr:
        return x[index] * te.exp(te.log(total[index] * share + attrs["bias"]) * -attrs["beta"])

    return te.compute(x.shape, scaled, name="lrn")


def _lrn_reference(attrs: Attributes, x: Array) -> Array:
    size, channels = attrs["size"], x.shape[-1]
    first = (size - 1) // 2
    sums = np.zeros((*x.shape[:-1], channels + size))
    sums[..., 1 + first : 1 + first + channels] = x.astype(np.float64) ** 2
    sums = np.cumsum(sums, axis=-1)
    total = sums[..., size:] - sums[..., :-size]
    return np.asarray(x / (attrs["bias"] + attrs["alpha"] / size * total) ** attrs["beta"])


def _log_softmax(attrs: Attributes, tensors: Tensors) -> te.Tensor:
    """Of each row of a matrix."""
    (x,) = tensors
    if len(x.shape) != 2:
        raise ValueError(f"the input must be a matrix, but got shape={list(x.shape)}")
    rows, columns = x.shape
    r, q = te.reduce_axis((0, columns), "r"), te.reduce_axis((0, columns), "r")
    largest = te.compute((rows,), lambda i: te.max(x[i, r], axis=r), name="maximum")
    total = te.compute((rows,), lambda i: te.sum(te.exp(x[i, q] - largest[i]), axis=q), name="total")
    shift = te.compute((rows,), lambda i: largest[i] + te.log(total[i]), name="shift")
    return te.compute((rows, columns), lambda i, j: x[i, j] - shift[i], name="log_softmax")


def _log_softmax_reference(attrs: Attributes, x: Array) -> Array:
    wide = x.astype(np.float64)
    wide -= wide.max(1, keepdims=True)
    return np.asarray(wide - np.log(np.exp(wide).sum(1, keepdims=True)))


register(
    GraphOp("window", Kind.compute, _window_attributes, _slide, compute=_slid),
    GraphOp("lrn", Kind.compute, exactly(size=5, alpha=1e-4, beta=0.75, bias=1.0), _lrn, compute=_lrn_reference),
    GraphOp("log_softmax", Kind.compute, exactly(), _log_softmax, compute=_log_softmax_reference),
)

"""Random tensor programs: operators of random sizes, fused with operators after them, and chains of tensor expressions.

TenSet and the auto-schedulers of Halide train on random programs beside layers of networks. So a model sees more sizes
than those of a few networks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from search_space import te, te_json, workloads
from search_space.workloads import Workload

OPERATIONS = (3e5, 1.2e8)
"""Least and most operations of a program."""
MOST_ELEMENTS = 1 << 22
"""Most elements of all arrays of a program together."""
_EXTENTS = (7, 8, 13, 14, 16, 24, 28, 31, 32, 48, 56, 64)
_CHANNELS = (3, 8, 16, 20, 24, 32, 48, 64, 96, 100, 128, 160, 192, 256, 320, 384, 512)
_CURVES: dict[str, Callable[[Any], Any]] = {
    "relu": lambda x: te.maximum(x, 0.0),
    "clip": lambda x: te.minimum(te.maximum(x, 0.0), 6.0),
    "sigmoid": te.sigmoid,
    "tanh": te.tanh,
    "silu": lambda x: x * te.sigmoid(x),
    "leaky": lambda x: te.maximum(x, x * 0.1),
}


def random_workload(rng: np.random.Generator, kind: str = "") -> Workload:
    """Draws a float32 workload of random sizes, within `OPERATIONS` and `MOST_ELEMENTS`.

    Args:
        rng: source of the draws.
        kind: a name of `OF_KIND`; "": any of `KINDS`.
    """
    while True:
        made: Workload = (OF_KIND[kind] if kind else _pick(rng, KINDS))(rng)
        elements = sum(math.prod(spec.shape) for spec in (*made.inputs, made.output))
        if OPERATIONS[0] <= made.flops <= OPERATIONS[1] and elements <= MOST_ELEMENTS:
            return made


def _pick(rng: np.random.Generator, values: Any) -> Any:
    return values[int(rng.integers(len(values)))]


def _convolution(rng: np.random.Generator) -> Workload:
    kernel, size = _pick(rng, (1, 1, 3, 3, 5)), _pick(rng, _EXTENTS)
    layer = workloads.conv2d(
        height=size,
        width=_pick(rng, (size, size, _pick(rng, _EXTENTS))),
        in_channels=_pick(rng, _CHANNELS),
        out_channels=_pick(rng, _CHANNELS),
        kernel=kernel,
        stride=_pick(rng, (1, 1, 1, 2)),
        padding=_pick(rng, (0, kernel // 2)),
    )
    return _fuse_ends(rng, layer)


def _depthwise(rng: np.random.Generator) -> Workload:
    kernel, size = _pick(rng, (3, 3, 5)), _pick(rng, _EXTENTS)
    layer = workloads.depthwise_conv2d(
        height=size,
        width=size,
        channels=_pick(rng, _CHANNELS[1:]),
        kernel=kernel,
        stride=_pick(rng, (1, 1, 2)),
        padding=kernel // 2,
    )
    return _fuse_ends(rng, layer)


def _product(rng: np.random.Generator) -> Workload:
    m, n, k = (int(2 ** rng.uniform(0 if place == 0 else 4, 10)) for place in range(3))
    if rng.random() < 0.3:
        return _fuse_ends(rng, workloads.batch_matmul(int(rng.integers(2, 17)), max(1, m // 4), max(1, n // 4), k))
    return _fuse_ends(rng, workloads.matmul(m, n, k))


def _of_one_row(rng: np.random.Generator) -> Workload:
    return _fuse_ends(rng, workloads.matmul(1, int(2 ** rng.uniform(6, 11)), int(2 ** rng.uniform(6, 11))))


def _pooling(rng: np.random.Generator) -> Workload:
    kernel, size = _pick(rng, (2, 3, 3)), _pick(rng, (28, 32, 56, 64, 111, 112))
    make = _pick(rng, (workloads.max_pool2d, workloads.avg_pool2d))
    pooled: Workload = make(
        height=size,
        width=size,
        channels=_pick(rng, _CHANNELS[1:]),
        kernel=kernel,
        stride=_pick(rng, (1, 2)),
        padding=_pick(rng, (0, kernel // 2)),
    )
    return pooled


def _rows(rng: np.random.Generator) -> Workload:
    rows, columns = int(2 ** rng.uniform(3, 12)), int(2 ** rng.uniform(5, 12))
    kind = rng.integers(3)
    if kind == 0:
        return workloads.softmax(rows, columns)
    if kind == 1:
        return workloads.layer_norm(rows, columns)
    return workloads.reduce((rows, columns), _pick(rng, (0, 1)), _pick(rng, ("sum", "max")))


def _chain(rng: np.random.Generator) -> Workload:
    """Draws a chain of two to five stages on a matrix: maps, sums with arrays, neighbours, transposition, row sums."""
    rows, columns = (int(2 ** rng.uniform(5, 10)) for _ in range(2))
    inputs = [te.placeholder((rows, columns), name="x0")]
    value = inputs[0]
    for place in range(int(rng.integers(2, 6))):
        value = _STAGES[int(rng.integers(len(_STAGES)))](rng, inputs, value, f"s{place}")
    return Workload.of([*inputs, value])


def _map(rng: np.random.Generator, inputs: list[te.Tensor], x: te.Tensor, name: str) -> te.Tensor:
    curve = _CURVES[_pick(rng, list(_CURVES))]
    return te.compute(x.shape, lambda i, j: curve(x[i, j]), name=name)


def _with_other(rng: np.random.Generator, inputs: list[te.Tensor], x: te.Tensor, name: str) -> te.Tensor:
    """Adds or multiplies an array with all elements, one row or one column."""
    rows, columns = x.shape
    shape = _pick(rng, ((rows, columns), (1, columns), (rows, 1)))
    y = te.placeholder(shape, name=f"x{len(inputs)}", constant=bool(rng.random() < 0.3))
    inputs.append(y)
    times = bool(rng.random() < 0.5)

    def body(i: Any, j: Any) -> Any:
        other = y[i if shape[0] > 1 else 0, j if shape[1] > 1 else 0]
        return x[i, j] * other if times else x[i, j] + other

    return te.compute(x.shape, body, name=name)


def _neighbours(rng: np.random.Generator, inputs: list[te.Tensor], x: te.Tensor, name: str) -> te.Tensor:
    rows, columns = x.shape
    reach = int(rng.integers(2, 4))
    if columns <= 2 * reach:
        return _map(rng, inputs, x, name)
    return te.compute(
        (rows, columns - reach), lambda i, j: x[i, j] * 0.5 + x[i, j + 1] * 0.25 + x[i, j + reach] * 0.25, name=name
    )


def _transpose(rng: np.random.Generator, inputs: list[te.Tensor], x: te.Tensor, name: str) -> te.Tensor:
    return te.compute(x.shape[::-1], lambda i, j: x[j, i], name=name)


def _product_stage(rng: np.random.Generator, inputs: list[te.Tensor], x: te.Tensor, name: str) -> te.Tensor:
    """Multiplies by a constant matrix."""
    rows, depth = x.shape
    columns = int(2 ** rng.uniform(4, 8))
    w = te.placeholder((depth, columns), name=f"x{len(inputs)}", constant=True)
    inputs.append(w)
    k = te.reduce_axis((0, depth), f"{name}k")
    return te.compute((rows, columns), lambda i, j: te.sum(x[i, k] * w[k, j], axis=k), name=name)


_STAGES = (_map, _with_other, _with_other, _neighbours, _transpose, _product_stage)


def _fuse_ends(rng: np.random.Generator, layer: Workload) -> Workload:
    """Fuses a bias, a residual or a curve, each at random, with a layer."""
    out = layer.output
    value = first = te.placeholder(out.shape, out.dtype, "layer")
    more: list[te.Tensor] = []
    for place, kind in enumerate(("bias", "residual", "curve")):
        if rng.random() < (0.6, 0.25, 0.7)[place]:
            value = _end(rng, kind, value, more, f"e{place}")
    if value is first:
        return layer
    epilogue = te_json.to_json([first, *more, value])
    return Workload("fused", {"anchor": layer.to_json(), "epilogue": epilogue})


def _end(rng: np.random.Generator, kind: str, value: te.Tensor, more: list[te.Tensor], name: str) -> te.Tensor:
    if kind == "curve":
        curve = _CURVES[_pick(rng, list(_CURVES))]
        return te.compute(value.shape, lambda *i: curve(value[i]), name=name)
    shape = value.shape[-1:] if kind == "bias" else value.shape
    other = te.placeholder(shape, value.dtype, f"y{len(more)}", constant=kind == "bias")
    more.append(other)
    return te.compute(value.shape, lambda *i: value[i] + (other[i[-1:]] if kind == "bias" else other[i]), name=name)


KINDS = (_convolution, _convolution, _convolution, _product, _product, _chain, _chain, _depthwise, _pooling, _rows)
"""Kinds of programs, as often as they are drawn."""
OF_KIND: dict[str, Callable[[np.random.Generator], Workload]] = {
    "convolution": _convolution,
    "depthwise": _depthwise,
    "product": _product,
    "one_row": _of_one_row,
    "pooling": _pooling,
    "rows": _rows,
    "chain": _chain,
}

"""Random workloads of every operator whose axes are often of one element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from search_space import te, te_json, workloads
from search_space.operators import OPERATORS
from search_space.operators.functions import BINARY, UNARY
from search_space.operators.reduction import REDUCERS
from search_space.operators.sparse import DTYPES as SPARSE_DTYPES
from search_space.workloads import TensorSpec, Workload
from tests.search_space.sketch.random_definitions import Random

DTYPES = ("float32", "float16", "bfloat16", "int8")
Draw = Callable[..., Any]


def make_random_workload(operator: str, seed: int) -> Workload:
    """A workload of an operator, the same for the same seed."""
    rng = np.random.default_rng([seed, *operator.encode()])

    def pick(*options: Any) -> Any:
        return options[int(rng.integers(len(options)))]

    return DRAWS[operator](pick)


def _size(pick: Draw) -> int:
    return int(pick(1, 1, 2, 5, 20))


def _draw_window(pick: Draw, axes: int) -> dict[str, Any]:
    """Sizes and a window that fits."""
    kernel = pick(1, 3)
    padding = kernel // 2
    return {
        **{name: _size(pick) for name in ("depth", "height", "width")[3 - axes :]},
        "kernel": kernel,
        "padding": padding,
        "stride": pick(1, 2),
    }


def _layer(pick: Draw, dtypes: tuple[str, ...] = DTYPES) -> dict[str, Any]:
    return {"bias": pick(True, False), "activation": pick(None, "relu"), "dtype": pick(*dtypes)}


def _convolution(make: Callable[..., Workload], axes: int) -> Callable[[Draw], Workload]:
    def draw(pick: Draw) -> Workload:
        channels = {"in_channels": pick(1, 4), "out_channels": _size(pick)}
        return make(batch=pick(1, 2), **_draw_window(pick, axes), **channels, **_layer(pick))

    return draw


def _blocked_convolution(pick: Draw) -> Workload:
    window = {k: v for k, v in _draw_window(pick, 2).items() if k not in ("height", "width")}
    sizes = (pick(1, 3), pick(1, 4), 16 * pick(1, 2), 16 * pick(1, 2))
    return workloads.conv2d_blocked(*sizes, **window, bias=pick(True, False), relu=pick(True, False))


def _pooling(make: Callable[..., Workload]) -> Callable[[Draw], Workload]:
    return lambda pick: make(batch=1, **_draw_window(pick, 2), channels=_size(pick))


def _reduce(pick: Draw) -> Workload:
    shape = [_size(pick) for _ in range(pick(2, 3))]
    return workloads.reduce(shape, pick(*range(len(shape))), pick(*REDUCERS))


def _definition(pick: Draw) -> Workload:
    return Workload.of(Random(pick(*range(1 << 20))).definition())


def _own(pick: Draw) -> Workload:
    """Returns a workload of an operator that a program of its own defines."""
    return workloads.own(OPERATORS["dense"], batch=_size(pick), in_features=_size(pick), out_features=_size(pick))


def _draw_fused(pick: Draw) -> Workload:
    """An operator, perhaps of what is transposed or computed first; broadcasts read axes of one element at 0."""
    names = [name for name in DRAWS if name not in ("fused", "tensors", "definitions")]
    anchor = DRAWS[pick(*names)](pick)

    def bound(of: TensorSpec) -> dict[str, Any]:
        """No less than a number for each place of the last axis."""
        layer = te.placeholder(of.shape, of.dtype, "layer")
        other = te.placeholder(of.shape[-1:], of.dtype, "y0", constant=True)

        def end(*index: Any) -> Any:
            at = tuple(0 if extent == 1 else i for i, extent in zip(index, of.shape, strict=True))
            return te.maximum(layer[at], other[at[-1]])

        return te_json.to_json([layer, other, te.compute(of.shape, end, name="end")])

    axes = list(range(len(anchor.inputs[0].shape)))
    axes = pick((), (), axes[::-1], [*axes[:1], *axes[2:], *axes[1:2]])  # the last one: channels first
    front = pick(None, bound(anchor.inputs[0]))
    return workloads.fused(anchor.to_json(), bound(anchor.output), axes, prologue=front)


def _draw_sparse(pick: Draw) -> Workload:
    """A product with blocks of a random number, of which the fullest row has all that it may have, or few."""
    columns, depth, rows, places = pick(1, 4, 16, 32), pick(1, 2, 5), pick(1, 2, 3), pick(1, 3, 7)
    blocks = pick(*range(1, rows * places + 1))
    fullest = pick(None, min(places, blocks))
    dtype = pick(*SPARSE_DTYPES)
    return workloads.sparse_matmul(
        _size(pick), rows * columns, places * depth, (columns, depth), blocks, fullest, dtype
    )


def _draw_sparse_convolution(pick: Draw) -> Workload:
    """A convolution with blocks of a random number."""
    columns, depth, rows, places = pick(1, 4, 16), pick(1, 2, 4), pick(1, 2), pick(1, 3)
    window = _draw_window(pick, 2)
    blocks = pick(*range(1, rows * places + 1))
    sizes = {"in_channels": places * depth, "out_channels": rows * columns, "dtype": pick(*SPARSE_DTYPES)}
    return workloads.sparse_conv2d(**window, **sizes, block=(columns, depth), blocks=blocks)


DRAWS: dict[str, Callable[[Draw], Workload]] = {
    "conv1d": _convolution(workloads.conv1d, 1),
    "conv2d": _convolution(workloads.conv2d, 2),
    "conv3d": _convolution(workloads.conv3d, 3),
    "depthwise_conv2d": lambda pick: workloads.depthwise_conv2d(
        **_draw_window(pick, 2), channels=_size(pick), **_layer(pick)
    ),
    "conv2d_transpose": _convolution(workloads.conv2d_transpose, 2),
    "matmul": lambda pick: workloads.matmul(_size(pick), _size(pick), _size(pick), pick(*DTYPES), pick(True, False)),
    "matmul_nbits": lambda pick: Workload(
        "matmul_nbits",
        {name: _size(pick) for name in "mnk"}
        | {"bits": pick(4, 8), "group": pick(8, 16, 32), "zeros": pick(True, False)},
    ),
    "dynamic_matmul": lambda pick: workloads.dynamic_matmul(
        *(_size(pick) for _ in "mnk"), pick(4, 8), pick(8, 16, 32), pick(True, False)
    ),
    "sparse_matmul": _draw_sparse,
    "sparse_conv2d": _draw_sparse_convolution,
    "batch_matmul": lambda pick: workloads.batch_matmul(pick(1, 3), _size(pick), _size(pick), _size(pick)),
    "dense": lambda pick: workloads.dense(_size(pick), _size(pick), _size(pick), **_layer(pick)),
    "conv2d_blocked": _blocked_convolution,
    "dense_blocked": lambda pick: workloads.dense_blocked(pick(1, 3), 16 * pick(1, 2), 16 * pick(1, 2)),
    "max_pool2d": _pooling(workloads.max_pool2d),
    "avg_pool2d": _pooling(workloads.avg_pool2d),
    "softmax": lambda pick: workloads.softmax(_size(pick), _size(pick)),
    "layer_norm": lambda pick: workloads.layer_norm(_size(pick), _size(pick)),
    "reduce": _reduce,
    "elementwise": lambda pick: workloads.elementwise(pick(*UNARY, *BINARY), (_size(pick), _size(pick))),
    "tensors": _definition,
    "fused": _draw_fused,
    "definitions": _own,
}
"""Generators of workloads by name of the operator; each takes a function that picks an argument among several."""

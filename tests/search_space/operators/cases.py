"""Small workloads of every operator: odd sizes, every argument once away from its default."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from search_space import te, te_json, workloads
from search_space.operators.functions import BINARY, UNARY
from search_space.operators.reduction import REDUCERS
from search_space.workloads import Workload


def make_gated_product() -> list[te.Tensor]:
    """A product whose result is read by two stages, which the output joins: a definition of no operator."""
    a, b = te.placeholder((5, 6), name="a"), te.placeholder((6, 9), name="b", constant=True)
    bias = te.placeholder((9,), name="bias", constant=True)
    r = te.reduce_axis((0, 6), "r")
    c = te.compute((5, 9), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="product")
    shifted = te.compute((5, 9), lambda i, j: c[i, j] + bias[j], name="shifted")
    gate = te.compute((5, 9), lambda i, j: te.sigmoid(c[i, j] * 2.0), name="gate")
    return [a, b, bias, te.compute((5, 9), lambda i, j: shifted[i, j] * gate[i, j], name="gated")]


def roots() -> list[te.Tensor]:
    """Defined on positive inputs only."""
    x, y = te.placeholder((4, 7), name="x"), te.placeholder((4,), name="y")
    return [x, y, te.compute((4, 7), lambda i, j: te.log(x[i, j]) - te.sqrt(y[i]) / x[i, j], name="roots")]


def append_ending(anchor: Workload, axes: Sequence[int] = (), normalised: bool = False) -> Workload:
    """An operator with a bias, a residual and a relu. With `axes` its input is transposed first; if it is `normalised`,
    an affine map of the channels and a relu come before it.
    """
    shape, dtype = anchor.output.shape, anchor.output.dtype
    layer, other = (te.placeholder(shape, dtype, name) for name in ("layer", "y1"))
    bias = te.placeholder(shape[-1:], dtype, "y0", constant=True)
    summed = te.compute(shape, lambda *i: layer[i] + bias[i[-1]] + other[i], name="add")
    out = te.compute(shape, lambda *i: te.maximum(summed[i], 0), name="relu")
    ending = te_json.to_json([layer, bias, other, out])
    return workloads.fused(anchor.to_json(), ending, axes, prologue=_affine(anchor) if normalised else None)


def _affine(anchor: Workload) -> dict[str, Any]:
    shape, dtype = anchor.inputs[0].shape, anchor.inputs[0].dtype
    x, *line = te.placeholder(shape, dtype, "x0"), *(te.placeholder(shape[-1:], dtype, n, True) for n in ("z0", "z1"))
    moved = te.compute(shape, lambda *i: x[i] * line[0][i[-1]] + line[1][i[-1]], name="affine")
    return te_json.to_json([x, *line, te.compute(shape, lambda *i: te.maximum(moved[i], 0), name="relu")])


SMALL: tuple[Workload, ...] = (
    append_ending(
        workloads.conv2d(height=7, width=6, in_channels=3, out_channels=20, padding=1, stride=2), (0, 2, 3, 1)
    ),
    append_ending(workloads.conv2d(height=5, width=6, in_channels=3, out_channels=20, padding=1)),
    append_ending(workloads.dense(3, 7, 9)),
    append_ending(workloads.conv2d(height=5, width=6, in_channels=19, out_channels=20, kernel=1), normalised=True),
    append_ending(workloads.conv2d(height=5, width=6, in_channels=3, out_channels=20, padding=1), normalised=True),
    append_ending(
        workloads.conv2d(height=5, width=6, in_channels=8, out_channels=20, kernel=1), (0, 2, 3, 1), normalised=True
    ),
    append_ending(workloads.max_pool2d(height=5, width=6, channels=5, kernel=3, stride=2, padding=1)),
    workloads.conv2d(height=5, width=4, in_channels=6, out_channels=18, padding=1, constant_weight=False),
    workloads.depthwise_conv2d(height=5, width=5, channels=19, padding=1, constant_weight=False),
    workloads.conv2d(height=5, width=6, in_channels=3, out_channels=4, padding=1, bias=True, activation="relu"),
    workloads.conv2d(batch=2, height=7, width=5, in_channels=4, out_channels=6, kernel=(3, 1), stride=2, groups=2),
    workloads.conv2d(height=8, width=7, in_channels=2, out_channels=3, dilation=(2, 1), activation="silu"),
    workloads.conv2d(height=5, width=5, in_channels=3, out_channels=5, kernel=1, stride=2, bias=True),
    workloads.conv2d(height=3, width=4, in_channels=5, out_channels=3, kernel=1),
    workloads.conv2d(height=5, width=5, in_channels=4, out_channels=8, dtype="int8", padding=1, activation="relu"),
    workloads.conv2d(height=3, width=3, in_channels=3, out_channels=4, dtype="bfloat16", kernel=2, padding=(0, 1)),
    workloads.conv1d(width=11, in_channels=3, out_channels=5, stride=2, padding=1, activation="tanh"),
    workloads.conv3d(depth=4, height=5, width=3, in_channels=2, out_channels=3, padding=(1, 0, 1), bias=True),
    workloads.conv2d_blocked(5, 6, 8, 4, batch=2, kernel=(3, 2), padding=1, shift=6, relu=True, block=(2, 4, 8)),
    workloads.conv2d_blocked(4, 5, 6, 4, kernel=1, stride=2, bias=False, block=(1, 2, 3)),
    workloads.dense_blocked(4, 8, 6, shift=5, block=(2, 3, 4)),
    workloads.dense_blocked(1, 4, 4, shift=0, bias=False, relu=True, block=(1, 4, 4)),
    workloads.depthwise_conv2d(height=7, width=6, channels=5, stride=2, padding=1, bias=True, activation="relu6"),
    workloads.depthwise_conv2d(height=5, width=6, channels=3, dilation=2, dtype="int8"),
    workloads.conv2d_transpose(height=4, width=3, in_channels=3, out_channels=4, stride=2, padding=1, bias=True),
    workloads.conv2d_transpose(
        2,
        3,
        2,
        3,
        2,
        kernel=(4, 2),
        stride=(3, 1),
        padding=(1, 0),
        output_padding=(2, 0),
        activation="sigmoid",
    ),
    workloads.conv2d_transpose(height=3, width=3, in_channels=2, out_channels=3, dtype="int8", stride=2),
    workloads.conv2d_transpose(2, 3, 4, 3, 2, kernel=4, stride=2, padding=1, bias=True),
    workloads.conv2d_transpose(2, 2, 1, 3, 4, kernel=3, stride=1, padding=(1, 0)),
    workloads.conv2d_transpose(1, 3, 2, 3, 5, kernel=(2, 1), stride=(3, 2), output_padding=(1, 1)),
    workloads.conv2d(height=6, width=5, in_channels=3, out_channels=4, stride=2, padding=((0, 1), (1, 2))),
    workloads.depthwise_conv2d(height=6, width=5, channels=4, stride=2, padding=((0, 1), (1, 0))),
    workloads.matmul_nbits(3, 20, 40, group=16),
    workloads.matmul_nbits(1, 35, 64, group=32, zeros=True),
    workloads.matmul_nbits(1, 35, 60, group=16),
    workloads.matmul_nbits(3, 20, 60, group=32, zeros="float32"),
    workloads.matmul_nbits(5, 18, 30, bits=8, group=16),
    workloads.matmul_nbits(2, 9, 24, bits=8, group=24, zeros=True),
    workloads.matmul_nbits(1, 18, 100, bits=8, group=64, zeros=True),
    workloads.matmul_nbits(17, 20, 40, group=16),
    workloads.matmul_nbits(16, 9, 30, bits=8, group=24, zeros=True),
    append_ending(workloads.matmul_nbits(3, 20, 32, group=8, zeros=True)),
    workloads.sparse_matmul(3, 20, 12, (4, 2), 9, 4),
    workloads.sparse_matmul(19, 12, 6, (4, 3), 4, 2),
    workloads.sparse_matmul(33, 48, 10, (16, 1), 7),
    workloads.sparse_matmul(16, 6, 3, (2, 1), 1),
    workloads.sparse_matmul(5, 24, 8, (1, 4), 20, 2),
    workloads.sparse_matmul(17, 16, 40, (16, 20), 1),
    append_ending(workloads.sparse_matmul(18, 32, 8, (16, 2), 5, 3)),
    append_ending(workloads.sparse_matmul(20, 10, 8, (1, 2), 11, 4), normalised=True),
    append_ending(workloads.sparse_matmul(20, 32, 8, (32, 1), 5), (1, 0)),
    workloads.sparse_matmul(18, 16, 8, (16, 2), 3, dtype="bfloat16"),
    workloads.sparse_matmul(18, 16, 8, (4, 4), 5, dtype="int8"),
    workloads.sparse_conv2d(1, 7, 6, 4, 8, stride=(1, 2), padding=1, block=(4, 2), blocks=9),
    workloads.sparse_conv2d(2, 5, 4, 3, 16, (3, 2), 2, ((1, 0), (2, 1)), block=(16, 1), blocks=7),
    workloads.sparse_conv2d(1, 9, 8, 2, 8, 3, (2, 3), 2, (2, 3), block=(1, 2), blocks=20, fullest=5),
    workloads.sparse_conv2d(1, 6, 5, 8, 16, 1, block=(8, 8), blocks=1, dtype="bfloat16"),
    workloads.sparse_conv2d(1, 6, 7, 4, 32, padding=1, block=(16, 4), blocks=5, dtype="int8"),
    append_ending(workloads.sparse_conv2d(2, 4, 5, 4, 16, (3, 2), padding=1, block=(4, 4), blocks=8)),
    append_ending(workloads.sparse_conv2d(1, 5, 6, 8, 16, 2, padding=1, block=(16, 1), blocks=8), (0, 2, 3, 1)),
    workloads.dynamic_matmul(3, 20, 40, group=16),
    workloads.dynamic_matmul(1, 35, 60, zeros=True),
    workloads.dynamic_matmul(5, 18, 30, bits=8, group=8),
    append_ending(workloads.dynamic_matmul(17, 20, 72, bits=8, group=24, zeros=True)),
    workloads.dynamic_matmul(3, 20, 60, zeros="float32"),
    workloads.max_pool2d(height=6, width=5, channels=3, kernel=3, padding=((0, 1), (1, 0))),
    workloads.avg_pool2d(height=6, width=5, channels=3, kernel=3, padding=((0, 1), (1, 0))),
    workloads.avg_pool2d(height=6, width=5, channels=3, kernel=3, padding=((0, 1), (0, 0)), count_padding=True),
    workloads.matmul(5, 7, 6),
    workloads.matmul(3, 17, 1, constant_b=False),
    workloads.matmul(4, 6, 8, dtype="float16"),
    workloads.matmul(4, 6, 7, dtype="bfloat16"),
    workloads.matmul(3, 5, 9, dtype="int8"),
    workloads.batch_matmul(2, 4, 5, 3),
    workloads.batch_matmul(3, 2, 3, 4, dtype="int8", constant_b=True),
    workloads.dense(3, 8, 5, bias=True, activation="gelu"),
    workloads.dense(1, 9, 7, bias=True, dtype="int8"),
    workloads.max_pool2d(height=7, width=7, channels=5, kernel=3, padding=1),
    workloads.max_pool2d(batch=2, height=4, width=5, channels=3, kernel=(2, 3), stride=1),
    workloads.avg_pool2d(height=6, width=7, channels=3, kernel=3, padding=1),
    workloads.avg_pool2d(height=6, width=5, channels=3, kernel=(2, 3), padding=(1, 0), count_padding=True),
    workloads.avg_pool2d(height=7, width=7, channels=4, kernel=7, stride=1),
    workloads.softmax(3, 21),
    workloads.layer_norm(3, 19),
    workloads.layer_norm(2, 5, epsilon=0.1),
    workloads.reduce((3, 4, 18), -1, "mean"),
    workloads.reduce((3, 18, 4), (1,), "max"),
    workloads.reduce((2, 3, 4, 5), (0, 2)),
    *(workloads.reduce((3, 13), 1, name) for name in REDUCERS),
    *(workloads.reduce((13, 3), 0, name, "int32") for name in REDUCERS if "mean" not in name),
    *(workloads.elementwise(name, (3, 7)) for name in (*UNARY, *BINARY)),
    workloads.elementwise("multiply", (50,), "int32"),
    workloads.elementwise("abs", (2, 3, 4), "int32"),
    workloads.from_tensors(make_gated_product()),
    workloads.from_tensors(roots()),
    workloads.own("matmul", m=3, n=7, k=9),
)

EVERY = tuple((w, a) for w in SMALL for a in w.algorithms)
"""Small workloads, each with every one of its algorithms."""

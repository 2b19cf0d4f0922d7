"""Layers: convolutions, matrix products, pooling, row operations. Activations are channels-last, as kernels expect.

Each layer is an operator of `search_space.workloads` whose sizes come from the types of the inputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from autotune.graph.ops.base import GraphOp, Kind, Tensors, Types, exactly, register
from autotune.graph.types import Array, Attributes, TensorType
from search_space import te, workloads
from search_space.operators.base import Operator
from search_space.operators.conv import CONV1D, CONV2D, CONV3D
from search_space.operators.depthwise import DEPTHWISE_CONV2D
from search_space.operators.pooling import AVG_POOL2D, MAX_POOL2D
from search_space.operators.transposed import CONV2D_TRANSPOSE
from search_space.operators.weights_only import FRACTIONS
from search_space.operators.windows import EXTENTS
from search_space.tags import Tag
from search_space.workloads import Workload

_WINDOW: dict[str, Any] = {"stride": 1, "padding": 0, "dilation": 1}
_POOL: dict[str, Any] = {"kernel": 2, "stride": 2, "padding": 0}


def _data(types: Types, count: int, rank: int) -> tuple[int, ...]:
    if len(types) != count:
        raise ValueError(f"inputs must be {count}, but got {len(types)}")
    if len(types[0].shape) != rank:
        raise ValueError(f"the first input must have {rank} dimensions, but got {types[0]}")
    return types[0].shape


def _dtype(types: Types) -> str:
    """Returns the workload's dtype: int8 for uint8 data, as operators call byte products."""
    return "int8" if types[0].dtype == "uint8" else types[0].dtype


def _make_window_op(operator: Operator[Any], **defaults: Any) -> GraphOp:
    """Defines an operation from an operator whose window slides over data (n, spatial..., c).

    Weights are (kernel..., c / groups, k), of a depthwise convolution (kernel..., c). Poolings have no weights: their
    kernel is an attribute.
    """
    known, depthwise = operator.parameters, "out_channels" not in operator.parameters
    spatial = [name for name in EXTENTS if name in known]
    rank, weighted = len(spatial), "kernel" not in defaults

    def workload(attrs: Attributes, types: Types, constants: Sequence[bool]) -> Workload:
        n, *extents, c = _data(types, 1 + weighted, rank + 2)
        sizes: dict[str, Any] = {"batch": n, "in_channels": c, "channels": c, "dtype": types[0].dtype}
        sizes |= dict(zip(spatial, extents, strict=True))
        if weighted:
            filters = types[1].shape
            if len(filters) != rank + 2 - depthwise:
                raise ValueError(f"the second input must have {rank + 2 - depthwise} dimensions, but got {types[1]}")
            sizes |= {"kernel": filters[:rank], "out_channels": filters[-1]}
            sizes |= {"dtype": _dtype(types), "constant_weight": bool(constants[1])}
        return Workload(operator.name, {**{name: value for name, value in sizes.items() if name in known}, **attrs})

    narrow = weighted and not depthwise
    return GraphOp(operator.name, Kind.compute, exactly(**defaults), workload=workload, narrow=narrow)


def _matmul(attrs: Attributes, types: Types, constants: Sequence[bool]) -> Workload:
    """Returns the workload (m, k) times (k, n)."""
    m, k = _data(types, 2, 2)
    return workloads.matmul(m, types[1].shape[-1], k, _dtype(types), constant_b=bool(constants[1]))


def _matmul_nbits(attrs: Attributes, types: Types, constants: Sequence[bool]) -> Workload:
    """Returns the workload (m, k) times weights of a few bits.

    Weights are bytes (groups, bytes of a group, n), scales (groups, n), and optional zeros.
    """
    return workloads.matmul_nbits(**_nbits(attrs, types))


def _dynamic_matmul(attrs: Attributes, types: Types, constants: Sequence[bool]) -> Workload:
    """Returns the product workload of data rounded to bytes and weights of a few bits."""
    return workloads.dynamic_matmul(**_nbits(attrs, types))


def _sparse_matmul(attrs: Attributes, types: Types, constants: Sequence[bool]) -> Workload:
    """Returns the workload (m, k) times the blocks of a weight that are not zero.

    Inputs are values (rows of blocks, most of a row, depth, columns), positions and counts.
    """
    m, k = _data(types, 4, 2)
    columns, packed = _block_arguments(types)
    return workloads.sparse_matmul(m, columns, k, **packed, **attrs)


def _sparse_conv2d(attrs: Attributes, types: Types, constants: Sequence[bool]) -> Workload:
    """Returns the workload of a convolution of data (n, h, w, c) without the weight's blocks of zeros."""
    batch, height, width, channels = _data(types, 4, 4)
    columns, packed = _block_arguments(types)
    return workloads.sparse_conv2d(batch, height, width, channels, columns, **packed, **attrs)


def _block_arguments(types: Types) -> tuple[int, dict[str, Any]]:
    """Returns the columns of a packed weight, and the arguments of its operator that follow from the types."""
    if len(types[1].shape) != 4:
        raise ValueError(f"the second input must have 4 dimensions, but got {types[1]}")
    rows, fullest, depth, columns = types[1].shape
    return rows * columns, {"block": (columns, depth), "fullest": fullest, "dtype": _dtype(types)}


def _nbits(attrs: Attributes, types: Types) -> dict[str, Any]:
    m, k = _data(types, len(types) if len(types) == 4 else 3, 2)
    bits, n = attrs["bits"], types[1].shape[-1]
    group = types[1].shape[-2] * 8 // bits if len(types[1].shape) == 3 else 0
    zeros = types[3].dtype == FRACTIONS and FRACTIONS if len(types) == 4 else False
    return {"m": m, "n": n, "k": k, "bits": bits, "group": group, "zeros": zeros or len(types) == 4}


def _batch_matmul(attrs: Attributes, types: Types, constants: Sequence[bool]) -> Workload:
    """Returns the workload (b, m, k) times (b, k, n)."""
    b, m, k = _data(types, 2, 3)
    return workloads.batch_matmul(b, m, types[1].shape[-1], k, _dtype(types), constant_b=bool(constants[1]))


def _softmax(attrs: Attributes, types: Types, constants: Sequence[bool]) -> Workload:
    """Returns the softmax workload on the rows of a matrix."""
    return workloads.softmax(*_data(types, 1, 2))


def _log_softmax(attrs: Attributes, tensors: Tensors) -> te.Tensor:
    """Computes the logarithm of each row's softmax from differences to the row's largest element.

    The softmax itself rounds to 0 for elements lower by 104 or more, and the logarithm of 0 is infinite.
    """
    (x,) = tensors
    rows, columns = _data([TensorType(x.shape, x.dtype)], 1, 2)
    r, q = te.reduce_axis((0, columns), "r"), te.reduce_axis((0, columns), "q")
    largest = te.compute((rows,), lambda i: te.max(x[i, r], axis=r), name="maximum")
    total = te.compute((rows,), lambda i: te.sum(te.exp(x[i, q] - largest[i]), axis=q), name="total")
    logarithm = te.compute((rows,), lambda i: te.log(total[i]), name="logarithm")
    # Not x minus the sum of both: for large rows, that would cancel all digits of the logarithm.
    return te.compute((rows, columns), lambda i, j: (x[i, j] - largest[i]) - logarithm[i], name="log_softmax")


def _log_softmax_computed(attrs: Attributes, x: Array) -> Array:
    wide = x.astype(np.float64)
    with np.errstate(invalid="ignore"):  # from differences of infinities
        wide = wide - wide.max(1, keepdims=True)
    return np.asarray(wide - np.log(np.exp(wide).sum(1, keepdims=True)))


def _layer_norm(attrs: Attributes, types: Types, constants: Sequence[bool]) -> Workload:
    """Returns the workload that normalises each row of a matrix, with gamma and beta."""
    rows, columns = _data(types, 3, 2)
    return workloads.layer_norm(rows, columns, **attrs)


def _lrn(attrs: Attributes, tensors: Tensors) -> te.Tensor:
    """Divides each element by a power of the sum of squares of its neighbours along the last axis."""
    (x,) = tensors
    size, channels = attrs["size"], x.shape[-1]
    before = (size - 1) // 2
    padded = te.compute(
        (*x.shape[:-1], channels + size - 1),
        lambda *i: te.if_then_else(
            te.all(i[-1] >= before, i[-1] < channels + before), x[(*i[:-1], i[-1] - before)], 0.0
        ),
        name="around",
        tag=Tag.PAD,
    )
    r = te.reduce_axis((0, size), "r")
    squares = te.compute(
        x.shape,
        lambda *i: te.sum(padded[(*i[:-1], i[-1] + r)] * padded[(*i[:-1], i[-1] + r)], axis=r),
        name="squares",
    )

    def normalise(*i: Any) -> Any:
        base = squares[i] * (attrs["alpha"] / size) + attrs["bias"]
        return x[i] * te.exp(te.log(base) * -attrs["beta"])

    return te.compute(x.shape, normalise, name="lrn")


def _lrn_computed(attrs: Attributes, x: Array) -> Array:
    size = attrs["size"]
    before = (size - 1) // 2
    sides = [(0, 0)] * (x.ndim - 1) + [(before, size - 1 - before)]
    squares = np.lib.stride_tricks.sliding_window_view(np.pad(x.astype(float) ** 2, sides), size, axis=-1).sum(-1)
    return np.asarray(x / (attrs["bias"] + attrs["alpha"] / size * squares) ** attrs["beta"])


def _reduce(attrs: Attributes, types: Types, constants: Sequence[bool]) -> Workload:
    """Returns the workload that reduces over `axes`; the output does not have them."""
    return workloads.reduce(types[0].shape, axes=attrs["axes"], reducer=attrs["reducer"], dtype=types[0].dtype)


register(
    _make_window_op(CONV2D_TRANSPOSE, stride=1, padding=0, output_padding=0),
    *(_make_window_op(operator, **_WINDOW, groups=1) for operator in (CONV1D, CONV2D, CONV3D)),
    _make_window_op(DEPTHWISE_CONV2D, **_WINDOW),
    _make_window_op(MAX_POOL2D, **_POOL),
    _make_window_op(AVG_POOL2D, **_POOL, count_padding=False),
    GraphOp("lrn", Kind.compute, exactly(size=5, alpha=1e-4, beta=0.75, bias=1.0), _lrn, compute=_lrn_computed),
    GraphOp("matmul", Kind.compute, exactly(), workload=_matmul, narrow=True),
    GraphOp("batch_matmul", Kind.compute, exactly(), workload=_batch_matmul, narrow=True),
    GraphOp("matmul_nbits", Kind.compute, exactly(bits=4), workload=_matmul_nbits),
    GraphOp("sparse_matmul", Kind.compute, exactly(blocks=1), workload=_sparse_matmul),
    GraphOp("sparse_conv2d", Kind.compute, exactly(blocks=1, kernel=1, **_WINDOW), workload=_sparse_conv2d),
    GraphOp("dynamic_matmul", Kind.compute, exactly(bits=4), workload=_dynamic_matmul),
    GraphOp("softmax", Kind.compute, exactly(), workload=_softmax),
    GraphOp("log_softmax", Kind.compute, exactly(), _log_softmax, compute=_log_softmax_computed),
    GraphOp("layer_norm", Kind.compute, exactly(epsilon=1e-5), workload=_layer_norm),
    GraphOp("reduce", Kind.compute, exactly(axes=(0,), reducer="sum"), workload=_reduce),
)

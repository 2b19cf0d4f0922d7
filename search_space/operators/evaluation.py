"""Evaluation of tensor expressions by NumPy, stage by stage: the reference of definitions without one of their own.

Sums of products whose operands are read at affine indices are matrix products of strided views. Everything else is
evaluated on index grids, a bounded tile of the domain at a time. float32 is computed in float64 within a stage.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce as fold
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from search_space import te
from search_space.dtypes import numpy_dtype
from search_space.ir.expr import FLOATS, Expr
from search_space.ir.polynomial import poly
from search_space.ir.rounding import match_clamp
from search_space.ir.semantics import BINARY, FUNCTIONS

Array = NDArray[Any]
Ranges = Mapping[str, tuple[int, int]]

TILE = 1 << 21
"""Greatest number of elements of a stage's domain that are evaluated at a time."""

_COMBINE: dict[str, np.ufunc] = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}


def evaluate(tensors: Sequence[te.Tensor], arrays: Sequence[Array], tile: int = TILE) -> Array:
    """Computes the output of a definition.

    Args:
        tensors: inputs, then the output.
        arrays: values of the inputs.
        tile: elements of a domain to evaluate at a time.

    Raises:
        IndexError: a read out of bounds, other than in the branch of a select that is not taken: a bug in
            `search_space.ir.access`, which every definition has passed.
    """
    values = {tensor.op: array for tensor, array in zip(tensors[:-1], arrays, strict=True)}

    def visit(op: te.Operation) -> None:
        if op not in values:
            for tensor in op.inputs:
                visit(tensor.op)
            with np.errstate(all="ignore"):
                values[op] = _stage(op, values, tile)

    visit(tensors[-1].op)
    return values[tensors[-1].op]


def _stage(op: te.Operation, values: Mapping[te.Operation, Array], tile: int) -> Array:
    assert op.body is not None
    operands = _operands_of_a_product(op, values)
    if operands is not None:
        return _product(op, *operands, tile)
    out = np.empty(op.shape, _wide(op.dtype))
    rank, axes = len(op.shape), (*op.axis, *op.reduce_axis)
    for ranges in _tiles([a.extent for a in axes], tile):
        grid = _Grid(values, dict(zip([a.name for a in axes], ranges, strict=True)))
        value = np.broadcast_to(grid.value(op.body), [stop - start for start, stop in ranges])
        block = tuple(slice(*r) for r in ranges[:rank])
        if op.reducer is None:
            out[block] = value
            continue
        kind, within = _COMBINE[op.reducer], tuple(range(rank, len(axes)))
        part = kind.reduce(value, axis=within, dtype=out.dtype)
        first = all(start == 0 for start, _ in ranges[rank:])
        out[block] = part if first else kind(out[block], part)
    return out.astype(numpy_dtype(op.dtype), copy=False)


def _wide(dtype: str) -> np.dtype[Any]:
    return np.dtype(np.float64) if dtype in FLOATS else numpy_dtype(dtype)


def _tiles(extents: Sequence[int], limit: int) -> Iterator[tuple[tuple[int, int], ...]]:
    """Lists blocks of at most `limit` points that cover a domain, the outer axes cut first."""
    sizes = list(extents)
    for place, extent in enumerate(extents):
        inner = math.prod(extents[place + 1 :])
        sizes[place] = min(extent, max(1, limit // inner))
        if sizes[place] > 1:
            break
    cuts = [
        [(start, min(start + size, extent)) for start in range(0, extent, size)]
        for extent, size in zip(extents, sizes, strict=True)
    ]
    return itertools.product(*cuts)


class _Grid:
    """Expressions of a stage on a block of its domain, one dimension for each axis, 1 where it does not matter."""

    def __init__(self, values: Mapping[te.Operation, Array], ranges: Ranges) -> None:
        self._values, self._ranges = values, ranges
        self._vars = {
            name: np.arange(start, stop).reshape([-1 if name == other else 1 for other in ranges])
            for name, (start, stop) in ranges.items()
        }
        self._memo: dict[tuple[int, int], tuple[Any, Any]] = {}

    def value(self, e: Expr, mask: Array | None = None) -> Array:
        """Computes the values of an expression where `mask` holds; elsewhere they are arbitrary."""
        key = (e.serial, id(mask))
        if key not in self._memo:
            self._memo[key] = (self._node(e, mask), mask)  # keeps the mask alive, so that no other object gets its id
        found: Array = self._memo[key][0]
        return found

    def _node(self, e: Expr, mask: Array | None) -> Array:
        if e.op == "const":
            return _round_to_dtype(np.asarray(e.value, _wide(e.dtype)), e.dtype)
        if e.op == "var":
            return self._vars[e.args[0]]
        if e.op == "load":
            return self._load(e, mask)
        if e.op == "select":
            test = self.value(e.args[0], mask)
            then, other = test, np.logical_not(test)
            if mask is not None:
                then, other = then & mask, other & mask
            return np.where(test, self.value(e.args[1], then), self.value(e.args[2], other))
        if e.op == "cast":
            return _cast(self._cast(e, mask), e.dtype)
        if e.op == "call":
            return _round_to_dtype(np.asarray(FUNCTIONS[e.args[0]].array(self.value(e.args[1], mask))), e.dtype)
        a, b = (self.value(x, mask) for x in e.args)
        return _round_to_dtype(np.asarray(BINARY[e.op].array(a, b)), e.dtype)

    def _cast(self, e: Expr, mask: Array | None) -> Array:
        """Computes the operand of a cast, clamped if the cast converts a clamped float."""
        within = match_clamp(e)
        if within is None:
            return self.value(e.args[0], mask)
        return np.asarray(np.fmin(np.fmax(self.value(within.number, mask), within.low), within.high))

    def _load(self, e: Expr, mask: Array | None) -> Array:
        array = self._values[e.args[0].op]
        view = _view(array, e.args[1:], self._ranges)
        if view is None:
            view = array[tuple(self._index(i, n, e, mask) for i, n in zip(e.args[1:], array.shape, strict=True))]
        return view.astype(_wide(e.dtype), copy=False)

    def _index(self, e: Expr, extent: int, load: Expr, mask: Array | None) -> Array:
        at = self.value(e, mask)
        outside = (at < 0) | (at >= extent)
        if outside.any():
            if mask is None or (outside & mask).any():
                raise IndexError(f"{load} must lie in shape {load.args[0].shape}")
            at = np.clip(at, 0, extent - 1)
        return at


def _round_to_dtype(value: Array, dtype: str) -> Array:
    """Rounds values to `dtype`: integers wrap, half floats round; float32 keeps the digits of float64."""
    if dtype == "float32":
        return value
    return value.astype(numpy_dtype(dtype)).astype(_wide(dtype), copy=False)


def _cast(value: Array, dtype: str) -> Array:
    if value.dtype.kind == "f" and dtype not in (*FLOATS, "bool"):
        value = np.trunc(value).astype(np.int64)
    if dtype == "float32":
        return value.astype(np.float32).astype(np.float64)
    return _round_to_dtype(value.astype(_wide(dtype)), dtype)


def _view(array: Array, indices: Sequence[Expr], ranges: Ranges) -> Array | None:
    """Returns elements at affine indices as a strided view, a dimension for each axis; None if that is impossible."""
    start, strides = 0, dict.fromkeys(ranges, 0)
    for index, extent, stride in zip(indices, array.shape, array.strides, strict=True):
        terms = poly(index) if index.dtype == "int64" else {(index,): 1}
        low = high = 0
        for monomial, factor in terms.items():
            if not monomial:
                steps, ends = factor, (0, 0)
                low, high, start = low + steps, high + steps, start + steps * stride
            elif len(monomial) == 1 and monomial[0].op == "var":
                name = monomial[0].args[0]
                ends = (ranges[name][0], ranges[name][1] - 1)
                low, high = low + min(factor * end for end in ends), high + max(factor * end for end in ends)
                start, strides[name] = start + factor * ends[0] * stride, strides[name] + factor * stride
            else:
                return None
        if low < 0 or high >= extent:
            return None
    shape = [stop - first if strides[name] else 1 for name, (first, stop) in ranges.items()]
    if not array.flags.c_contiguous:
        return _view(np.ascontiguousarray(array), indices, ranges)
    flat, item = array.reshape(-1), array.itemsize
    return as_strided(flat[start // item :], shape, [strides[name] for name in ranges], writeable=False)


def _operands_of_a_product(op: te.Operation, values: Mapping[te.Operation, Array]) -> tuple[Array, Array] | None:
    """Returns both sides of a sum of products as views over all axes, in a type with a right sum; else None."""
    body = op.body
    if op.reducer != "sum" or not op.reduce_axis or body is None or body.op != "mul":
        return None
    if op.dtype not in ("float32", "int32"):
        return None
    ranges: Ranges = {a.name: (0, a.extent) for a in (*op.axis, *op.reduce_axis)}
    views = []
    for side in body.args:
        load = side.args[0] if side.op == "cast" else side
        # Sums of products of bytes are exact in float64; products of wider integers may not be.
        if load.op != "load" or load.dtype not in (FLOATS if op.dtype == "float32" else ("int8", "uint8")):
            return None
        array = values[load.args[0].op].astype(np.float32 if op.dtype == "float32" else np.float64, copy=False)
        view = _view(array, load.args[1:], ranges)
        if view is None:
            return None
        views.append(view)
    return views[0], views[1]


def _product(op: te.Operation, left: Array, right: Array, tile: int) -> Array:
    """Computes `sum(left * right)` over the reduce axes by matrix products; axes in both sides are the batch."""
    rank, extents = len(op.shape), [a.extent for a in (*op.axis, *op.reduce_axis)]
    spatial, summed = range(rank), tuple(range(rank, len(extents)))
    batch = tuple(d for d in spatial if left.strides[d] and right.strides[d])
    columns = tuple(d for d in spatial if d not in batch and right.strides[d])
    rows = tuple(d for d in spatial if d not in batch and d not in columns)
    depth = math.prod(extents[rank:])
    out = np.empty(op.shape, left.dtype)
    outer = (*batch, *rows)
    for ranges in _tiles([extents[d] for d in outer], max(1, tile // depth)):
        cut = dict(zip(outer, ranges, strict=True))
        block = tuple(slice(*cut.get(d, (0, extents[d]))) for d in spatial)
        sizes = [cut[d][1] - cut[d][0] if d in cut else extents[d] for d in range(len(extents))]
        a, b = (_block(side, block, sizes, batch, dims, summed) for side, dims in ((left, rows), (right, columns)))
        result = np.matmul(a, b.swapaxes(1, 2)).reshape([sizes[d] for d in (*outer, *columns)])
        out[block] = result.transpose(np.argsort((*outer, *columns)))
    return out.astype(np.int64).astype(np.int32) if op.dtype == "int32" else out


def _block(
    side: Array,
    slices: Sequence[slice],
    sizes: Sequence[int],
    batch: tuple[int, ...],
    dims: tuple[int, ...],
    sum_dims: tuple[int, ...],
) -> Array:
    """Cuts one side of a product to a block of the domain: (batch, dims, summed)."""
    part = side[tuple(cut if side.shape[d] > 1 else slice(None) for d, cut in enumerate(slices))]
    wanted = [sizes[d] if d in (*batch, *dims, *sum_dims) else 1 for d in range(len(sizes))]
    others = tuple(d for d in range(len(sizes)) if wanted[d] == 1 and d not in (*batch, *dims, *sum_dims))
    whole = np.broadcast_to(part, wanted).transpose((*batch, *dims, *sum_dims, *others))
    groups = [fold(int.__mul__, (sizes[d] for d in group), 1) for group in (batch, dims, sum_dims)]
    return whole.reshape(groups)

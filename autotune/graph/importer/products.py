"""Products of matrices."""

from __future__ import annotations

import math

import numpy as np

from autotune.graph.importer.call import Call
from autotune.graph.importer.registry import imports


@imports("Gemm")
def gemm(call: Call) -> str:
    """alpha * a @ b + beta * c; factors of constants are applied to them."""
    left, right = call.value(0), call.value(1)
    left = call.transpose(left, (1, 0)) if call.attr("transA", 0) else left
    right = call.transpose(right, (1, 0)) if call.attr("transB", 0) else right
    alpha = call.attr("alpha", 1.0)
    weight = call.array_of(right)
    if weight is not None:
        out = call.product("matmul", left, _scaled(call, right, alpha))
    else:
        out = _scaled(call, call.product("matmul", left, right), alpha)
    beta = call.attr("beta", 1.0)
    return call.add("add", out, _scaled(call, call.value(2), beta)) if call.has(2) and beta != 0 else out


def _scaled(call: Call, value: str, factor: float) -> str:
    if factor == 1.0:
        return value
    array = call.array_of(value)
    if array is not None:
        return call.constant((array * np.float64(factor)).astype(array.dtype), f"{value}/scaled")
    return call.add("multiply", value, call.scalar(factor, value))


@imports("MatMul")
def matmul(call: Call) -> str:
    """Over leading dimensions that are broadcast: one product of matrices, or one for each."""
    return product(call, call.value(0), call.value(1))


def product(call: Call, left: str, right: str) -> str:
    """`left @ right` as NumPy has it."""
    a, b = call.type_of(left).shape, call.type_of(right).shape
    call.require(bool(a) and bool(b), "must multiply arrays of at least one dimension", f"{list(a)} and {list(b)}")
    if len(a) == 1:
        row = product(call, call.reshape(left, (1, *a)), right)
        shape = call.type_of(row).shape
        return call.reshape(row, shape[:-1] if len(b) == 1 else (*shape[:-2], shape[-1]))
    if len(b) == 1:
        out = product(call, left, call.reshape(right, (*b, 1)))
        return call.reshape(out, call.type_of(out).shape[:-1])
    rows, depth, columns = a[-2], a[-1], b[-1]
    batch = np.broadcast_shapes(a[:-2], b[:-2])
    if math.prod(b[:-2]) == 1:
        flat = call.reshape(left, (math.prod(a[:-1]), depth))
        out = call.product("matmul", flat, call.reshape(right, b[-2:]))
        return call.reshape(out, (*batch, rows, columns))
    count = math.prod(batch)
    first = call.reshape(call.expand(left, (*batch, rows, depth)), (count, rows, depth))
    second = call.reshape(call.expand(right, (*batch, depth, columns)), (count, depth, columns))
    return call.reshape(call.product("batch_matmul", first, second), (*batch, rows, columns))

"""Products of matrices: matmul, batch_matmul and dense."""

from __future__ import annotations

from typing import Any

import numpy as np

from search_space import te
from search_space.operators.base import (
    ACTIVATIONS,
    DATA_TYPES,
    Args,
    Array,
    Operator,
    activated,
    epilogue,
    one_of,
    positive,
    product_of,
    wide,
)


def matmul_arguments(m: int, n: int, k: int, dtype: str = "float32", constant_b: bool = True) -> dict[str, Any]:
    """a (m, k) times b (k, n); with dtype int8, uint8 times int8 summed in int32."""
    positive(m=m, n=n, k=k)
    one_of("dtype", dtype, tuple(DATA_TYPES))
    return {"m": m, "n": n, "k": k, "dtype": dtype, "constant_b": bool(constant_b)}


def _matmul_tensors(args: Args) -> list[te.Tensor]:
    m, n, k, dtype = args["m"], args["n"], args["k"], args["dtype"]
    a = te.placeholder((m, k), DATA_TYPES[dtype], "a")
    b = te.placeholder((k, n), dtype, "b", constant=args["constant_b"])
    r = te.reduce_axis((0, k), "r")
    return [a, b, te.compute((m, n), lambda i, j: te.sum(product_of(a[i, r], b[r, j], dtype), axis=r), name="matmul")]


def _matmul_reference(args: Args, a: Array, b: Array) -> Array:
    return np.asarray(wide(a) @ wide(b)).astype(np.int32 if args["dtype"] == "int8" else np.float32)


def dense_arguments(
    batch: int, in_features: int, out_features: int, bias: bool = False, activation: str | None = None
) -> dict[str, Any]:
    """data (batch, in_features) times the constant weight (in_features, out_features), with its epilogue."""
    positive(batch=batch, in_features=in_features, out_features=out_features)
    if activation is not None:
        one_of("activation", activation, ACTIVATIONS)
    sizes = {"batch": batch, "in_features": in_features, "out_features": out_features}
    return {**sizes, "bias": bool(bias), "activation": activation}


def _dense_tensors(args: Args) -> list[te.Tensor]:
    data = te.placeholder((args["batch"], args["in_features"]), name="data")
    weight = te.placeholder((args["in_features"], args["out_features"]), name="weight", constant=True)
    r = te.reduce_axis((0, args["in_features"]), "r")
    shape = (args["batch"], args["out_features"])
    product = te.compute(shape, lambda i, j: te.sum(data[i, r] * weight[r, j], axis=r), name="dense")
    bias = te.placeholder((args["out_features"],), name="bias", constant=True) if args["bias"] else None
    return [data, weight, *([] if bias is None else [bias]), epilogue(product, bias, args["activation"])]


def _dense_reference(args: Args, x: Array, weight: Array, bias: Array | None = None) -> Array:
    out = x @ weight
    return activated(out if bias is None else out + bias, args["activation"]).astype(np.float32)


def batch_matmul_arguments(batch: int, m: int, n: int, k: int) -> dict[str, Any]:
    """a (batch, m, k) times b (batch, k, n)."""
    positive(batch=batch, m=m, n=n, k=k)
    return {"batch": batch, "m": m, "n": n, "k": k}


def _batch_matmul_tensors(args: Args) -> list[te.Tensor]:
    batch, m, n, k = args["batch"], args["m"], args["n"], args["k"]
    a, b = te.placeholder((batch, m, k), name="a"), te.placeholder((batch, k, n), name="b")
    r = te.reduce_axis((0, k), "r")
    body = lambda s, i, j: te.sum(a[s, i, r] * b[s, r, j], axis=r)  # noqa: E731
    return [a, b, te.compute((batch, m, n), body, name="batch_matmul")]


OPERATORS = (
    Operator("matmul", matmul_arguments, _matmul_tensors, _matmul_reference, lambda a: 2 * a["m"] * a["n"] * a["k"]),
    Operator(
        "dense",
        dense_arguments,
        _dense_tensors,
        _dense_reference,
        lambda a: 2 * a["batch"] * a["in_features"] * a["out_features"],
    ),
    Operator(
        "batch_matmul",
        batch_matmul_arguments,
        _batch_matmul_tensors,
        lambda args, a, b: a @ b,
        lambda a: 2 * a["batch"] * a["m"] * a["n"] * a["k"],
    ),
)

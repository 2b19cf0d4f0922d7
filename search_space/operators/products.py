"""Products of matrices: matmul, batch_matmul, dense."""

from __future__ import annotations

from functools import partial
from typing import Any

from search_space import te
from search_space.ir.expr import Expr
from search_space.operators import strassen
from search_space.operators.arithmetic import OPERANDS, fast, product
from search_space.operators.base import LIBRARY, Args, Array, Operator, Precision, callable_library
from search_space.operators.checks import choice, flag, sizes
from search_space.operators.convolution import ending
from search_space.operators.epilogue import apply_epilogue, with_epilogue
from search_space.operators.naming import over
from search_space.operators.strassen import STRASSEN
from search_space.tags import Tag


def matmul(m: int, n: int, k: int, dtype: str = "float32", constant_b: bool = True) -> dict[str, Any]:
    """Computes a (m, k) times b (k, n).

    Args:
        dtype: float32; tfloat32: float32 with factors rounded to 10 bits of mantissa; float16 or bfloat16, accumulated
            in float32; int8: uint8 a, int8 b and an int32 output.
        constant_b: whether b is a weight, whose layout may be changed before the first call.
    """
    dtype = choice("dtype", dtype, list(OPERANDS))
    return {**sizes(m=m, n=n, k=k), "dtype": dtype, "constant_b": flag("constant_b", constant_b)}


def batch_matmul(
    batch: int, m: int, n: int, k: int, dtype: str = "float32", constant_b: bool = False
) -> dict[str, Any]:
    """Computes a (batch, m, k) times b (batch, k, n), pair by pair. See `matmul` for the arguments."""
    return {**sizes(batch=batch), **matmul(m, n, k, dtype, constant_b)}


def dense(
    batch: int,
    in_features: int,
    out_features: int,
    bias: bool = False,
    activation: str | None = None,
    dtype: str = "float32",
) -> dict[str, Any]:
    """Computes data (batch, in_features) times the constant weight (in_features, out_features). See `conv2d`."""
    return {
        **sizes(batch=batch, in_features=in_features, out_features=out_features),
        **ending(bias, activation, dtype),
    }


PAIRS = "pairs"
"""The algorithm that adds up an even number of products, and then the last one: for instructions on pairs."""


def _available(args: Args, algorithm: str) -> bool:
    if algorithm == STRASSEN:
        constant = args["dtype"] == "float32" and args["constant_b"]
        return bool(constant and strassen.multiplies(args["m"], args["n"], args["k"]))
    if algorithm == PAIRS:
        return bool(args["dtype"] == "bfloat16" and args["k"] % 2 and args["k"] > 1)
    return callable_library(args, algorithm)


def _dense_available(args: Args, algorithm: str) -> bool:
    if algorithm == STRASSEN:
        sizes = args["batch"], args["out_features"], args["in_features"]
        return args["dtype"] == "float32" and strassen.multiplies(*sizes)
    return callable_library(args, algorithm)


def _matmul(args: Args, algorithm: str = "direct") -> list[te.Tensor]:
    m, n, k = args["m"], args["n"], args["k"]
    left, right = OPERANDS[args["dtype"]]
    a = te.placeholder((m, k), left, "a")
    b = te.placeholder((k, n), right, "b", constant=args["constant_b"])
    return [a, b, _product(a, b, args["dtype"], "matmul", algorithm)]


def _batch_matmul(args: Args) -> list[te.Tensor]:
    batch, m, n, k, dtype = (args[name] for name in ("batch", "m", "n", "k", "dtype"))
    left, right = OPERANDS[dtype]
    a = te.placeholder((batch, m, k), left, "a")
    b = te.placeholder((batch, k, n), right, "b", constant=args["constant_b"])
    r = te.reduce_axis((0, k), "r")
    out = te.compute(
        (batch, m, n),
        lambda g, i, j: te.sum(product(a[g, i, r], b[g, r, j], dtype), axis=r),
        name="batch_matmul",
    )
    return [a, b, out]


def _last_apart(args: Args) -> list[te.Tensor]:
    """Defines the sum of all products but the last, and adds that: for `matmul`, or `batch_matmul` with a batch."""
    m, n, k, dtype = (args[name] for name in ("m", "n", "k", "dtype"))
    left, right = OPERANDS[dtype]
    batched = "batch" in args
    name, outer = ("batch_matmul", [args["batch"]]) if batched else ("matmul", [])
    names = ["g"] * batched + ["i", "j"]
    a = te.placeholder((*outer, m, k), left, "a")
    b = te.placeholder((*outer, k, n), right, "b", constant=args["constant_b"])
    r = te.reduce_axis((0, k - 1), "r")

    def term(index: tuple[te.IterVar, ...], r: Any) -> Expr:
        *g, i, j = index
        return product(a[(*g, i, r)], b[(*g, r, j)], dtype)

    def even(*index: te.IterVar) -> te.Reduction:
        return te.sum(term(index, r), axis=r)

    shape = (*outer, m, n)
    sums = te.compute(shape, over(names, even), name="even", tag=Tag.PAIRS)
    return [a, b, te.compute(shape, over(names, lambda *index: sums[index] + term(index, k - 1)), name=name)]


def _dense(args: Args, algorithm: str = "direct") -> list[te.Tensor]:
    left, right = OPERANDS[args["dtype"]]
    data = te.placeholder((args["batch"], args["in_features"]), left, "data")
    weight = te.placeholder((args["in_features"], args["out_features"]), right, "weight", constant=True)
    return with_epilogue(args, [data, weight], _product(data, weight, args["dtype"], "dense", algorithm))


def _product(a: te.Tensor, b: te.Tensor, dtype: str, name: str, algorithm: str) -> te.Tensor:
    if algorithm == STRASSEN:
        return strassen.product(a, b, name)
    tag = Tag.LIBRARY if algorithm == LIBRARY else Tag.NONE
    r = te.reduce_axis((0, a.shape[1]), "r")
    shape = (a.shape[0], b.shape[1])
    return te.compute(shape, lambda i, j: te.sum(product(a[i, r], b[r, j], dtype), axis=r), name=name, tag=tag)


def _reference(args: Args, a: Array, b: Array) -> Array:
    return fast(a, args["dtype"]) @ fast(b, args["dtype"])


def _dense_reference(args: Args, data: Array, weight: Array, *bias: Array) -> Array:
    return apply_epilogue(args, fast(data, args["dtype"]) @ fast(weight, args["dtype"]), *bias)


def _flops(args: Args) -> int:
    return 2 * int(args.get("batch", 1) * args["m"] * args["n"] * args["k"])


def _dense_flops(args: Args) -> int:
    return 2 * int(args["batch"] * args["in_features"] * args["out_features"])


_DEPTH = Precision(lambda args: int(args["k"]))
MATMUL = Operator(
    "matmul",
    matmul,
    {**{name: partial(_matmul, algorithm=name) for name in ("direct", LIBRARY, STRASSEN)}, PAIRS: _last_apart},
    _reference,
    _flops,
    _DEPTH,
    available=_available,
)
BATCH_MATMUL = Operator(
    "batch_matmul",
    batch_matmul,
    {"direct": _batch_matmul, PAIRS: _last_apart},
    _reference,
    _flops,
    _DEPTH,
    available=_available,
)
DENSE = Operator(
    "dense",
    dense,
    {name: partial(_dense, algorithm=name) for name in ("direct", LIBRARY, STRASSEN)},
    _dense_reference,
    _dense_flops,
    Precision(lambda args: int(args["in_features"])),
    available=_dense_available,
)

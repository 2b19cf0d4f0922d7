"""What an operator is: named arguments, a tensor expression, a NumPy reference and a count of operations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from search_space import te
from search_space.ir.expr import Expr

Array = NDArray[Any]
Args = Mapping[str, Any]

ACTIVATIONS = ("relu", "relu6", "sigmoid", "tanh", "gelu", "silu")


@dataclass(frozen=True)
class Operator:
    """One entry of the library.

    Attributes:
        arguments: validates and normalises keyword arguments to plain data.
        tensors: the te definition, inputs first and the output last.
        reference: the vectorised NumPy oracle, called with the arguments and the input arrays.
        flops: floating-point (or integer) operations, a multiply-add counted as two.
    """

    name: str
    arguments: Callable[..., dict[str, Any]]
    tensors: Callable[[Args], list[te.Tensor]]
    reference: Callable[..., Array]
    flops: Callable[[Args], int]
    algorithms: tuple[str, ...] = ("direct",)


def positive(**values: int) -> None:
    """Checks sizes."""
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"`{name}` must be a positive integer, but got {name}={value!r}")


def pair(name: str, value: Any, least: int = 1) -> list[int]:
    """Two integers from one or two."""
    return several(name, value, 2, least)


def several(name: str, value: Any, count: int, least: int = 1) -> list[int]:
    """`count` integers from one integer or a sequence."""
    values = [value] * count if isinstance(value, int) else list(value) if isinstance(value, Sequence) else []
    if len(values) != count or any(isinstance(v, bool) or not isinstance(v, int) or v < least for v in values):
        raise ValueError(f"`{name}` must be one or {count} integers of at least {least}, but got {name}={value!r}")
    return values


def one_of(name: str, value: Any, choices: Sequence[Any]) -> None:
    if value not in choices:
        raise ValueError(f"`{name}` must be one of {', '.join(map(str, choices))}, but got {name}={value!r}")


def windows(size: int, kernel: int, stride: int, padding: int, dilation: int = 1) -> int:
    """Positions of a window along a padded axis; the caller has checked that there is one."""
    return (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1


def check_window(what: str, size: int, kernel: int, padding: int, dilation: int = 1) -> None:
    """Checks that a window fits."""
    reach = dilation * (kernel - 1) + 1
    if reach > size + 2 * padding:
        raise ValueError(
            f"`kernel` must fit the padded {what}, but got a reach of {reach} over {what}={size}, padding={padding}"
        )


def activate(value: Expr, activation: str | None) -> Expr:
    """The activation as a tensor expression."""
    if activation == "relu":
        return te.maximum(value, 0.0)
    if activation == "relu6":
        return te.minimum(te.maximum(value, 0.0), 6.0)
    if activation == "sigmoid":
        return te.sigmoid(value)
    if activation == "tanh":
        return te.tanh(value)
    if activation == "gelu":
        return value * 0.5 * (te.erf(value * 0.7071067811865476) + 1.0)
    return value * te.sigmoid(value) if activation == "silu" else value


def activated(value: Array, activation: str | None) -> Array:
    """The activation in NumPy."""
    if activation == "relu":
        return np.maximum(value, 0)
    if activation == "relu6":
        return np.asarray(np.clip(value, 0, 6))
    if activation == "tanh":
        return np.asarray(np.tanh(value))
    if activation == "gelu":
        return np.asarray(value * 0.5 * (1 + erf(value * 0.7071067811865476)), value.dtype)
    if activation in ("sigmoid", "silu"):
        gate = 1 / (1 + np.exp(-value))
        return np.asarray(gate if activation == "sigmoid" else value * gate)
    return value


def erf(x: Array) -> Array:
    """The error function, element by element in double precision."""
    from math import erf as scalar

    return np.asarray(np.vectorize(scalar, otypes=[np.float64])(x))


def epilogue(tensor: te.Tensor, bias: te.Tensor | None, activation: str | None) -> te.Tensor:
    """Bias along the last axis and activation as one stage; the tensor itself where there is neither."""
    if bias is None and activation is None:
        return tensor

    def body(*i: Any) -> Expr:
        value = tensor[i] if bias is None else tensor[i] + bias[i[-1]]
        return activate(value, activation)

    return te.compute(tensor.shape, body, name="epilogue")


def product_of(a: Expr, b: Expr, dtype: str) -> Expr:
    """a * b in the accumulator's type."""
    if dtype == "int8":
        return a.astype("int32") * b.astype("int32")
    return a * b if dtype == "float32" else a.astype("float32") * b.astype("float32")


DATA_TYPES = {"float32": "float32", "float16": "float16", "bfloat16": "bfloat16", "int8": "uint8"}


def wide(array: Array) -> Array:
    """An array in a type in which sums of products are exact enough: double for integers, float for halves."""
    return array.astype(np.float64 if array.dtype.kind in "iu" else np.float32)

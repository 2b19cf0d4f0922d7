"""Floats rounded to bytes: a form of expression for which no instruction rounds and none converts."""

from __future__ import annotations

from dataclasses import dataclass

from search_space.ir.expr import Expr
from search_space.ir.rounding import match_clamp

ENDS = {"uint8": (0.0, 255.0), "int8": (-128.0, 127.0)}  # least and greatest value of a byte


@dataclass(frozen=True)
class ByteForm:
    """A byte `min(max(rint(number) + added, low), high)`.

    Attributes:
        number: float32.
        addend: a byte; None where nothing is added.
        low, high: whole numbers that the byte holds.
    """

    number: Expr
    addend: Expr | None
    low: float
    high: float


def match_byte_form(e: Expr) -> ByteForm | None:
    """Returns the form of a cast to a byte, if the cast has it; None otherwise."""
    if e.dtype not in ENDS or e.args[0].op != "cast" or e.args[0].dtype != "int32":
        return None
    inner = match_clamp(e.args[0])
    if inner is None:
        return None
    value, low, high = inner.number, inner.low, inner.high
    least, most = ENDS[e.dtype]
    if not (least <= low <= high <= most and low.is_integer() and high.is_integer()):
        return None
    added = None
    if value.op == "add":
        first, second = value.args
        value, other = (first, second) if first.op == "call" else (second, first)
        if other.op != "cast" or other.args[0].dtype not in ENDS:
            return None
        added = other.args[0]
    if value.op != "call" or value.args[0] != "rint":
        return None
    return ByteForm(value.args[1], added, low, high)


def float_of_byte(e: Expr) -> tuple[ByteForm, Expr] | None:
    """Returns the form that is rounded to a byte, and the byte that is subtracted, if their difference is cast to
    float.

    Layers of models that were quantised before import have this form if their sums are rounded to bytes before a float
    is computed from these.
    """
    if e.op != "cast" or e.dtype != "float32" or e.args[0].op != "sub" or e.args[0].dtype != "int32":
        return None
    byte, subtracted = e.args[0].args
    if any(x.op != "cast" or x.args[0].dtype not in ENDS for x in (byte, subtracted)) or byte.args[0].op != "cast":
        return None
    found = match_byte_form(byte.args[0])
    return None if found is None else (found, subtracted.args[0])

"""Random truth values by a counter: a hash of the element's index, a counter and a seed, with no state of its own.

The hash is the finaliser of MurmurHash3 (Appleby, 2008), applied to the counter and then to the index. It depends on
nothing else, so that any order of elements, any number of threads and a resumed run give the same values. Values repeat
after 2^32 counts.
"""

from __future__ import annotations

import math
from typing import Any

from autotune.graph.ops.base import GraphOp, Kind, Tensors, Types, freeze, register
from autotune.graph.types import Attributes
from search_space import te
from search_space.ir.expr import Expr, const, wrap_integer

_BITS = 23
"""Bits of a value that is compared with the share: as many as float32 has."""


def _attributes(attributes: Attributes, types: Types) -> dict[str, Any]:
    share = float(attributes["share"])
    if not 0 <= share <= 1:
        raise ValueError(f"`share` must be between 0 and 1, but got share={share}")
    if [str(kind) for kind in types] != ["int64[1]"]:
        raise ValueError(f"the counter must be int64[1], but got {', '.join(map(str, types))}")
    return {"shape": freeze(attributes["shape"]), "share": share, "key": int(attributes["key"])}


def _word(value: int) -> Expr:
    return const(wrap_integer(value, "int32"), "int32")


def _shift_right(x: Expr, bits: int) -> Expr:
    """Shifts zeros in from the left; the shift of int32 repeats the sign."""
    return (x >> _word(bits)) & _word((1 << (32 - bits)) - 1)


def _exclusive_or(x: Expr, y: Expr) -> Expr:
    return x + y - (x & y) * _word(2)


def _mix(x: Expr) -> Expr:
    x = _exclusive_or(x, _shift_right(x, 16)) * _word(0x85EBCA6B)
    x = _exclusive_or(x, _shift_right(x, 13)) * _word(0xC2B2AE35)
    return _exclusive_or(x, _shift_right(x, 16))


def _bernoulli(attrs: Attributes, tensors: Tensors) -> te.Tensor:
    """Draws truth values that hold with the probability `share`."""
    (counter,) = tensors
    shape, limit = attrs["shape"], round(attrs["share"] * (1 << _BITS))
    start = te.compute(
        (1,), lambda i: _mix(counter[i].astype("int32") * _word(0x9E3779B1) + _word(attrs["key"])), name="start"
    )

    def body(*index: Any) -> Expr:
        flat: Any = const(0)
        for i, extent in zip(index, shape, strict=True):
            flat = flat * extent + i
        drawn = _mix(_mix(flat.astype("int32") + start[0]) + start[0])
        return _shift_right(drawn, 32 - _BITS) < _word(limit)

    assert math.prod(shape) < 1 << 31
    return te.compute(shape, body, name="bernoulli")


register(GraphOp("bernoulli", Kind.compute, _attributes, _bernoulli))

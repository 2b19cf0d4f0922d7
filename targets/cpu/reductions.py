"""Lanes of a vector reduced to one, and the lesser and the greater of two values."""

from __future__ import annotations

import re
import struct
from math import isnan

from search_space.ir.expr import BITS, FLOATS
from targets.cpu.text import Text, Value, float_literal, llvm_type
from targets.cpu.vector_math import VectorMath

_SUFFIX = {"float32": "f32", "bool": "i1"}
_HEX = re.compile(r"0x(H?)([0-9A-F]+)")


def minmax(math: VectorMath, op: str, a: Value, b: Value) -> Value:
    """Computes the lesser (`min`) or the greater (`max`) of two values; NaN if either is NaN.

    Beside a constant that is one instruction of x86, its minimum or maximum. Of two values it is two with AVX-512 and
    three without. One of these waits for `b` alone, so the maximum so far of a reduction should be `b`.
    """
    if a.dtype not in FLOATS:
        return by_comparison(math.text, op, a, b)
    if _is_number(b):
        a, b = b, a
    if "neon" in math.features:  # one instruction, of float32 whatever the processor is
        wide = (x if x.dtype == "float32" else math.convert("fpext", x, "float32") for x in (a, b))
        found = math.intrinsic(f"{op}imum", *wide)
        return found if a.dtype == "float32" else math.convert("fptrunc", found, a.dtype)
    chosen = by_comparison(math.text, op, a, b)
    if _is_number(a):
        return chosen
    if a.lanes == 16 and a.dtype == "float32" and "avx512f" in math.features:
        return _put_right(math, chosen, a)
    nan = math.text.value(f"fcmp uno {a.type} {a.text}, {a.text}", "bool", a.lanes)
    line = f"select {nan.type} {nan.text}, {a.type} {a.text}, {a.type} {chosen.text}"
    return math.text.value(line, a.dtype, a.lanes)


def _put_right(math: VectorMath, choice: Value, a: Value) -> Value:
    """Returns `choice`, and `a` where that is NaN, by one instruction of AVX-512."""
    kind, name = a.type, "llvm.x86.avx512.mask.fixupimm.ps.512"
    math.declarations.add(f"declare {kind} @{name}({kind}, {kind}, <16 x i32>, i32, i16, i32)")
    # Four bits of the table for each class of the second operand: 1, for both classes of NaN, takes it, 0 does not.
    line = (
        f"call {kind} @{name}({kind} {choice.text}, {kind} {a.text}, <16 x i32> splat (i32 17), i32 0, i16 -1, i32 4)"
    )
    return math.text.value(line, a.dtype, a.lanes)


def by_comparison(text: Text, op: str, a: Value, b: Value) -> Value:
    """Computes the lesser or the greater of two values; the second if either is NaN.

    Comparison and choice are one instruction of x86, its minimum or maximum.
    """
    if a.dtype in FLOATS:
        line = f"fcmp {'olt' if op == 'min' else 'ogt'}"
    else:
        sign = "u" if a.dtype in ("uint8", "bool") else "s"
        line = f"icmp {sign}{'lt' if op == 'min' else 'gt'}"
    chosen = text.value(f"{line} {a.type} {a.text}, {b.text}", "bool", a.lanes)
    return text.value(f"select {chosen.type} {chosen.text}, {a.type} {a.text}, {b.type} {b.text}", a.dtype, a.lanes)


def _is_number(x: Value) -> bool:
    """Tells whether a value is a constant other than NaN, in each lane."""
    if x.text.startswith("%"):
        return False
    literal = _HEX.search(x.text)
    if literal is None:  # all zeros
        return True
    half, digits = literal.groups()
    return not isnan(struct.unpack(">e" if half else ">d", bytes.fromhex(digits))[0])


def horizontal(math: VectorMath, reducer: str, x: Value) -> Value:
    """Reduces all lanes of a vector to one scalar; the vector is not of 16-bit floats."""
    kind, scalar = x.type, llvm_type(x.dtype)
    suffix = f"v{x.lanes}{_SUFFIX.get(x.dtype, f'i{BITS[x.dtype]}')}"
    if x.dtype in FLOATS and reducer in ("sum", "prod"):
        # -0, as 0 would change a sum of -0; `reassoc`, as LLVM otherwise adds lane by lane, in order.
        name, start = ("fadd", -0.0) if reducer == "sum" else ("fmul", 1.0)
        math.declarations.add(f"declare {scalar} @llvm.vector.reduce.{name}.{suffix}({scalar}, {kind})")
        operands = f"{scalar} {float_literal(start, x.dtype)}, {kind} {x.text}"
        return math.text.value(f"call reassoc {scalar} @llvm.vector.reduce.{name}.{suffix}({operands})", x.dtype)
    if x.dtype in FLOATS:
        return reduce_by_halves(math, reducer, x)
    sign = "u" if x.dtype in ("uint8", "bool") else "s"
    name = {"sum": "add", "prod": "mul", "min": f"{sign}min", "max": f"{sign}max"}[reducer]
    math.declarations.add(f"declare {scalar} @llvm.vector.reduce.{name}.{suffix}({kind})")
    return math.text.value(f"call {scalar} @llvm.vector.reduce.{name}.{suffix}({kind} {x.text})", x.dtype)


def reduce_by_halves(math: VectorMath, reducer: str, x: Value) -> Value:
    """Reduces a vector to its least or greatest lane: combines halves until one lane is left.

    LLVM's own reduction of floats with defined results for NaN goes lane by lane.
    """
    if x.lanes == 1:
        return math.text.value(f"extractelement {x.type} {x.text}, i32 0", x.dtype)
    half = 1 << (x.lanes - 1).bit_length() - 1
    rest = x.lanes - half
    first, second = (
        math.text.value(
            f"shufflevector {x.type} {x.text}, {x.type} poison, "
            f"<{half} x i32> <{', '.join(f'i32 {place}' for place in lanes)}>",
            x.dtype,
            half,
        )
        for lanes in (range(half), [half + lane % rest for lane in range(half)])
    )
    return reduce_by_halves(math, reducer, minmax(math, reducer, first, second))

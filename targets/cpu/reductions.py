"""Lanes of a vector reduced to one, and the lesser and the greater of two values."""

from __future__ import annotations

from search_space.ir.expr import BITS, FLOATS
from targets.cpu.text import Text, Value, float_literal, llvm_type
from targets.cpu.vector_math import VectorMath

_SUFFIX = {"float32": "f32", "bool": "i1"}


def minmax(text: Text, op: str, a: Value, b: Value) -> Value:
    """The lesser (`min`) or the greater (`max`) of two values; the second where either is not a number."""
    # Comparison and choice are one instruction of x86, its minimum; LLVM's `minnum` gives the other operand for NaN,
    # which takes three.
    if a.dtype in FLOATS:
        line = f"fcmp {'olt' if op == 'min' else 'ogt'}"
    else:
        sign = "u" if a.dtype in ("uint8", "bool") else "s"
        line = f"icmp {sign}{'lt' if op == 'min' else 'gt'}"
    chosen = text.value(f"{line} {a.type} {a.text}, {b.text}", "bool", a.lanes)
    return text.value(f"select {chosen.type} {chosen.text}, {a.type} {a.text}, {b.type} {b.text}", a.dtype, a.lanes)


def horizontal(math: VectorMath, reducer: str, x: Value) -> Value:
    """All lanes of a vector, but for those of 16-bit floats, reduced to one scalar."""
    kind, scalar = x.type, llvm_type(x.dtype)
    suffix = f"v{x.lanes}{_SUFFIX.get(x.dtype, f'i{BITS[x.dtype]}')}"
    if x.dtype in FLOATS and reducer in ("sum", "prod"):
        # -0, as 0 would change a sum of -0; `reassoc`, as LLVM otherwise adds lane by lane, in order.
        name, start = ("fadd", -0.0) if reducer == "sum" else ("fmul", 1.0)
        math.declared.add(f"declare {scalar} @llvm.vector.reduce.{name}.{suffix}({scalar}, {kind})")
        operands = f"{scalar} {float_literal(start, x.dtype)}, {kind} {x.text}"
        return math.text.value(f"call reassoc {scalar} @llvm.vector.reduce.{name}.{suffix}({operands})", x.dtype)
    if x.dtype in FLOATS:
        return halved(math.text, reducer, x)
    sign = "u" if x.dtype in ("uint8", "bool") else "s"
    name = {"sum": "add", "prod": "mul", "min": f"{sign}min", "max": f"{sign}max"}[reducer]
    math.declared.add(f"declare {scalar} @llvm.vector.reduce.{name}.{suffix}({kind})")
    return math.text.value(f"call {scalar} @llvm.vector.reduce.{name}.{suffix}({kind} {x.text})", x.dtype)


def halved(text: Text, reducer: str, x: Value) -> Value:
    """The least or the greatest lane, one half with the other until one lane is left.

    LLVM's own reduction of floats, which says what becomes of numbers that are none, goes lane by lane.
    """
    if x.lanes == 1:
        return text.value(f"extractelement {x.type} {x.text}, i32 0", x.dtype)
    kept = 1 << (x.lanes - 1).bit_length() - 1
    rest = x.lanes - kept
    first, second = (
        text.value(
            f"shufflevector {x.type} {x.text}, {x.type} poison, "
            f"<{kept} x i32> <{', '.join(f'i32 {place}' for place in places)}>",
            x.dtype,
            kept,
        )
        for places in (range(kept), [kept + lane % rest for lane in range(kept)])
    )
    return halved(text, reducer, minmax(text, reducer, first, second))

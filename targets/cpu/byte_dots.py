"""Sums of four products of bytes in each lane: one instruction with AVX512-VNNI or AVX-VNNI, many elsewhere."""

from __future__ import annotations

from targets.cpu.text import Value
from targets.cpu.vector_math import VectorMath

BYTE_SHIFTS = (0, 8, 16, 24)  # first bit of each byte in a word


def one_instruction(features: frozenset[str], lanes: int) -> bool:
    """Tells whether vectors of so many sums have an instruction."""
    if lanes == 16:
        return "avx512vnni" in features
    return lanes in (4, 8) and ({"avx512vnni", "avx512vl"} <= features or "avxvnni" in features)


def add_products(math: VectorMath, total: Value | None, left: Value, right: Value) -> Value:
    """Adds to `total` the unsigned bytes of words times the signed bytes of others; None counts as zero."""
    text = math.text
    lanes = max(left.lanes, right.lanes, 0 if total is None else total.lanes)
    zero = Value("zeroinitializer" if lanes else "0", "int32", lanes)
    total, left, right = (text.splat(x, lanes) for x in (total or zero, left, right))
    kind = total.type
    if one_instruction(math.features, lanes):
        name, factors = f"llvm.x86.avx512.vpdpbusd.{lanes * 32}", f"<{lanes * 4} x i8>"
        math.declarations.add(f"declare {kind} @{name}({kind}, {factors}, {factors})")
        left_bytes, right_bytes = (
            text.value(f"bitcast {x.type} {x.text} to {factors}", "int8", lanes * 4).text for x in (left, right)
        )
        return text.value(
            f"call {kind} @{name}({kind} {total.text}, {factors} {left_bytes}, {factors} {right_bytes})", "int32", lanes
        )

    def shift(name: str, x: Value, amount: int) -> Value:
        shown = f"splat (i32 {amount})" if lanes else str(amount)
        return text.value(f"{name} {kind} {x.text}, {shown}", "int32", lanes)

    for place in BYTE_SHIFTS:
        a = shift("and", shift("lshr", left, place), 255)
        b = shift("ashr", shift("shl", right, 24 - place), 24)
        product = text.value(f"mul {kind} {a.text}, {b.text}", "int32", lanes)
        total = text.value(f"add {kind} {total.text}, {product.text}", "int32", lanes)
    return total

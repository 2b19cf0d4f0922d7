"""Sums of four products of bytes in each lane: one instruction with AVX512-VNNI or AVX-VNNI, else those of pairs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

from search_space.ir.expr import Expr
from targets.cpu.text import Value
from targets.cpu.vector_math import VectorMath

BYTE_SHIFTS = (0, 8, 16, 24)  # first bit of each byte in a word
ANY_BYTE = 255
PAIR = 2 * 128
"""Greatest sum of two products, as a multiple of the greatest unsigned byte."""
MOST_INT16 = (1 << 15) - 1


@dataclass(frozen=True)
class Dot:
    """Words whose bytes are multiplied and added up.

    Attributes:
        left: unsigned bytes.
        right: signed bytes.
        most: bound of the bytes of `left`.
    """

    left: Value
    right: Value
    most: int


@dataclass(frozen=True)
class _Pairs:
    """Names of the instructions that add up products of pairs, in vectors of one size.

    Attributes:
        feature: instruction set that has them.
        of_bytes: unsigned and signed bytes, with sums in int16 that saturate.
        of_words: numbers of int16, with sums in int32.
    """

    feature: str
    of_bytes: str
    of_words: str


_PAIRS = {
    4: _Pairs("avx", "ssse3.pmadd.ub.sw.128", "sse2.pmadd.wd"),
    8: _Pairs("avx2", "avx2.pmadd.ub.sw", "avx2.pmadd.wd"),
    16: _Pairs("avx512bw", "avx512.pmaddubs.w.512", "avx512.pmaddw.d.512"),
}


def one_instruction(features: frozenset[str], lanes: int) -> bool:
    """Tells whether vectors of so many sums have an instruction."""
    if lanes == 16:
        return "avx512vnni" in features
    return lanes in (4, 8) and ({"avx512vnni", "avx512vl"} <= features or "avxvnni" in features)


def in_pairs(features: Iterable[str], lanes: int) -> bool:
    """Tells whether vectors of so many sums have instructions that add up products of pairs."""
    return lanes in _PAIRS and _PAIRS[lanes].feature in features


def greatest_byte(word: Expr) -> int:
    """Bounds the unsigned bytes of a word of int32."""
    if word.op != "bitand":
        return ANY_BYTE
    masks = [x.value & 0xFFFFFFFF for x in word.args if x.op == "const"]
    return min((max(mask.to_bytes(4, "little")) for mask in masks), default=ANY_BYTE)


def split_sum(e: Expr, features: Iterable[str]) -> tuple[list[Expr], list[Expr]]:
    """Splits a sum into other terms, and the dots that are added to them at once.

    An instruction for a dot adds it to the sum so far, so that the order of a sum makes its chains of instructions.
    Then the dots are the last one alone.
    """
    if {"avx512vnni", "avxvnni"}.isdisjoint(features):
        terms = list(_terms(e))
        return [x for x in terms if x.op != "bytedot"], [x for x in terms if x.op == "bytedot"]
    first, last = e.args if e.args[1].op == "bytedot" else e.args[::-1]
    return ([first], [last]) if last.op == "bytedot" else ([e], [])


def _terms(e: Expr) -> Iterator[Expr]:
    if e.op != "add":
        yield e
        return
    for term in e.args:
        yield from _terms(term)


def add_products(math: VectorMath, total: Value | None, dots: Sequence[Dot]) -> Value:
    """Adds to `total` the unsigned bytes of words times the signed bytes of others; None counts as zero."""
    lanes = max(0 if total is None else total.lanes, *(max(dot.left.lanes, dot.right.lanes) for dot in dots))
    splat = [Dot(math.text.splat(d.left, lanes), math.text.splat(d.right, lanes), d.most) for d in dots]
    total = None if total is None else math.text.splat(total, lanes)
    if not one_instruction(math.features, lanes) and in_pairs(math.features, lanes):
        return _PairSums(math, lanes).add(total, splat)
    total = total or Value("zeroinitializer" if lanes else "0", "int32", lanes)
    add = _instruction if one_instruction(math.features, lanes) else _by_byte
    return reduce(lambda so_far, dot: add(math, so_far, dot), splat, total)


def _instruction(math: VectorMath, total: Value, dot: Dot) -> Value:
    lanes, kind, factors = total.lanes, total.type, f"<{total.lanes * 4} x i8>"
    name = f"llvm.x86.avx512.vpdpbusd.{lanes * 32}"
    math.declarations.add(f"declare {kind} @{name}({kind}, {factors}, {factors})")
    left, right = (
        math.text.value(f"bitcast {x.type} {x.text} to {factors}", "int8", lanes * 4).text
        for x in (dot.left, dot.right)
    )
    return math.text.value(
        f"call {kind} @{name}({kind} {total.text}, {factors} {left}, {factors} {right})", "int32", lanes
    )


def _by_byte(math: VectorMath, total: Value, dot: Dot) -> Value:
    lanes, kind, text = total.lanes, total.type, math.text

    def shift(name: str, x: Value, amount: int) -> Value:
        shown = f"splat (i32 {amount})" if lanes else str(amount)
        return text.value(f"{name} {kind} {x.text}, {shown}", "int32", lanes)

    for place in BYTE_SHIFTS:
        a = shift("and", shift("lshr", dot.left, place), 255)
        b = shift("ashr", shift("shl", dot.right, 24 - place), 24)
        product = text.value(f"mul {kind} {a.text}, {b.text}", "int32", lanes)
        total = text.value(f"add {kind} {total.text}, {product.text}", "int32", lanes)
    return total


class _PairSums:
    """An emitter of sums by instructions that add up products of pairs.

    Args:
        lanes: words of a vector.
    """

    def __init__(self, math: VectorMath, lanes: int) -> None:
        self.math, self.lanes, self.names = math, lanes, _PAIRS[lanes]
        self.types = {"i8": f"<{lanes * 4} x i8>", "i16": f"<{lanes * 2} x i16>", "i32": f"<{lanes} x i32>"}

    def add(self, total: Value | None, dots: Sequence[Dot]) -> Value:
        """Adds the dots to a total: those of small bytes in int16 while no sum can exceed it."""
        parts = [] if total is None else [total.text]
        narrow, bound = "", 0
        for dot in sorted(dots, key=lambda dot: dot.most):
            if dot.most * PAIR > MOST_INT16:
                parts += self.halves(dot)
                continue
            if bound + dot.most * PAIR > MOST_INT16:
                parts.append(self.widen(narrow))
                narrow, bound = "", 0
            sums = self.call(self.names.of_bytes, "i8", "i16", self.cast(dot.left, "i8"), self.cast(dot.right, "i8"))
            narrow = self.emit("add", "i16", narrow, sums) if narrow else sums
            bound += dot.most * PAIR
        parts += [self.widen(narrow)] if narrow else []
        # As a tree: a chain would wait for each addition.
        while len(parts) > 1:
            parts = [self.emit("add", "i32", *pair) if len(pair) == 2 else pair[0] for pair in _in_twos(parts)]
        return Value(parts[0], "int32", self.lanes)

    def halves(self, dot: Dot) -> list[str]:
        """Returns the sums of products of even and of odd bytes, which are widened to int16 first."""
        left, right = (self.cast(x, "i16") for x in (dot.left, dot.right))
        eight = "splat (i16 8)"
        even = self.emit("ashr", "i16", self.emit("shl", "i16", right, eight), eight)
        pairs = (
            (self.emit("and", "i16", left, f"splat (i16 {ANY_BYTE})"), even),
            (self.emit("lshr", "i16", left, eight), self.emit("ashr", "i16", right, eight)),
        )
        return [self.call(self.names.of_words, "i16", "i32", *pair) for pair in pairs]

    def widen(self, sums: str) -> str:
        """Adds up the pairs of a vector of int16."""
        return self.call(self.names.of_words, "i16", "i32", sums, "splat (i16 1)")

    def cast(self, x: Value, element: str) -> str:
        return self.name(f"bitcast {x.type} {x.text} to {self.types[element]}")

    def emit(self, operation: str, element: str, a: str, b: str) -> str:
        return self.name(f"{operation} {self.types[element]} {a}, {b}")

    def call(self, name: str, operand: str, result: str, a: str, b: str) -> str:
        given, returned = self.types[operand], self.types[result]
        self.math.declarations.add(f"declare {returned} @llvm.x86.{name}({given}, {given})")
        return self.name(f"call {returned} @llvm.x86.{name}({given} {a}, {given} {b})")

    def name(self, instruction: str) -> str:
        return self.math.text.value(instruction, "int32", self.lanes).text


def _in_twos(parts: Sequence[str]) -> list[Sequence[str]]:
    return [parts[at : at + 2] for at in range(0, len(parts), 2)]

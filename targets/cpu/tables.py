"""Functions of numbers of four bits: a permutation of a register of AVX-512 looks up which of 16 values it is.

It reads the lowest four bits of each lane alone, so that numbers taken out of a word need no mask and no conversion.
"""

from __future__ import annotations

from dataclasses import dataclass

from search_space.ir.expr import Expr, const, transform
from targets.cpu.text import Value, float_literal
from targets.cpu.vector_math import VectorMath

ENTRIES = 16
"""Values of a number of four bits, as many as a register of AVX-512 has lanes."""
LANES = 16
"""Elements of 32 bits in a register of AVX-512."""
REQUIRED_FEATURE = "avx512f"


@dataclass(frozen=True)
class Lookup:
    """A lookup of a number's lowest four bits in a table.

    Attributes:
        word: int32, of which the lowest four bits count.
        entries: the float32 for each number that these may be.
    """

    word: Expr
    entries: tuple[float, ...]


def match_lookup(e: Expr) -> Lookup | None:
    """Recognises a conversion to float32 that reads nothing but one `word % 16`, and tabulates it; None otherwise."""
    if e.op != "cast" or e.dtype != "float32" or e.args[0].dtype != "int32":
        return None
    inner = e.args[0]
    remainder = inner
    while remainder.op in ("add", "sub") and remainder.args[1].is_const:
        remainder = remainder.args[0]
    if remainder.op != "mod" or not remainder.args[1].is_const or int(remainder.args[1].value) != ENTRIES:
        return None
    return Lookup(remainder.args[0], tuple(_entry(inner, remainder, number) for number in range(ENTRIES)))


def _entry(e: Expr, part: Expr, number: int) -> float:
    """Evaluates the expression where one part of it is a number."""
    return float(transform(e, lambda node: const(number, "int32") if node is part else None).value)


def looked_up(math: VectorMath, word: Value, entries: tuple[float, ...]) -> Value | None:
    """Looks up the entry for each lane; None if the machine has no such permutation."""
    if word.lanes != LANES or REQUIRED_FEATURE not in math.features:
        return None
    name, kind = "llvm.x86.avx512.permvar.sf.512", f"<{LANES} x float>"
    math.declarations.add(f"declare {kind} @{name}({kind}, <{LANES} x i32>)")
    table = ", ".join(f"float {float_literal(entry, 'float32')}" for entry in entries)
    return math.text.value(f"call {kind} @{name}({kind} <{table}>, {word.type} {word.text})", "float32", LANES)

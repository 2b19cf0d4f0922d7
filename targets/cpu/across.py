"""Vectors that run across the rows of what they read, as those of a transposition do: four of them at a time.

Lanes lie a row apart, and each would be loaded by itself. Where the next elements of the rows are wanted too, as an
unrolled loop says, 4 neighbours of each row are loaded, and 4 vectors made of them by shuffles within 128 bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from search_space.hardware import COLUMNS
from search_space.ir.expr import BITS, Expr, substitute
from search_space.ir.simplify import Simplifier
from targets.cpu.addresses import Plan
from targets.cpu.storage import Storage
from targets.cpu.text import Text, Value

WIDTH = 32
"""Bits of an element."""


def neighbours(
    plan: Plan, storage: Storage, lanes: int, index: Expr, numbers: Mapping[str, int], simplify: Simplifier
) -> bool:
    """Whether lanes lie rows apart, and the next elements of all these rows are there and wanted as well.

    Args:
        plan: of the access.
        storage: of what is read.
        lanes: of a vector.
        index: along the rows.
        numbers: of the unrolled loops that it depends on.
        simplify: knows the ranges of the others.
    """
    if plan.gather or plan.loaded or len(plan.unrolled) != 1 or lanes not in (4, 8, 16):
        return False
    ((variable, step),) = plan.unrolled
    if step != 1 or variable not in numbers or BITS[storage.dtype] != WIDTH or not 0 < storage.row <= plan.lane:
        return False
    after = COLUMNS - 1 - numbers[variable] % COLUMNS
    last = simplify(substitute(index, dict(numbers)) + after)
    return simplify.at_most_zero(last - (storage.row - 1))


def columns(text: Text, rows: Sequence[Value]) -> list[Value]:
    """Element i of every row, in vectors: (lanes, 4) -> (4, lanes); the lanes are a multiple of 4."""
    # The vectors that are shuffled have in their parts of 128 bits rows that lie 4 apart, so that nothing crosses.
    a, b, c, d = (_joined(text, rows[first::COLUMNS]) for first in range(COLUMNS))
    low, high = (0, 4, 1, 5), (2, 6, 3, 7)  # of two parts, the second one's elements counted from 4
    ab, cd = [_mixed(text, a, b, p) for p in (low, high)], [_mixed(text, c, d, p) for p in (low, high)]
    return [_mixed(text, x, y, p) for x, y in zip(ab, cd, strict=True) for p in ((0, 1, 4, 5), (2, 3, 6, 7))]


def _joined(text: Text, parts: Sequence[Value]) -> Value:
    """Parts behind each other, by halves."""
    while len(parts) > 1:
        lanes = 2 * parts[0].lanes
        parts = [_shuffled(text, x, y, range(lanes)) for x, y in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0]


def _mixed(text: Text, x: Value, y: Value, places: Sequence[int]) -> Value:
    """Elements of two vectors within each part of 128 bits."""
    order = []
    for part in range(0, x.lanes, COLUMNS):
        order += [part + p if p < COLUMNS else x.lanes + part + p - COLUMNS for p in places]
    return _shuffled(text, x, y, order)


def _shuffled(text: Text, x: Value, y: Value, order: Sequence[int]) -> Value:
    places = ", ".join(f"i32 {place}" for place in order)
    line = f"shufflevector {x.type} {x.text}, {y.type} {y.text}, <{len(order)} x i32> <{places}>"
    return text.value(line, x.dtype, len(order))

"""Vectors that run across the rows of a buffer, as those of a transposition do: several of them at a time.

Lanes are a row apart, and each would be loaded by itself. If the next elements of the rows are read, too, in an
unrolled loop, 128 bits of each row are loaded: 4 neighbours, or 8. Shuffles within 128 bits make as many vectors of
them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from search_space.hardware import fragment_columns
from search_space.ir.expr import BITS, Expr, substitute
from search_space.ir.simplify import Simplifier
from targets.cpu.addresses import Plan
from targets.cpu.storage import Storage
from targets.cpu.text import Text, Value

WIDTHS = (16, 32)
"""Bits of an element."""


def neighbours(
    plan: Plan, storage: Storage, lanes: int, index: Expr, numbers: Mapping[str, int], simplify: Simplifier
) -> bool:
    """Tells whether lanes are rows apart, and the next elements of all these rows exist and are read as well.

    Args:
        plan: plan of the access.
        storage: storage of the buffer that is read.
        lanes: lanes of a vector.
        index: index along the rows.
        numbers: values of the unrolled variables that the index depends on.
        simplify: knows the ranges of the others.
    """
    together = fragment_columns(storage.dtype)
    if (
        plan.gather
        or plan.loaded_terms
        or len(plan.unrolled_terms) != 1
        or lanes not in (4, 8, 16, 32)
        or lanes % together
    ):
        return False
    ((variable, step),) = plan.unrolled_terms
    if step != 1 or variable not in numbers or BITS[storage.dtype] not in WIDTHS or not 0 < storage.row <= plan.lane:
        return False
    after = together - 1 - numbers[variable] % together
    last = simplify(substitute(index, dict(numbers)) + after)
    return simplify.at_most_zero(last - (storage.row - 1))


def columns(text: Text, rows: Sequence[Value]) -> list[Value]:
    """Gathers element i of every row in vector i: (lanes, n) -> (n, lanes), where n elements fill 128 bits."""
    # The vectors that are shuffled have in their parts of 128 bits rows that lie n apart, so that nothing crosses.
    count = rows[0].lanes
    vectors = [_concatenate(text, rows[first::count]) for first in range(count)]
    if count > 4:
        return _transpose(text, vectors)
    a, b, c, d = vectors
    low, high = (0, 4, 1, 5), (2, 6, 3, 7)  # of two parts, the second one's elements counted from 4
    ab, cd = [_shuffle_parts(text, a, b, p) for p in (low, high)], [_shuffle_parts(text, c, d, p) for p in (low, high)]
    return [_shuffle_parts(text, x, y, p) for x, y in zip(ab, cd, strict=True) for p in ((0, 1, 4, 5), (2, 3, 6, 7))]


def _transpose(text: Text, vectors: list[Value]) -> list[Value]:
    """Transposes square matrices, one in each part of the vectors: vector i holds row i of every part.

    Each turn interleaves halves of vectors that are half their number apart; there are log2(count) turns.
    """
    count = len(vectors)
    half = count // 2
    turns = [[x for i in range(first, first + half) for x in (i, count + i)] for first in (0, half)]
    for _ in range(half.bit_length()):
        vectors = [_shuffle_parts(text, vectors[i], vectors[i + half], p) for i in range(half) for p in turns]
    return vectors


def _concatenate(text: Text, parts: Sequence[Value]) -> Value:
    """Concatenates parts, by halves."""
    while len(parts) > 1:
        lanes = 2 * parts[0].lanes
        parts = [_shuffle(text, x, y, range(lanes)) for x, y in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0]


def _shuffle_parts(text: Text, x: Value, y: Value, positions: Sequence[int]) -> Value:
    """Shuffles elements of two vectors within each part of 128 bits; places of the second follow those of the first."""
    order, size = [], len(positions)
    for part in range(0, x.lanes, size):
        order += [part + p if p < size else x.lanes + part + p - size for p in positions]
    return _shuffle(text, x, y, order)


def _shuffle(text: Text, x: Value, y: Value, order: Sequence[int]) -> Value:
    places = ", ".join(f"i32 {place}" for place in order)
    line = f"shufflevector {x.type} {x.text}, {y.type} {y.text}, <{len(order)} x i32> <{places}>"
    return text.value(line, x.dtype, len(order))

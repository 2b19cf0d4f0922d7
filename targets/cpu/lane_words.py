"""Words of a few elements that each lane of an instruction has for itself: one load, and a permutation in the register.

Pairs of input channels are such, where lanes are output channels of several groups.
"""

from __future__ import annotations

from search_space.ir.expr import substitute
from search_space.ir.stmt import Operand
from targets.base import BuildError
from targets.cpu.addresses import LANE, Terms
from targets.cpu.text import Value
from targets.cpu.values import Values
from targets.cpu.windows import Window, shuffle, window

LANES = 16
"""Words of 32 bits in a register of AVX-512."""


def lane_words(values: Values, operand: Operand, depth: int) -> tuple[Value, bool]:
    """Loads the words of all lanes as floats of 32 bits; tells whether all lanes share one word.

    Args:
        operand: its `depth` elements along `#1`, of 32 bits together, lie next to each other.

    Raises:
        BuildError: words that lie across others, or further apart than two vectors.
    """
    storage = values.storage[operand.buffer]
    plan = values.addresses.plan(operand.buffer, tuple(substitute(e, {"#1": 0}) for e in operand.elements))
    outer, values.lane = values.lane, (LANE, LANES)
    lanes_at = values.even_lanes(plan, *values.addresses.offset(plan))
    values.lane = outer
    words = None if lanes_at is None else _in_words(*lanes_at, storage.grain, depth)
    if words is None:
        raise BuildError(f"lanes must read whole words within two vectors, but got {list(operand.elements)}")
    pointer = values.addresses.pointer(
        operand.buffer, tuple((m, c * depth) for m, c in words.terms), words.constant * depth
    )
    if words.size == 1:
        return _everywhere(values, operand.buffer, pointer), True
    block = _block(values, operand.buffer, pointer, words, depth)
    if words.positions == tuple(range(words.size)) and words.size == LANES:
        return block, False
    order = ("lanes", block.text, words.positions)
    known: Value | None = values.text.lookup(order)
    if known is None:
        known = values.text.remember(order, shuffle(values.math, block, words.positions))
    return known, False


def _in_words(terms: Terms, constant: int, offsets: tuple[int, ...], grain: int, depth: int) -> Window | None:
    """Returns the block that holds all lanes' words, counted in words."""
    if any(n % depth for n in (constant, *offsets, *(c for _, c in terms))):
        return None
    words = tuple((m, c // depth) for m, c in terms)
    return window(words, constant // depth, tuple(o // depth for o in offsets), max(1, grain // depth))


def _everywhere(values: Values, buffer: str, pointer: str) -> Value:
    """Loads one word into every lane."""
    text, key = values.text, ("word", pointer, values.versions.get(buffer, 0), values.epoch)
    broadcast: Value | None = text.lookup(key)
    if broadcast is None:
        word = text.value(f"load float, ptr {pointer}, align 1", "float32")
        broadcast = text.remember(key, values.ops.vector(word, LANES))
    return broadcast


def _block(values: Values, buffer: str, pointer: str, window: Window, depth: int) -> Value:
    """Loads neighbouring words, except those that may not exist."""
    where = (pointer, window.size, window.there)
    text, key = values.text, ("words", where, values.versions.get(buffer, 0), values.epoch)
    block: Value | None = text.lookup(key)
    if block is None:
        count, mask = window.size * depth, None
        if window.there < window.size:
            bits = ", ".join(f"i1 {int(i < window.there * depth)}" for i in range(count))
            mask = Value(f"<{bits}>", "bool", count)
        else:
            terms = tuple((monomial, c * depth) for monomial, c in window.terms)
            values.prefetch(buffer, pointer, terms, window.constant * depth)
        loaded = values.memory.load(pointer, values.storage[buffer].dtype, count, mask)
        line = f"bitcast {loaded.type} {loaded.text} to <{window.size} x float>"
        block = text.remember(key, text.value(line, "float32", window.size))
    return block

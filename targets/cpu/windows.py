"""Lanes whose elements lie close together though not in order: one load, and a permutation within the register.

Channels of grouped convolutions are such: 16 lanes of output channels read 4 input channels of each of 4 groups. Where
channels of groups take turns, as in a shuffle of channels, the elements lie in a few runs, which are a load each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from math import gcd

from search_space.ir.expr import Expr, const, substitute
from search_space.ir.polynomial import Poly, canon, poly, poly_add
from targets.cpu.addresses import Terms
from targets.cpu.text import Value, llvm_type
from targets.cpu.vector_math import VectorMath


@dataclass(frozen=True)
class Window:
    """A block of neighbours that holds every lane's element.

    Attributes:
        terms, constant: offset of the block's first element, see `Addresses.offset`.
        size: elements of the block, a power of two.
        there: how many of them are known to lie in the array; those behind must not be read.
        places: of the lanes, in the block.
    """

    terms: Terms
    constant: int
    size: int
    there: int
    places: tuple[int, ...]

    def spacing(self) -> tuple[int, int] | None:
        """The lane that takes the first element, and how far apart those are that take the next ones, each its own.

        None where elements are taken by lanes in another order, by several, or by none.
        """
        if sorted(place for place in self.places if place >= 0) != list(range(self.size)) or self.size < 2:
            return None
        taken = [self.places.index(place) for place in range(self.size)]
        step = taken[1] - taken[0]
        return (taken[0], step) if all(b - a == step for a, b in pairwise(taken)) else None


def apart(gather: Terms, lane: tuple[str, int], fixed: Callable[[Expr], Expr]) -> tuple[Poly, tuple[int, ...]] | None:
    """Offset of the first lane's element, and how far from it those of all lanes are; None where that is not known.

    Args:
        gather: the part of an offset that varies with the lanes in other ways than evenly.
        lane: variable and number of the lanes.
        fixed: an expression with the numbers of unrolled loops put in, simplified.
    """
    variable, width = lane
    first: Poly = {}
    offsets = []
    for position in range(width):
        here: Poly = {}
        for monomial, coefficient in gather:
            whole = const(coefficient)
            for atom in monomial:
                whole = whole * fixed(substitute(atom, {variable: position}))
            here = poly_add(here, poly(canon(whole)))
        first = here if position == 0 else first
        distance = poly_add(here, first, -1)
        if any(distance):  # a monomial besides the constant
            return None
        offsets.append(distance.get((), 0))
    return first, tuple(offsets)


def window(terms: Terms, constant: int, offsets: tuple[int, ...], grain: int) -> Window | None:
    """The smallest block with the elements of all lanes, or None where none of twice their number has them.

    An aligned one, where there is one, can be read whole, and serves neighbouring accesses, too; else it begins with
    the first element of any lane and ends with the last one, both of which are there.

    Args:
        terms, constant: offset of the first lane's element.
        offsets: of the lanes from there.
        grain: blocks of so many elements, or a divisor of it, lie in an array's rows or outside of them as a whole.
    """
    aligned = gcd(grain, *(c for _, c in terms))
    low, high = constant + min(offsets), constant + max(offsets)
    size = 1
    while size <= 2 * len(offsets) and aligned % size == 0:
        start = low // size * size
        if high < start + size:
            return Window(terms, start, size, size, tuple(constant + o - start for o in offsets))
        size *= 2
    there = high - low + 1
    size = 1 << (there - 1).bit_length()
    if size > 2 * len(offsets):
        return None
    return Window(terms, low, size, there, tuple(constant + o - low for o in offsets))


MOST_RUNS = 4
"""Loads in place of one gather; each but the first is followed by a permutation of two registers."""


def runs(terms: Terms, constant: int, offsets: tuple[int, ...]) -> tuple[Window, ...] | None:
    """Blocks that together hold each lane's element once, a run of them each; None where these are too many.

    A lane that has no element in a block has the place -1 there.

    Args:
        terms, constant: offset of the first lane's element.
        offsets: of the lanes from there.
    """
    width, ordered = len(offsets), sorted(set(offsets))
    # Lanes that share an element are not merged: a mask says for each element of a block which one lane it is for.
    if len(ordered) < width:
        return None
    # Elements with one other between them stay together: a longer block costs nothing, one more run a load.
    cuts = [0, *(i for i in range(1, width) if ordered[i] - ordered[i - 1] > 2), width]
    if len(cuts) - 1 > MOST_RUNS:
        return None
    found = []
    for begin, end in pairwise(cuts):
        low, there = ordered[begin], ordered[end - 1] - ordered[begin] + 1
        if there > width:
            return None
        places = tuple(o - low if low <= o < low + there else -1 for o in offsets)
        found.append(Window(terms, constant + low, 1 << (there - 1).bit_length(), there, places))
    return tuple(found)


REGISTER, PART = 64, 16
"""Bytes of the widest registers, and of the parts within which most instructions shuffle."""
BYTES = frozenset({"uint8", "int8"})


def mask_of(math: VectorMath, mask: Value | None, part: Window) -> Value | None:
    """The mask under which a block is read: of each element that of the lane that takes it, off where none does."""
    taken = [part.places.index(place) if place in part.places else -1 for place in range(part.size)]
    by_lane = mask is not None and bool(mask.lanes)
    if (part.size == 1 and not by_lane) or (-1 not in taken and not by_lane):
        return mask
    if mask is not None and part.size == 1:
        return math.text.value(f"extractelement {mask.type} {mask.text}, i32 {taken[0]}", "bool")
    if mask is not None and by_lane:
        order = ", ".join(f"i32 {lane if lane >= 0 else mask.lanes}" for lane in taken)
        line = f"shufflevector {mask.type} {mask.text}, {mask.type} zeroinitializer, <{part.size} x i32> <{order}>"
        return math.text.value(line, "bool", part.size)
    bits = Value(f"<{', '.join(f'i1 {int(lane >= 0)}' for lane in taken)}>", "bool", part.size)
    if mask is None:
        return bits
    every = math.text.splat(mask, part.size)
    return math.text.value(f"and {every.type} {every.text}, {bits.text}", "bool", part.size)


def merged(math: VectorMath, blocks: list[Value], windows: tuple[Window, ...]) -> Value:
    """The lanes' elements of several blocks."""
    width = len(windows[0].places)
    if width == REGISTER and {block.dtype for block in blocks} <= BYTES and sum(w.size for w in windows) == width:
        return _side_by_side(math, blocks, windows)
    wide = [_widened(math, block, width) for block in blocks]
    value, *more = wide
    known = windows[0].places
    if not more:
        return shuffled(math, value, known)
    for other, found in zip(more, windows[1:], strict=True):
        chosen = [width + there if there >= 0 else here for here, there in zip(known, found.places, strict=True)]
        order = ", ".join(f"i32 {place}" if place >= 0 else "i32 poison" for place in chosen)
        line = f"shufflevector {value.type} {value.text}, {other.type} {other.text}, <{width} x i32> <{order}>"
        value = math.text.value(line, value.dtype, width)
        known = tuple(lane if place >= 0 else -1 for lane, place in enumerate(chosen))
    return value


def _side_by_side(math: VectorMath, blocks: list[Value], windows: tuple[Window, ...]) -> Value:
    """The lanes' bytes of blocks that fill a register of 64 together: put there one behind the other, then permuted.

    Permuting two registers of bytes takes Intel's processors three steps, one register takes one. Words of four bytes
    come to the right part of 128 bits first, if that is enough: LLVM makes one instruction of both where there is one.
    """
    width, begins = len(windows[0].places), [sum(w.size for w in windows[:i]) for i in range(len(windows))]
    while len(blocks) > 1:
        blocks = [_joined(math, *blocks[i : i + 2]) for i in range(0, len(blocks), 2)]
    places = [
        next(begin + w.places[lane] for begin, w in zip(begins, windows, strict=True) if w.places[lane] >= 0)
        for lane in range(width)
    ]
    (block,) = blocks
    words = _words_first(tuple(places))
    if words is None:
        return shuffled(math, block, tuple(places))
    whole, within = words
    line = f"bitcast {block.type} {block.text} to <{width // 4} x i32>"
    moved = shuffled(math, math.text.value(line, "int32", width // 4), whole)
    line = f"bitcast {moved.type} {moved.text} to {block.type}"
    return shuffled(math, math.text.value(line, block.dtype, width), within)


def _words_first(places: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Places of words, then of bytes within parts of 16, that give these places; None where four words do not do."""
    whole, within = [], []
    for part in range(0, len(places), PART):
        words = sorted({place // 4 for place in places[part : part + PART]})
        if len(words) > PART // 4:
            return None
        whole += words + words[:1] * (PART // 4 - len(words))
        within += [part + words.index(place // 4) * 4 + place % 4 for place in places[part : part + PART]]
    return tuple(whole), tuple(within)


def _joined(math: VectorMath, first: Value, second: Value) -> Value:
    """Two registers as one of both."""
    lanes = first.lanes + second.lanes
    order = ", ".join(f"i32 {i}" for i in range(lanes))
    line = f"shufflevector {first.type} {first.text}, {second.type} {second.text}, <{lanes} x i32> <{order}>"
    return math.text.value(line, first.dtype, lanes)


def _widened(math: VectorMath, block: Value, width: int) -> Value:
    if block.lanes == width:
        return block
    if not block.lanes:
        return math.text.value(
            f"insertelement <{width} x {block.type}> poison, {block.type} {block.text}, i32 0", block.dtype, width
        )
    order = ", ".join(f"i32 {i}" if i < block.lanes else "i32 poison" for i in range(width))
    line = f"shufflevector {block.type} {block.text}, {block.type} poison, <{width} x i32> <{order}>"
    return math.text.value(line, block.dtype, width)


def crosses(places: tuple[int, ...], part: int = 4) -> bool:
    """Whether lanes take elements of other parts of a vector than their own, or each part of it in another order."""
    return any(
        place // part != lane // part or place % part != places[lane % part] % part for lane, place in enumerate(places)
    )


def shuffled(math: VectorMath, block: Value, places: tuple[int, ...]) -> Value:
    """Lanes taken from anywhere in a block.

    Where they cross parts of 128 bits, LLVM takes two instructions with constants on processors that it believes
    to be slow at one with a register of places; that register stays, and none is.
    """
    width = len(places)
    order = ", ".join(f"i32 {place}" for place in places)
    if width == 16 and block.dtype == "float32" and "avx512f" in math.features and crosses(places):
        name, kind = "llvm.x86.avx512.permvar.sf.512", llvm_type("float32", 16)
        math.declared.add(f"declare {kind} @{name}({kind}, <16 x i32>)")
        if block.lanes < 16:
            wide = ", ".join(f"i32 {i}" if i < block.lanes else "i32 poison" for i in range(16))
            line = f"shufflevector {block.type} {block.text}, {block.type} poison, <16 x i32> <{wide}>"
            block = math.text.value(line, block.dtype, 16)
        if block.lanes == 16:
            return math.text.value(f"call {kind} @{name}({kind} {block.text}, <16 x i32> <{order}>)", "float32", 16)
    line = f"shufflevector {block.type} {block.text}, {block.type} poison, <{width} x i32> <{order}>"
    return math.text.value(line, block.dtype, width)

"""Lanes whose elements are close together though not in order: one load, and a permutation within the register.

Channels of grouped convolutions are such: 16 lanes of output channels read 4 input channels of each of 4 groups. If
channels of groups take turns, as in a shuffle of channels, the elements form a few runs, each of which is a load.
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
        there: number of elements certainly within the array; those behind must not be read.
        positions: position of each lane's element in the block.
    """

    terms: Terms
    constant: int
    size: int
    there: int
    positions: tuple[int, ...]

    def spacing(self) -> tuple[int, int] | None:
        """Returns the lane of the first element, and the distance between lanes of consecutive elements.

        None if elements are taken by lanes in another order, by several, or by none.
        """
        if sorted(place for place in self.positions if place >= 0) != list(range(self.size)) or self.size < 2:
            return None
        taken = [self.positions.index(place) for place in range(self.size)]
        step = taken[1] - taken[0]
        return (taken[0], step) if all(b - a == step for a, b in pairwise(taken)) else None


def apart(gather: Terms, lane: tuple[str, int], fixed: Callable[[Expr], Expr]) -> tuple[Poly, tuple[int, ...]] | None:
    """Returns the offset of the first lane's element and the distances of all lanes from it; None if unknown.

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
    """Finds the smallest block with the elements of all lanes; None if it had more than twice their number.

    An aligned block, if there is one, can be read whole, and serves neighbouring accesses, too. Any other block begins
    with the first element of any lane and ends with the last one, both of which exist.

    Args:
        terms, constant: offset of the first lane's element.
        offsets: distances of all lanes from there.
        grain: size of blocks, or a divisor of it, that are always either within an array's rows or outside.
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
    """Splits the lanes' elements into blocks, one for each run of neighbours; None if there are too many runs.

    A lane that has no element in a block has the place -1 there.

    Args:
        terms, constant: offset of the first lane's element.
        offsets: distances of all lanes from there.
    """
    width, ordered = len(offsets), sorted(set(offsets))
    # Lanes that share an element are not merged: a mask says for each element of a block which one lane it is for.
    if len(ordered) < width:
        return None
    # Elements with one other between them stay together: a longer block costs nothing, one more run a load.
    cuts = [0, *(i for i in range(1, width) if ordered[i] - ordered[i - 1] > 2), width]
    if len(cuts) - 1 > MOST_RUNS:
        return None
    blocks = []
    for begin, end in pairwise(cuts):
        low, there = ordered[begin], ordered[end - 1] - ordered[begin] + 1
        if there > width:
            return None
        places = tuple(o - low if low <= o < low + there else -1 for o in offsets)
        blocks.append(Window(terms, constant + low, 1 << (there - 1).bit_length(), there, places))
    return tuple(blocks)


REGISTER, PART = 64, 16
"""Bytes of the widest registers, and of the parts within which most instructions shuffle."""
BYTES = frozenset({"uint8", "int8"})


def make_mask(math: VectorMath, mask: Value | None, part: Window) -> Value | None:
    """Permutes the lanes' mask to the elements of a block; it is off for elements that no lane takes."""
    lanes = [part.positions.index(place) if place in part.positions else -1 for place in range(part.size)]
    by_lane = mask is not None and bool(mask.lanes)
    if (part.size == 1 and not by_lane) or (-1 not in lanes and not by_lane):
        return mask
    if mask is not None and part.size == 1:
        return math.text.value(f"extractelement {mask.type} {mask.text}, i32 {lanes[0]}", "bool")
    if mask is not None and by_lane:
        order = ", ".join(f"i32 {lane if lane >= 0 else mask.lanes}" for lane in lanes)
        line = f"shufflevector {mask.type} {mask.text}, {mask.type} zeroinitializer, <{part.size} x i32> <{order}>"
        return math.text.value(line, "bool", part.size)
    bits = Value(f"<{', '.join(f'i1 {int(lane >= 0)}' for lane in lanes)}>", "bool", part.size)
    if mask is None:
        return bits
    every = math.text.splat(mask, part.size)
    return math.text.value(f"and {every.type} {every.text}, {bits.text}", "bool", part.size)


def merge_blocks(math: VectorMath, blocks: list[Value], windows: tuple[Window, ...]) -> Value:
    """Gathers the lanes' elements from several blocks."""
    width = len(windows[0].positions)
    if width == REGISTER and {block.dtype for block in blocks} <= BYTES and sum(w.size for w in windows) == width:
        return _side_by_side(math, blocks, windows)
    wide = [_widen(math, block, width) for block in blocks]
    value, *more = wide
    placements = windows[0].positions
    if not more:
        return shuffle(math, value, placements)
    for other, found in zip(more, windows[1:], strict=True):
        chosen = [
            width + there if there >= 0 else here for here, there in zip(placements, found.positions, strict=True)
        ]
        order = ", ".join(f"i32 {place}" if place >= 0 else "i32 poison" for place in chosen)
        line = f"shufflevector {value.type} {value.text}, {other.type} {other.text}, <{width} x i32> <{order}>"
        value = math.text.value(line, value.dtype, width)
        placements = tuple(lane if place >= 0 else -1 for lane, place in enumerate(chosen))
    return value


def _side_by_side(math: VectorMath, blocks: list[Value], windows: tuple[Window, ...]) -> Value:
    """Concatenates blocks that fill a register of 64 bytes together, and permutes them into the lanes' bytes.

    Permuting two registers of bytes takes Intel's processors three steps, one register takes one. If words of four
    bytes suffice, they are moved to the right part of 128 bits first: LLVM fuses both steps if it can.
    """
    width, begins = len(windows[0].positions), [sum(w.size for w in windows[:i]) for i in range(len(windows))]
    while len(blocks) > 1:
        blocks = [_concatenate(math, *blocks[i : i + 2]) for i in range(0, len(blocks), 2)]
    order = [
        next(begin + w.positions[lane] for begin, w in zip(begins, windows, strict=True) if w.positions[lane] >= 0)
        for lane in range(width)
    ]
    (block,) = blocks
    words = _words_first(tuple(order))
    if words is None:
        return shuffle(math, block, tuple(order))
    whole, within = words
    line = f"bitcast {block.type} {block.text} to <{width // 4} x i32>"
    moved = shuffle(math, math.text.value(line, "int32", width // 4), whole)
    line = f"bitcast {moved.type} {moved.text} to {block.type}"
    return shuffle(math, math.text.value(line, block.dtype, width), within)


def _words_first(positions: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Splits places into a permutation of words and one of bytes within parts of 16; None if more words are needed."""
    across, within = [], []
    for part in range(0, len(positions), PART):
        words = sorted({byte // 4 for byte in positions[part : part + PART]})
        if len(words) > PART // 4:
            return None
        across += words + words[:1] * (PART // 4 - len(words))
        within += [part + words.index(byte // 4) * 4 + byte % 4 for byte in positions[part : part + PART]]
    return tuple(across), tuple(within)


def _concatenate(math: VectorMath, first: Value, second: Value) -> Value:
    """Concatenates two registers."""
    lanes = first.lanes + second.lanes
    order = ", ".join(f"i32 {i}" for i in range(lanes))
    line = f"shufflevector {first.type} {first.text}, {second.type} {second.text}, <{lanes} x i32> <{order}>"
    return math.text.value(line, first.dtype, lanes)


def _widen(math: VectorMath, block: Value, width: int) -> Value:
    if block.lanes == width:
        return block
    if not block.lanes:
        return math.text.value(
            f"insertelement <{width} x {block.type}> poison, {block.type} {block.text}, i32 0", block.dtype, width
        )
    order = ", ".join(f"i32 {i}" if i < block.lanes else "i32 poison" for i in range(width))
    line = f"shufflevector {block.type} {block.text}, {block.type} poison, <{width} x i32> <{order}>"
    return math.text.value(line, block.dtype, width)


def crosses(positions: tuple[int, ...], part: int = 4) -> bool:
    """Tells whether lanes take elements of other parts of a vector, or parts are permuted differently."""
    return any(
        place // part != lane // part or place % part != positions[lane % part] % part
        for lane, place in enumerate(positions)
    )


def shuffle(math: VectorMath, block: Value, positions: tuple[int, ...]) -> Value:
    """Permutes a block into lanes.

    If the permutation crosses parts of 128 bits, one instruction can do it with a register of places. On processors
    that LLVM believes to be slow at that instruction, LLVM picks two with constants. The
    intrinsic forces the single instruction, as no processor is slow at it.
    """
    width = len(positions)
    order = ", ".join(f"i32 {place}" for place in positions)
    if width == 16 and block.dtype == "float32" and "avx512f" in math.features and crosses(positions):
        name, kind = "llvm.x86.avx512.permvar.sf.512", llvm_type("float32", 16)
        math.declarations.add(f"declare {kind} @{name}({kind}, <16 x i32>)")
        if block.lanes < 16:
            wide = ", ".join(f"i32 {i}" if i < block.lanes else "i32 poison" for i in range(16))
            line = f"shufflevector {block.type} {block.text}, {block.type} poison, <16 x i32> <{wide}>"
            block = math.text.value(line, block.dtype, 16)
        if block.lanes == 16:
            return math.text.value(f"call {kind} @{name}({kind} {block.text}, <16 x i32> <{order}>)", "float32", 16)
    line = f"shufflevector {block.type} {block.text}, {block.type} poison, <{width} x i32> <{order}>"
    return math.text.value(line, block.dtype, width)

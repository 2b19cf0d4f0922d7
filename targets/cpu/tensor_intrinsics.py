"""Matrix instructions of x86-64: int8 dot products (AVX512-VNNI) and bfloat16 dot products (AVX512-BF16)."""

from __future__ import annotations

from dataclasses import dataclass

from search_space.intrinsics import BF16_DOT, BF16_LANE_DOT, PAIR, PAIR_PRODUCTS, VNNI_DOT, VNNI_LANE_DOT
from search_space.ir.expr import variables
from search_space.ir.flat import flat_index, stride_along
from search_space.ir.stmt import Intrinsic, Operand
from search_space.lower.borders import present
from search_space.schedule.intrinsics import get_intrinsic
from targets.base import BuildError
from targets.cpu.emit import INTRINSIC_EMITTERS, Function
from targets.cpu.lane_words import LANES, lane_words
from targets.cpu.text import Value


@dataclass(frozen=True)
class Dot:
    """An instruction that adds `depth` products to each of 16 sums.

    Attributes:
        name: LLVM's.
        dtype: type of the sums; factors: LLVM's type of a register of factors.
        commutes: whether the two registers of factors may change places.
    """

    name: str
    dtype: str
    factors: str
    depth: int
    commutes: bool


VNNI = Dot("llvm.x86.avx512.vpdpbusd.512", "int32", "<64 x i8>", 4, False)
BF16 = Dot("llvm.x86.avx512bf16.dpbf16ps.512", "float32", "<32 x bfloat>", 2, True)


def _key(function: Function, operand: Operand) -> tuple[str, int]:
    """Returns the key of the register that holds an accumulator tile."""
    values = function.values
    terms, constant = values.addresses.offset(values.addresses.plan(operand.buffer, operand.indices))
    assert not terms and values.storage[operand.buffer].kind == "register", operand.buffer
    return operand.buffer, constant


def _contiguous(function: Function, operand: Operand, expected_strides: dict[str, int]) -> None:
    """Checks that the tile lies in memory as the instruction reads it (elements between neighbours along #0, #1)."""
    # The instruction takes neighbours in memory in its own order: of another layout it would read other elements.
    strides = function.values.storage[operand.buffer].strides
    flat = flat_index(operand.elements, strides)
    for name, stride in expected_strides.items():
        found = stride_along(flat, name)
        if not found.is_const or found.value != stride:
            raise BuildError(f"an operand's stride along {name} must be {stride}, but got {found} in {operand.buffer}")


def _load_tile(function: Function, operand: Operand, kind: str, broadcast: bool, words: int = LANES) -> str:
    """Loads the operand's tile as one register: `kind` loaded whole, or its first 32 bits in each of `words` lanes."""
    text, values = function.text, function.values
    terms, constant = values.addresses.offset(values.addresses.plan(operand.buffer, operand.indices))
    pointer = values.addresses.pointer(operand.buffer, terms, constant)
    key = ("tile", pointer, kind, broadcast, values.versions.get(operand.buffer, 0), values.epoch)
    tile = text.lookup(key)
    if tile is None:
        # The first operand is four bytes (two halves) in every lane, the same for all 16 results.
        if broadcast:
            word = Value(text.value(f"load i32, ptr {pointer}, align 1", "int32").text, "int32")
            lanes = values.ops.vector(word, words)
        else:
            values.prefetch(operand.buffer, pointer, terms, constant)
            lanes = text.value(f"load <{words} x i32>, ptr {pointer}, align 1", "int32", words)
        tile = lanes.text
        if kind != f"<{words} x i32>":
            tile = text.value(f"bitcast <{words} x i32> {tile} to {kind}", "int8", 64).text
        text.remember(key, tile)
    return str(tile)


def _reuses_vector(function: Function, call: Intrinsic) -> bool:
    """Tells whether several rows of a tile of registers read the same vector."""
    rows = {v for index in call.output.indices for v in variables(index)} & function.values.loops.unrolled_variables
    return not rows <= {v for index in call.inputs[1].indices for v in variables(index)}


def _of_zeros(function: Function, call: Intrinsic, dot: Dot) -> bool:
    """Tells whether a factor is certainly zeros around a padded input, at the current numbers of unrolled loops."""
    if dot.dtype != "int32":
        return False  # zero times what is no number would be no number
    conditions = map(function.values.fixed, present(function.unit.borders, call))
    return any(c.is_const and not c.value for c in conditions)


def _shared(function: Function, call: Intrinsic, dot: Dot) -> None:
    if _of_zeros(function, call, dot):
        return
    _contiguous(function, call.inputs[0], {"#0": 0, "#1": 1})
    _contiguous(function, call.inputs[1], {"#0": dot.depth, "#1": 1})
    a = _load_tile(function, call.inputs[0], dot.factors, True)
    b = _load_tile(function, call.inputs[1], dot.factors, False)
    # only the last operand may be memory: of two of one type the one that no other element of the tile reads
    left, right = (b, a) if dot.commutes and _reuses_vector(function, call) else (a, b)
    _accumulate(function, call, dot, left, right)


def _apart(function: Function, call: Intrinsic, dot: Dot) -> None:
    registers = []
    for operand in call.inputs:
        _contiguous(function, operand, {"#1": 1})
        words, one = lane_words(function.values, operand, dot.depth)
        line = f"bitcast {words.type} {words.text} to {dot.factors}"
        registers.append((one, function.text.value(line, "int8", 64).text))
    if dot.commutes:  # what is one word for all lanes may be memory
        registers.sort(key=lambda of: of[0])
    _accumulate(function, call, dot, registers[0][1], registers[1][1])


def _accumulate(function: Function, call: Intrinsic, dot: Dot, left: str, right: str) -> None:
    """Emits the instruction that adds products of two registers to the one of the sums."""
    values = function.values
    key = _key(function, call.output)
    old = Value("zeroinitializer", dot.dtype, LANES) if call.reset else values.registers[key]
    values.math.declarations.add(f"declare {old.type} @{dot.name}({old.type}, {dot.factors}, {dot.factors})")
    line = f"call {old.type} @{dot.name}({old.type} {old.text}, {dot.factors} {left}, {dot.factors} {right})"
    values.registers[key] = function.text.value(line, dot.dtype, LANES)
    values.versions[call.output.buffer] = values.versions.get(call.output.buffer, 0) + 1


def emit_widened(function: Function, call: Intrinsic) -> None:
    """Emits a multiply-add for each element of pairs of bfloat16, which a shift or a mask makes float32."""
    values, (left, right) = function.values, call.inputs
    lanes = int(get_intrinsic(call.name).extents[0])
    _contiguous(function, left, {"#0": 0})
    _contiguous(function, right, {"#0": PAIR, "#1": 1})
    key = _key(function, call.output)
    total = Value("zeroinitializer", "float32", lanes) if call.reset else values.registers[key]
    for step, factor in enumerate(_widen_pairs(function, right, lanes)):
        element = _load_element(function, left, step)
        total = values.ops.fma(element, factor, total)
        function.last_uses.of_product((values.ops.vector(element, lanes), factor), (True, False))
    values.registers[key] = total
    values.versions[call.output.buffer] = values.versions.get(call.output.buffer, 0) + 1


def _widen_pairs(function: Function, operand: Operand, lanes: int) -> tuple[Value, Value]:
    """Loads a register of pairs of bfloat16, and makes float32 of the first and of the second elements."""
    text, kind = function.text, f"<{lanes} x i32>"
    words = _load_tile(function, operand, kind, False, lanes)
    key = ("widened", words)
    halves: tuple[Value, Value] | None = text.lookup(key)
    if halves is None:
        low, high = (
            text.value(f"{line} {kind} {words}, splat (i32 {number})", "int32", lanes).text
            for line, number in (("shl", 16), ("and", -(1 << 16)))
        )
        first, second = (
            text.value(f"bitcast {kind} {bits} to <{lanes} x float>", "float32", lanes) for bits in (low, high)
        )
        halves = text.remember(key, (first, second))
    return halves


def _load_element(function: Function, operand: Operand, step: int) -> Value:
    """Loads the element of an operand that all lanes share in one step of an instruction."""
    text, values = function.text, function.values
    terms, constant = values.addresses.offset(values.addresses.plan(operand.buffer, operand.indices))
    stride = stride_along(flat_index(operand.elements, values.storage[operand.buffer].strides), "#1")
    if not stride.is_const:
        raise BuildError(f"an operand's stride along #1 must be a number, but got {stride} in {operand.buffer}")
    pointer = values.addresses.pointer(operand.buffer, terms, constant + int(stride.value) * step)
    key = ("element", pointer, values.versions.get(operand.buffer, 0), values.epoch)
    element: Value | None = text.lookup(key)
    return element or text.remember(key, values.memory.load(pointer, "float32", 0, None))


def emit_vnni(function: Function, call: Intrinsic) -> None:
    """Emits vpdpbusd: 16 int32 lanes, each plus four products of uint8 and int8."""
    _shared(function, call, VNNI)


def emit_bf16(function: Function, call: Intrinsic) -> None:
    """Emits vdpbf16ps: 16 float32 lanes, each plus two products of bfloat16."""
    _shared(function, call, BF16)


def emit_vnni_lanes(function: Function, call: Intrinsic) -> None:
    """Emits vpdpbusd for lanes with factors of their own."""
    _apart(function, call, VNNI)


def emit_bf16_lanes(function: Function, call: Intrinsic) -> None:
    """Emits vdpbf16ps for lanes with factors of their own."""
    _apart(function, call, BF16)


INTRINSIC_EMITTERS[VNNI_DOT.name] = emit_vnni
INTRINSIC_EMITTERS[BF16_DOT.name] = emit_bf16
INTRINSIC_EMITTERS[VNNI_LANE_DOT.name] = emit_vnni_lanes
INTRINSIC_EMITTERS[BF16_LANE_DOT.name] = emit_bf16_lanes
INTRINSIC_EMITTERS |= {intrinsic.name: emit_widened for intrinsic in PAIR_PRODUCTS}

"""Matrix instructions of x86-64: int8 dot products (AVX512-VNNI) and bfloat16 dot products (AVX512-BF16)."""

from __future__ import annotations

from search_space.intrinsics import BF16_DOT, BF16_LANE_DOT, VNNI_DOT
from search_space.ir.expr import var, variables
from search_space.ir.polynomial import poly
from search_space.ir.stmt import Intrinsic, Operand
from targets.base import BuildError
from targets.cpu.emit import INTRINSIC_EMITTERS, Function
from targets.cpu.lane_words import LANES, lane_words
from targets.cpu.storage import flat_index
from targets.cpu.text import Value


def _key(function: Function, operand: Operand) -> tuple[str, int]:
    """The register an accumulator tile occupies."""
    values = function.values
    terms, constant = values.addresses.offset(values.addresses.plan(operand.buffer, operand.indices))
    assert not terms and values.storage[operand.buffer].kind == "register", operand.buffer
    return operand.buffer, constant


def _pointer(function: Function, operand: Operand) -> str:
    values = function.values
    terms, constant = values.addresses.offset(values.addresses.plan(operand.buffer, operand.indices))
    return values.addresses.pointer(operand.buffer, terms, constant)


def _contiguous(function: Function, operand: Operand, wanted: dict[str, int]) -> None:
    """Checks that the tile lies in memory as the instruction reads it (elements between neighbours along #0, #1)."""
    # The instruction takes neighbours in memory in its own order: of another layout it would read other elements.
    strides = function.values.storage[operand.buffer].strides
    terms = poly(flat_index(operand.elements, strides))
    for name, stride in wanted.items():
        found = terms.get((var(name),), 0)
        if found != stride:
            raise BuildError(f"an operand's stride along {name} must be {stride}, but got {found} in {operand.buffer}")


def _loaded(function: Function, operand: Operand, kind: str, broadcast: bool) -> str:
    """The operand's tile as one register: `kind` loaded whole, or its first 32 bits in every lane."""
    text, values = function.text, function.values
    pointer = _pointer(function, operand)
    key = ("tile", pointer, kind, values.versions.get(operand.buffer, 0), values.epoch)
    known = text.lookup(key)
    if known is None:
        # The first operand is four bytes (two halves) in every lane, the same for all 16 results.
        if broadcast:
            word = Value(text.value(f"load i32, ptr {pointer}, align 1", "int32").text, "int32")
            lanes = values.ops.vector(word, LANES)
        else:
            values.prefetch(operand.buffer, pointer)
            lanes = text.value(f"load <{LANES} x i32>, ptr {pointer}, align 1", "int32", LANES)
        known = lanes.text
        if kind != f"<{LANES} x i32>":
            known = text.value(f"bitcast <{LANES} x i32> {known} to {kind}", "int8", 64).text
        text.remember(key, known)
    return str(known)


def _reused(function: Function, call: Intrinsic) -> bool:
    """Whether several rows of a tile of registers read the same vector."""
    rows = {v for index in call.output.indices for v in variables(index)} & function.values.loops.unrolled
    return not rows <= {v for index in call.inputs[1].indices for v in variables(index)}


def _dot(function: Function, call: Intrinsic, name: str, accumulator: str, kind: str, dtype: str) -> None:
    depth = 4 if dtype == "int32" else 2
    _contiguous(function, call.inputs[0], {"#0": 0, "#1": 1})
    _contiguous(function, call.inputs[1], {"#0": depth, "#1": 1})
    a = _loaded(function, call.inputs[0], kind, True)
    b = _loaded(function, call.inputs[1], kind, False)
    # only the last operand may be memory: of two of one type the one that no other element of the tile reads
    left, right = (b, a) if depth == 2 and _reused(function, call) else (a, b)
    _accumulated(function, call, name, (dtype, accumulator, kind), (left, right))


def _accumulated(
    function: Function, call: Intrinsic, name: str, types: tuple[str, str, str], operands: tuple[str, str]
) -> None:
    """The call of an instruction that adds products to a register, `types` of which are (dtype, sums, factors)."""
    values, (dtype, accumulator, kind), (left, right) = function.values, types, operands
    key = _key(function, call.output)
    old = Value("zeroinitializer", dtype, LANES) if call.reset else values.registers[key]
    values.math.declared.add(f"declare {accumulator} @{name}({accumulator}, {kind}, {kind})")
    line = f"call {accumulator} @{name}({accumulator} {old.text}, {kind} {left}, {kind} {right})"
    values.registers[key] = function.text.value(line, dtype, LANES)
    values.versions[call.output.buffer] = values.versions.get(call.output.buffer, 0) + 1


def emit_vnni(function: Function, call: Intrinsic) -> None:
    """vpdpbusd: 16 int32 lanes, each plus four products of uint8 and int8."""
    _dot(function, call, "llvm.x86.avx512.vpdpbusd.512", "<16 x i32>", "<64 x i8>", "int32")


BF16_NAME, BF16_TYPES = "llvm.x86.avx512bf16.dpbf16ps.512", ("float32", "<16 x float>", "<32 x bfloat>")


def emit_bf16(function: Function, call: Intrinsic) -> None:
    """vdpbf16ps: 16 float32 lanes, each plus two products of bfloat16."""
    dtype, accumulator, kind = BF16_TYPES
    _dot(function, call, BF16_NAME, accumulator, kind, dtype)


def emit_bf16_lanes(function: Function, call: Intrinsic) -> None:
    """vdpbf16ps where lanes have factors of their own: the one that all share, if there is one, comes from memory."""
    for operand in call.inputs:
        _contiguous(function, operand, {"#1": 1})
    found = [lane_words(function.values, operand, 2) for operand in call.inputs]
    kind = BF16_TYPES[2]
    cast = [
        function.text.value(f"bitcast {words.type} {words.text} to {kind}", "bfloat16", 32).text
        for words, _ in sorted(found, key=lambda of: of[1])
    ]
    _accumulated(function, call, BF16_NAME, BF16_TYPES, (cast[0], cast[1]))


INTRINSIC_EMITTERS[VNNI_DOT.name] = emit_vnni
INTRINSIC_EMITTERS[BF16_DOT.name] = emit_bf16
INTRINSIC_EMITTERS[BF16_LANE_DOT.name] = emit_bf16_lanes

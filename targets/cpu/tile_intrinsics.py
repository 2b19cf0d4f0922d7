"""Matrix instructions of x86-64 on tile registers (AMX): products of tiles of 16 rows of 64 bytes each.

Sketch rules use none of them: no machine that has them has run the tests. A schedule by hand may, by `tensorize`.
"""

from __future__ import annotations

import ctypes
import platform

from search_space.intrinsics import AMX_BF16, AMX_INT8
from search_space.ir.expr import dtype_bytes, var, variables
from search_space.ir.flat import flat_index
from search_space.ir.polynomial import poly
from search_space.ir.stmt import Intrinsic, Operand
from search_space.schedule.intrinsics import get_intrinsic
from targets.base import BuildError, RunError
from targets.cpu.emit import INTRINSIC_EMITTERS, Function

ROWS, ROW_BYTES = 16, 64
"""Of a tile register."""

_PRCTL, _REQUEST, _TILE_DATA = 158, 0x1023, 18
"""Linux on x86-64: the system call `arch_prctl`, its ARCH_REQ_XCOMP_PERM, and the state that tiles are."""

_INSTRUCTIONS = {AMX_BF16.name: "tdpbf16ps", AMX_INT8.name: "tdpbusd"}


def request_tiles() -> None:
    """Asks the system for tile registers, for all threads of this process; may be called again.

    Raises:
        RunError: another system, or a processor that has none.
    """
    known = platform.system() == "Linux" and platform.machine() == "x86_64"
    if not known or ctypes.CDLL(None).syscall(_PRCTL, _REQUEST, _TILE_DATA):
        raise RunError(
            "a kernel with products of tiles must run on Linux and on a processor with AMX, but this is none"
        )


def _stride(function: Function, operand: Operand, dtype: str, rows: str, within: dict[str, int]) -> int:
    """Returns the bytes between the rows of a tile in memory, whose elements are in the instruction's order."""
    terms = poly(flat_index(operand.elements, function.values.storage[operand.buffer].strides))
    stride = terms.pop((var(rows),), 0)
    wrong = [name for name, wanted in within.items() if terms.pop((var(name),), 0) != wanted]
    mixed = [m for m in terms for atom in m if any(name.startswith("#") for name in variables(atom))]
    if wrong or mixed or stride < 1:
        raise BuildError(
            f"rows of a tile must lie in memory one by one, but got {operand.buffer}{list(operand.elements)}"
        )
    return stride * dtype_bytes(dtype)


def emit_tiles(function: Function, call: Intrinsic) -> None:
    """Tiles are loaded, multiplied and stored: LLVM gives each a register, and sets these up in every function."""
    intrinsic, values = get_intrinsic(call.name), function.values
    if intrinsic.feature not in values.math.features:
        raise BuildError(f"`{call.name}` must run on a processor with {intrinsic.feature}, but this target has it not")
    pairs = intrinsic.extents[-1]

    def tile(operand: Operand, dtype: str, rows: str, within: dict[str, int]) -> tuple[str, int]:
        terms, constant = values.addresses.offset(values.addresses.plan(operand.buffer, operand.indices))
        pointer = values.addresses.pointer(operand.buffer, terms, constant)
        return pointer, _stride(function, operand, dtype, rows, within)

    def load(pointer: str, stride: int) -> str:
        values.math.declarations.add("declare x86_amx @llvm.x86.tileloadd64.internal(i16, i16, ptr, i64)")
        shape = f"i16 {ROWS}, i16 {ROW_BYTES}"
        line = f"call x86_amx @llvm.x86.tileloadd64.internal({shape}, ptr {pointer}, i64 {stride})"
        return function.text.value(line, "int32").text

    left, right = (source.dtype for source in intrinsic.op.inputs)
    output = tile(call.output, intrinsic.op.dtype, "#0", {"#1": 1})
    a = load(*tile(call.inputs[0], left, "#0", {"#2": pairs, "#3": 1}))
    b = load(*tile(call.inputs[1], right, "#2", {"#1": pairs, "#3": 1}))
    if call.reset:
        values.math.declarations.add("declare x86_amx @llvm.x86.tilezero.internal(i16, i16)")
        line = f"call x86_amx @llvm.x86.tilezero.internal(i16 {ROWS}, i16 {ROW_BYTES})"
        old = function.text.value(line, "int32").text
    else:
        old = load(*output)
    name = f"llvm.x86.{_INSTRUCTIONS[call.name]}.internal"
    values.math.declarations |= {
        f"declare x86_amx @{name}(i16, i16, i16, x86_amx, x86_amx, x86_amx)",
        "declare void @llvm.x86.tilestored64.internal(i16, i16, ptr, i64, x86_amx)",
    }
    shape = f"i16 {ROWS}, i16 {ROW_BYTES}, i16 {ROW_BYTES}"
    new = function.text.value(f"call x86_amx @{name}({shape}, x86_amx {old}, x86_amx {a}, x86_amx {b})", "int32").text
    pointer, stride = output
    function.text.emit(
        f"  call void @llvm.x86.tilestored64.internal(i16 {ROWS}, i16 {ROW_BYTES}, ptr {pointer}, i64 {stride}, "
        f"x86_amx {new})"
    )
    values.versions[call.output.buffer] = values.versions.get(call.output.buffer, 0) + 1


def uses_tiles(llvm_ir: str) -> bool:
    """Tells whether emitted code needs tile registers."""
    return "@llvm.x86.tilestored64.internal" in llvm_ir


def request_text(name: str) -> str:
    """Writes LLVM text that asks for tile registers when a shared object with the kernel `name` is loaded."""
    function, entry = f"{name}_request_tiles", "{ i32, ptr, ptr }"
    return f"""
@llvm.global_ctors = appending global [1 x {entry}] [{entry} {{ i32 65535, ptr @{function}, ptr null }}]
declare i64 @syscall(i64, ...)
define internal void @{function}() {{
  %refused = call i64 (i64, ...) @syscall(i64 {_PRCTL}, i64 {_REQUEST}, i64 {_TILE_DATA})
  ret void
}}
"""


INTRINSIC_EMITTERS |= {AMX_BF16.name: emit_tiles, AMX_INT8.name: emit_tiles}

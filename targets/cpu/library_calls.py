"""Calls of library functions in place of loops: products of matrices by a BLAS."""

from __future__ import annotations

from search_space.intrinsics import SGEMM
from search_space.ir.expr import var, variables
from search_space.ir.flat import flat_index
from search_space.ir.polynomial import poly
from search_space.ir.stmt import Intrinsic, Operand
from search_space.schedule.intrinsics import get_intrinsic
from targets.base import BuildError
from targets.blas import BLAS_THREADS_SYMBOL, SGEMM_SYMBOL
from targets.cpu.emit import INTRINSIC_EMITTERS, Function

_ROW_MAJOR, _AS_IT_IS = 101, 111  # CblasRowMajor and CblasNoTrans


def _rows(function: Function, operand: Operand, row: str, column: str) -> int:
    """Returns the elements between the rows of a matrix whose columns are contiguous (its leading dimension)."""
    strides = function.values.storage[operand.buffer].strides
    terms = poly(flat_index(operand.elements, strides))
    leading, side = terms.pop((var(row),), 0), terms.pop((var(column),), 0)
    mixed = [m for m in terms for atom in m if any(name.startswith("#") for name in variables(atom))]
    if side != 1 or leading < 1 or mixed:
        raise BuildError(f"a matrix must lie in memory row by row, but got {operand.buffer}{list(operand.elements)}")
    return leading


def emit_sgemm(function: Function, call: Intrinsic) -> None:
    """Emits c += a b or, with `reset`, c = a b, on this thread alone."""
    values = function.values

    def pointer(operand: Operand) -> str:
        terms, constant = values.addresses.offset(values.addresses.plan(operand.buffer, operand.indices))
        return values.addresses.pointer(operand.buffer, terms, constant)

    a, b = call.inputs
    m, n, k = get_intrinsic(call.name).extents
    strides = [_rows(function, call.output, "#0", "#1"), _rows(function, a, "#0", "#2"), _rows(function, b, "#2", "#1")]
    kinds = "i32, i32, i32, i64, i64, i64, float, ptr, i64, ptr, i64, float, ptr, i64"
    values.math.declarations |= {
        f"declare void @{SGEMM_SYMBOL}({kinds})",
        f"declare void @{BLAS_THREADS_SYMBOL}(i32)",
    }
    function.text.emit(f"  call void @{BLAS_THREADS_SYMBOL}(i32 1)")
    beta = 0.0 if call.reset else 1.0
    function.text.emit(
        f"  call void @{SGEMM_SYMBOL}(i32 {_ROW_MAJOR}, i32 {_AS_IT_IS}, i32 {_AS_IT_IS}, "
        f"i64 {m}, i64 {n}, i64 {k}, float 1.0, ptr {pointer(a)}, i64 {strides[1]}, "
        f"ptr {pointer(b)}, i64 {strides[2]}, float {beta}, ptr {pointer(call.output)}, i64 {strides[0]})"
    )
    values.versions[call.output.buffer] = values.versions.get(call.output.buffer, 0) + 1


INTRINSIC_EMITTERS[SGEMM] = emit_sgemm

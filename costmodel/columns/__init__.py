"""Tapes of column arithmetic (`search_space.ir.tape`) in native code, for the thousands of operations of features."""

from costmodel.columns.program import ColumnProgram

__all__ = ["ColumnProgram"]

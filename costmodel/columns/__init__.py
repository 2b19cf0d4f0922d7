"""Arithmetic on columns: one value a candidate, written once for a whole population."""

from costmodel.columns.program import ColumnProgram
from costmodel.columns.tape import Tape, Value

__all__ = ["ColumnProgram", "Tape", "Value"]

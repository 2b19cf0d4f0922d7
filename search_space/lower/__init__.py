"""Lowering: schedule states to loop programs."""

from search_space.lower.cleanup import cleanup
from search_space.lower.lowering import lower

__all__ = ["cleanup", "lower"]

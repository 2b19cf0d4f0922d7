"""Lowering: from a schedule to a loop program, the same way for decision variables and for numbers.

`legality` checks a schedule, `inline` puts its inlined stages into their consumers, and `domains` infers the extents
and indices of all loops. `lowering` then builds the loop tree, with calls of instructions (`tensorize`) and prologues
that pack constants (`pack`). `cleanup` simplifies a program with known numbers. `memories` and `blocks` count the
resources that a program needs.
"""

from search_space.lower.cleanup import cleanup
from search_space.lower.lowering import lower

__all__ = ["cleanup", "lower"]

"""Lowering: from a schedule to a loop program, the same way for decision variables and for numbers.

A schedule is checked (`legality`), its inlined stages are put into their consumers (`inline`), the extents and the
indices of all loops are inferred (`domains`), and the loop tree is built (`lowering`), with calls of instructions
(`tensorize`) and prologues that pack constants (`pack`). A program with known numbers is simplified (`cleanup`).
`memories` and `blocks` count the resources that a program needs.
"""

from search_space.lower.cleanup import cleanup
from search_space.lower.lowering import lower

__all__ = ["cleanup", "lower"]

"""Prefetching of the panel of packed constants that the next tiles of a product read.

All tiles of rows read one panel of a constant after the other, and it stays in the second cache meanwhile. Without a
request, the first of them would wait for each line of the panel. So the tiles request the lines of the next panel,
spread evenly over the whole time in which they read this one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from search_space.hardware import LINE
from search_space.ir.expr import var, variables
from search_space.ir.polynomial import Monomial
from search_space.ir.stmt import For


@dataclass(frozen=True)
class PanelAhead:
    """The lines to request in each iteration of the innermost loop.

    Attributes:
        terms: terms of the first one's element in the variables of loops; start: its constant.
        lines: number of lines, one after the other.
    """

    terms: tuple[tuple[Monomial, int], ...]
    start: int
    lines: int

    def starts(self, size: int) -> list[int]:
        """Lists the constants of the lines, whose elements have so many bytes."""
        return [self.start + line * LINE // size for line in range(self.lines)]


def find_panel_ahead(
    terms: Sequence[tuple[Monomial, int]], loops: Sequence[For], sums_over: Callable[[For], bool], size: int, most: int
) -> PanelAhead | None:
    """Finds the lines of the next panel that an iteration requests; None if loops read no panel repeatedly.

    Args:
        terms: terms of the address that is read in the innermost loop.
        loops: loops around, outermost first.
        sums_over: function that tells whether a loop is one of a reduction.
        size: bytes of an element.
        most: bytes of the largest panel.
    """
    inner = [*reversed(loops)]
    steps = {_single(monomial): c for monomial, c in terms if _single(monomial)}
    read = {name for monomial, _ in terms for atom in monomial for name in variables(atom)}
    step = steps.get(inner[0].var, 0) if inner else 0
    iterations, counts = 1, dict[str, int]()
    while inner and inner[0].extent.is_const and steps.get(inner[0].var) == step * iterations and sums_over(inner[0]):
        loop = inner.pop(0)
        counts[loop.var] = iterations
        iterations *= int(loop.extent.value)
    panel, within, tiles = step * iterations, set(counts), 1
    while inner and inner[0].extent.is_const and inner[0].var not in read:  # these loops read the panel again
        loop = inner.pop(0)
        counts[loop.var] = iterations * tiles
        tiles *= int(loop.extent.value)
    if not within or tiles == 1 or not inner or inner[0].var not in read or panel * size > most:
        return None
    each = -(-panel // (iterations * tiles))
    lines = -(-each * size // LINE)
    each = each if lines == 1 else lines * LINE // size
    outside = [(monomial, c) for monomial, c in terms if _single(monomial) not in within]
    shares = [((var(name),), each * count) for name, count in counts.items()]
    return PanelAhead((*outside, *shares), steps.get(inner[0].var, panel), lines)


def _single(monomial: Monomial) -> str:
    """Returns the variable that a monomial consists of; "" for other monomials."""
    return str(monomial[0].args[0]) if len(monomial) == 1 and monomial[0].op == "var" else ""

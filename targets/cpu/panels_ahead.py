"""Prefetching of the panel of packed constants that the next tiles of a product read.

All tiles of rows read one panel of a constant after the other, and it stays in the second cache meanwhile. Without a
request, the first of them would wait for each line of the panel. So the tiles request the lines of the next panel,
spread evenly over the whole time in which they read this one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from search_space.hardware import LINE
from search_space.ir.expr import Expr, var, variables
from search_space.ir.polynomial import Monomial

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


def find_panel_ahead(
    terms: Sequence[tuple[Monomial, int]], loops: Sequence[str], extents: Mapping[str, Expr], size: int
) -> PanelAhead | None:
    """Finds the lines of the next panel that an iteration requests; None if loops read no panel repeatedly.

    Args:
        terms: terms of the address that is read in the innermost loop.
        loops: variables of the loops around, outermost first.
        extents: extents of the loops.
        size: bytes of an element.
    """
    inner = [(name, int(extents[name].value) if extents[name].is_const else 0) for name in reversed(loops)]
    steps = {_single(monomial): c for monomial, c in terms if _single(monomial)}
    read = {name for monomial, _ in terms for atom in monomial for name in variables(atom)}
    if not inner or inner[0][0] not in steps:
        return None
    step = steps[inner[0][0]]
    iterations, counts = 1, dict[str, int]()
    while inner and inner[0][1] and steps.get(inner[0][0]) == step * iterations:  # these loops read on from each other
        name, extent = inner.pop(0)
        counts[name] = iterations
        iterations *= extent
    panel, within, tiles = step * iterations, set(counts), 1
    while inner and inner[0][1] and inner[0][0] not in read:  # these loops read the panel again
        name, extent = inner.pop(0)
        counts[name] = iterations * tiles
        tiles *= extent
    if tiles == 1 or not inner:
        return None
    each = -(-panel // (iterations * tiles))
    lines = -(-each * size // LINE)
    each = each if lines == 1 else lines * LINE // size
    outside = [(monomial, c) for monomial, c in terms if _single(monomial) not in within]
    return PanelAhead((*outside, *(((var(name),), each * n) for name, n in counts.items())), panel, lines)


def _single(monomial: Monomial) -> str:
    """Returns the variable that a monomial is; "" if it is none."""
    return str(monomial[0].args[0]) if len(monomial) == 1 and monomial[0].op == "var" else ""

"""Sums of rows that are selected by an index each, such as the gradient of an embedding: rows of a table in parallel.

A thread looks at all terms and adds those of its own rows, so that threads share no row and the order of a sum is that
of its terms. `lower.selected` makes one iteration, or none, of the loop over the rows of a block.
"""

from __future__ import annotations

from search_space.hardware import Hardware
from search_space.ir.expr import condition_of_term, variables
from search_space.schedule.state import Stage
from search_space.sketch.base import Draft, SketchRule
from search_space.sketch.tables import ceildiv

BLOCKS = 4
"""Blocks of rows per core: each looks at all terms, and a late core leaves some to the others."""


FEWEST_SUMS = 64
"""Fewest sums of single elements: fewer of them compare all terms in vectors, which takes less time."""


class ScatteredSums(SketchRule):
    """A sum of terms that an equality with one axis selects: blocks of that axis in parallel.

    In a block, the loop over the terms is outside that over the axis.
    """

    name = "scattered_sums"

    def matches(self, draft: Draft, stage: Stage, hardware: Hardware) -> bool:
        if stage.name not in draft.state.outputs or find_selected_axis(stage) is None:
            return False
        return len(stage.axes) > 1 or int(stage.axes[0].extent.value) >= FEWEST_SUMS

    def apply(self, draft: Draft, stage: Stage, hardware: Hardware) -> list[Draft]:
        name, row = stage.name, find_selected_axis(stage)
        assert row is not None
        extent = next(int(axis.extent.value) for axis in stage.axes if axis.name == row)
        others = [axis for axis in stage.spatial if axis != row]
        draft, (block, each) = draft.split(name, row, (ceildiv(extent, BLOCKS * hardware.cores),), "guard")
        inner: tuple[str, ...] = (each, *others)
        if stage.axes[-1].name != row and int(stage.axes[-1].extent.value) >= hardware.float_lanes:
            draft, (vectors, lane) = draft.split(name, others[-1], (hardware.float_lanes,), "guard")
            draft = draft.vectorize(name, lane)
            inner = (each, *others[:-1], vectors, lane)
        draft = draft.reorder(name, block, *(axis.name for axis in stage.reduce_axes), *inner)
        return [draft.parallel(name, block).finish(name)]


def find_selected_axis(stage: Stage) -> str | None:
    """Finds the axis of the output that an expression without such axes must equal for a term to be added; or None."""
    condition, axes = condition_of_term(stage.body), [axis.name for axis in stage.axes]
    if stage.reducer != "sum" or condition is None or condition.op != "eq":
        return None
    for index, other in (condition.args, condition.args[::-1]):
        alone = other.op == "var" and other.args[0] in axes and not variables(index) & set(axes)
        if alone and other.args[0] not in variables(stage.body.args[1]):
            return str(other.args[0])
    return None

"""Tiles of dot products: both factors are read along their last dimension, and nothing is copied.

Each sum of a tile is a vector of partial sums. A step loads one vector of every row and of every column of the tile,
and multiplies each pair. After the reduction the lanes of each vector are added up. This costs a few operations for
each result, and so pays off if sums are long, or if rows are too few to share a copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from search_space.hardware import Hardware
from search_space.ir.expr import lift, variables, walk
from search_space.lower.inline import expand_body
from search_space.machines.shared.rows import last_reduced
from search_space.schedule.state import Stage
from search_space.sketch.base import Draft
from search_space.sketch.tables import clamped_tiles

LARGEST = 8
"""Greatest number of rows, and of columns, of a tile."""


@dataclass(frozen=True)
class DotAxes:
    """Axes of a reduction that form a tile of dot products.

    Attributes:
        row, column: positions of an axis of each factor; no axis behind the column has several elements.
        along: reduce axes along the last dimensions of all factors.
    """

    row: int
    column: int
    along: tuple[str, ...]


def find_dot_axes(draft: Draft, sums: Stage) -> DotAxes | None:
    """Finds the axes of a tile of dot products; None if rows and columns do not share their reads."""
    along = last_reduced(draft.state, sums)
    long = [position for position, axis in enumerate(sums.axes) if axis.extent.value > 1]
    if not along or len(long) < 2:
        return None
    loads = [node for node in walk(expand_body(sums, draft.state)) if node.op == "load"]
    reads = [{name for index in node.args[1:] for name in variables(index)} for node in loads]
    reads = [names for names in reads if names & set(along)]
    *others, column = long
    last = sums.axes[column].name

    def is_row(name: str) -> bool:
        return any(name in names for names in reads) and not any({name, last} <= names for names in reads)

    rows = [position for position in others if is_row(sums.axes[position].name)]
    return DotAxes(rows[-1], column, along) if rows and any(last in names for names in reads) else None


def tile_of_dots(draft: Draft, output: Stage, sums: Stage, axes: DotAxes, hardware: Hardware) -> Draft:
    """Accumulates vectors of a tile over the whole reduction, then adds up their lanes and stores the results.

    Args:
        output: the reduction, or the element-wise stage that ends it.
    """
    name, lanes, row, last = output.name, hardware.float_lanes, output.axes[axes.row], output.axes[axes.column]
    length = prod(int(axis.extent.value) for axis in sums.reduce_axes if axis.name in axes.along)
    draft, total = draft.sums_in("local", sums.name, name)
    draft, partial, lane = split_into_lanes(draft, total, axes.along, length, lanes)
    others = [axis.name for axis in output.axes if axis not in (row, last)]
    loops, sizes = [], []
    for axis in (row, last):
        table = clamped_tiles(int(axis.extent.value), LARGEST, 2)
        draft, (blocks, size) = draft.choose_row(f"{name}.{axis.name}", ("blocks", "tile"), table)
        draft, split = draft.split(name, axis.name, (blocks, size), "clamp")
        loops.append(split)
        sizes.append(lift(size))
    (i0, i1, i2), (j0, j1, j2) = loops
    # The vectors of all rows stay in registers while columns are loaded one after the other.
    draft = draft.require("registers", sizes[0] * sizes[1] + sizes[0] + 1, hardware.vector_registers)
    draft = draft.reorder(name, *others, i0, j0, j1, i1, i2, j2)
    draft, block = draft.fuse(name, (*others, i0, j0))
    draft = draft.parallel(name, block).unroll(name, i2, j2)
    draft = draft.set_scope(partial, "local").compute_at(total, name, i1).compute_at(partial, name, i1)
    draft = draft.in_registers(total, (*draft.stage(total).spatial, lane))
    *spatial, vector = draft.stage(partial).spatial
    draft = draft.reorder(partial, *draft.stage(partial).reduction, *spatial, vector)
    return draft.in_registers(partial, (*spatial, vector)).variant("dots").finish(name, total, partial)


def split_into_lanes(draft: Draft, total: str, along: Sequence[str], length: int, lanes: int) -> tuple[Draft, str, str]:
    """Splits a reduction into a vector of partial sums and their sum; returns the stage of the former and its lanes."""
    others = [axis for axis in draft.stage(total).reduction if axis not in along]
    draft = draft.reorder(total, *others, *along)
    draft, row = draft.fuse(total, along)
    draft, (_, lane) = draft.split(total, row, (lanes,), "guard" if length % lanes else "exact")
    draft, partial = draft.rfactor(total, lane)
    return draft, partial, lane

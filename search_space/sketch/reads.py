"""Reads of stages: conditions that rules check before they compute two stages in the same loops."""

from __future__ import annotations

from math import prod

from search_space.ir.expr import Expr, const, substitute, var, walk
from search_space.ir.polynomial import canon
from search_space.lower.inline import expand_body
from search_space.schedule.state import Axis, Stage
from search_space.sketch.base import Draft


def variable(axis: Axis) -> Expr:
    return var(axis.name)


def list_reads(draft: Draft, stage: Stage, name: str) -> list[tuple[Expr, ...]]:
    """Returns the indices at which `stage` reads another, directly or through inlined stages."""
    body = expand_body(stage, draft.state)
    return [tuple(n.args[1:]) for n in walk(body) if n.op == "load" and n.args[0] == name]


def ends_in(draft: Draft, producer: Stage, output: Stage) -> bool:
    """Tells whether only the output reads the producer, directly or through stages inlined into it."""
    readers = draft.state.consumers(producer.name)
    return all(r.name == output.name or (r.attach.kind == "inline" and ends_in(draft, r, output)) for r in readers)


def same_places(draft: Draft, producer: Stage, stage: Stage) -> bool:
    """Tells whether a stage has the shape of a producer and reads each element of it at its own indices."""
    if producer.shape != stage.shape:
        return False
    own = tuple(variable(axis) for axis in stage.axes)
    return all(index == own for index in list_reads(draft, stage, producer.name))


def reads_rows(draft: Draft, producer: Stage, stage: Stage) -> bool:
    """Tells whether a stage has the elements of a matrix in their order, and reads each at its own place.

    A matrix product that computes a convolution is one, whose rows are the pixels of all images.
    """
    if len(producer.axes) != 2 or len(stage.axes) < 3:
        return False
    *outer, last = stage.axes
    rows = const(0)
    for axis in outer:
        rows = rows * axis.extent + variable(axis)
    alone = {axis.name: const(0) for axis in outer if axis.extent.value == 1}
    row = canon(substitute(rows, alone))
    extents = (prod(int(axis.extent.value) for axis in outer), int(last.extent.value))
    return extents == tuple(int(n.value) for n in producer.shape) and all(
        canon(substitute(at, alone)) is row and column is variable(last)
        for at, column in list_reads(draft, stage, producer.name)
    )


def in_row(draft: Draft, stage: Stage, name: str, rows: int) -> bool:
    """Tells whether a stage reads another within its own row, along which the reads lie a fixed distance apart.

    Args:
        rows: number of leading axes that select a row.
    """
    own = tuple(variable(axis) for axis in stage.axes[:rows])
    along = [variable(axis) for axis in (*stage.axes[rows:], *stage.reduce_axes)]
    return all(
        index[:rows] == own and all(i.is_const or any(canon(i - a).is_const for a in along) for i in index[rows:])
        for index in list_reads(draft, stage, name)
    )


def read_across(draft: Draft, stage: Stage, least: int) -> tuple[str, str] | None:
    """Finds an input whose rows run along another axis than the stage's own, as in a transposition, and that axis.

    Returns None if there is no such input, or if either axis is shorter than `least`.
    """
    if stage.reducer is not None or len(stage.axes) < 2 or draft.producers(stage):
        return None
    last, extents = stage.axes[-1], {a.name: int(a.extent.value) for a in stage.axes}
    row_axes: dict[str, set[str]] = {}
    for source in draft.state.inputs:
        if not source.shape:
            continue
        for *others, row in list_reads(draft, stage, source.name):
            moves = variable(last) in others and row.op == "var" and row is not variable(last)
            row_axes.setdefault(source.name, set()).add(str(row.args[0]) if moves else "")
    for name, axes in row_axes.items():
        (axis, *more) = axes
        if axis and not more and min(extents[axis], extents[last.name]) >= least:
            return name, axis
    return None

"""Which elements of another stage a stage reads: what rules must know before they compute both in the same loops."""

from __future__ import annotations

from search_space.ir.expr import Expr, var, walk
from search_space.ir.polynomial import canon
from search_space.lower.inline import expanded
from search_space.schedule.state import Axis, Stage
from search_space.sketch.base import Draft


def variable(axis: Axis) -> Expr:
    return var(axis.name)


def reads_of(draft: Draft, stage: Stage, name: str) -> list[tuple[Expr, ...]]:
    """The indices at which `stage` reads another, seen through the stages that are inlined into it."""
    body = expanded(stage, draft.state)
    return [tuple(n.args[1:]) for n in walk(body) if n.op == "load" and n.args[0] == name]


def ends_in(draft: Draft, producer: Stage, output: Stage) -> bool:
    """Whether nothing but the output reads the producer, directly or by way of stages inlined into it."""
    readers = draft.state.consumers(producer.name)
    return all(r.name == output.name or (r.attach.kind == "inline" and ends_in(draft, r, output)) for r in readers)


def same_places(draft: Draft, producer: Stage, stage: Stage) -> bool:
    """Whether a stage has the shape of a producer and reads every element of it where it computes its own."""
    if producer.shape != stage.shape:
        return False
    own = tuple(variable(axis) for axis in stage.axes)
    return all(index == own for index in reads_of(draft, stage, producer.name))


def in_row(draft: Draft, stage: Stage, name: str, rows: int) -> bool:
    """Whether a stage reads another within its own row, along which the reads lie a fixed distance apart.

    Args:
        rows: how many leading axes say which row it is.
    """
    own = tuple(variable(axis) for axis in stage.axes[:rows])
    along = [variable(axis) for axis in (*stage.axes[rows:], *stage.reduce_axes)]
    return all(
        index[:rows] == own and all(i.is_const or any(canon(i - a).is_const for a in along) for i in index[rows:])
        for index in reads_of(draft, stage, name)
    )

"""Traces from known sizes, applied to open or other sizes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from search_space.ir.expr import Expr, ceildiv, const, lift, product
from search_space.ir.simplify import Simplifier
from search_space.schedule.errors import ScheduleError
from search_space.schedule.loop_steps import Annotate, Fuse, Pragma, Reorder, Split
from search_space.schedule.stage_steps import ComputeAt
from search_space.schedule.state import SplitRelation, Stage, State
from search_space.schedule.step import Step
from search_space.schedule.trace import Trace


def with_open_tails(trace: Trace, state: State, tail: str) -> Trace:
    """Replaces the tails of splits that must divide, and do not divide for all sizes.

    Args:
        trace: trace of the same definition at some sizes, which its factors divide.
        state: state of the definition with open sizes.
        tail: replacement of `exact`: `exact` itself, `clamp`, `inner` or `guard`. With `clamp` and `inner`, reduce
            loops are peeled if there is one factor, and guarded if there are several. `inner` does not clamp stages
            that are computed at another stage's loop, since they may be complete tiles of that stage, and guards
            their clamped splits. A clamped tile moves, so that elements past its end would change their position.

    Raises:
        ScheduleError: a step that is illegal at its position.
    """
    steps = []
    for step in trace.steps:
        if isinstance(step, Split):
            step = replace(step, tail=_tail(tail, step, state.stage(step.stage)))
        state = step.apply(state)
        steps.append(step)
    return Trace(tuple(steps))


def _tail(tail: str, step: Split, stage: Stage) -> str:
    """Returns the tail of a split for open sizes; see `with_open_tails`."""
    inside = tail == "inner" and stage.attach.kind == "at"
    if step.tail != "exact":
        return "guard" if step.tail == "clamp" and inside else step.tail
    rest = Simplifier({})(_extents(stage).get(step.axis, const(0)) % product(map(lift, step.factors)))
    if rest is const(0):
        return "exact"
    if tail not in ("clamp", "inner"):
        return tail
    if stage.is_reduce(step.axis):
        return "peel" if len(step.factors) == 1 else "guard"
    return "exact" if inside else "clamp"


def _extents(stage: Stage) -> dict[str, Expr]:
    """Returns the extents of all loops, also of split and fused ones; upper bounds for an attached stage."""
    extents = {a.name: a.extent for a in (*stage.axes, *stage.reduce_axes)}
    for relation in stage.relations:
        if isinstance(relation, SplitRelation):
            extents[relation.children[0]] = ceildiv(extents[relation.parent], product(relation.factors))
            extents.update(zip(relation.children[1:], relation.factors, strict=True))
        else:
            extents[relation.child] = product(extents[parent] for parent in relation.parents)
    return extents


def exchange_axes(trace: Trace) -> Trace | None:
    """Moves the last axis of the parallel loop to the outermost place; None without a fused parallel loop.

    A schedule from sizes with a single row of tiles says nothing about their order, which matters for more rows: by
    rows, each row reads all constants; by columns, each column reads all of the other operand. And if only an outer
    axis has an open extent, the index of the fused loop is divided by numbers alone.
    """
    parallel = {(s.stage, s.axis) for s in trace.steps if isinstance(s, Annotate) and s.kind == "parallel"}
    for position, fuse in enumerate(trace.steps):
        if not isinstance(fuse, Fuse) or (fuse.stage, "_".join(fuse.axes)) not in parallel:
            continue
        turned = (fuse.axes[-1], *fuse.axes[:-1])
        old, new = "_".join(fuse.axes), "_".join(turned)

        def rename_loop(step: Step, at: tuple[str, str] = (fuse.stage, old), new: str = new) -> Step:
            if isinstance(step, ComputeAt):
                return replace(step, axis=new) if (step.target, step.axis) == at else step
            if isinstance(step, (Annotate, Pragma)):
                return replace(step, axis=new) if (step.stage, step.axis) == at else step
            return step

        order = Reorder(fuse.stage, turned)
        steps = (*trace.steps[:position], order, replace(fuse, axes=turned), *trace.steps[position + 1 :])
        return Trace(tuple(map(rename_loop, steps)))
    return None


TAILS = ("exact", "clamp", "inner", "guard")
"""Tails from the original one over those that are fastest, if legal, to the one that is always legal."""


def variants(trace: Trace, state: State) -> Iterator[Trace]:
    """Lists the variants of a trace for open sizes, the fastest first; lowering may still find a step illegal."""
    seen: set[Trace] = set()
    for tail in TAILS:
        try:
            variant = with_open_tails(trace, state, tail)
        except ScheduleError:
            continue
        if variant not in seen:
            seen.add(variant)
            yield variant

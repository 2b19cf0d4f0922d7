"""Traces that were found for known sizes, applied where sizes are open, or others."""

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
    """The trace in which splits that are to divide, and do not always, have another tail.

    Args:
        trace: of the same definition at some sizes, whose factors divide these, and not all others.
        state: of the definition, its sizes open.
        tail: what takes the place of `exact`: `exact` itself, `clamp`, `inner` or `guard`. With the second and third,
            loops that reduce are peeled where there is one factor, and guarded where there are several; the third
            leaves alone what is computed at a loop of others, and so may be a whole tile of theirs, and guards what is
            clamped there: what others read past its end would not be where it is in the tile before.

    Raises:
        ScheduleError: a step that is illegal where it stands.
    """
    steps = []
    for step in trace.steps:
        if isinstance(step, Split):
            step = replace(step, tail=_tail(tail, step, state.stage(step.stage)))
        state = step.apply(state)
        steps.append(step)
    return Trace(tuple(steps))


def _tail(tail: str, step: Split, stage: Stage) -> str:
    """What the tail of a split is where sizes are open; see `with_open_tails`."""
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
    """Of all loops, those that were split or fused included; where a stage is computed at a loop, they may be less."""
    extents = {a.name: a.extent for a in (*stage.axes, *stage.reduce_axes)}
    for relation in stage.relations:
        if isinstance(relation, SplitRelation):
            extents[relation.children[0]] = ceildiv(extents[relation.parent], product(relation.factors))
            extents.update(zip(relation.children[1:], relation.factors, strict=True))
        else:
            extents[relation.child] = product(extents[parent] for parent in relation.parents)
    return extents


def exchanged(trace: Trace) -> Trace | None:
    """The trace whose parallel loop goes through the last of its axes in the outermost place, the others as they were.

    A schedule that was found where there is one row of tiles says nothing about their order, which matters where there
    are more: by rows each goes through all constants, by columns through all of the other operand. And an index of
    which an outer axis has an open extent, and not the inner ones, is divided by numbers alone.
    """
    parallel = {(s.stage, s.axis) for s in trace.steps if isinstance(s, Annotate) and s.kind == "parallel"}
    for place, fuse in enumerate(trace.steps):
        if not isinstance(fuse, Fuse) or (fuse.stage, "_".join(fuse.axes)) not in parallel:
            continue
        turned = (fuse.axes[-1], *fuse.axes[:-1])
        old, new = "_".join(fuse.axes), "_".join(turned)

        def renamed(step: Step, at: tuple[str, str] = (fuse.stage, old), new: str = new) -> Step:
            if isinstance(step, ComputeAt):
                return replace(step, axis=new) if (step.target, step.axis) == at else step
            if isinstance(step, (Annotate, Pragma)):
                return replace(step, axis=new) if (step.stage, step.axis) == at else step
            return step

        order = Reorder(fuse.stage, turned)
        steps = (*trace.steps[:place], order, replace(fuse, axes=turned), *trace.steps[place + 1 :])
        return Trace(tuple(map(renamed, steps)))
    return None


TAILS = ("exact", "clamp", "inner", "guard")
"""As it was found, then what is at full speed wherever it holds, then what always does."""


def variants(trace: Trace, state: State) -> Iterator[Trace]:
    """What the trace may be where sizes are open, the fastest first; that a step is illegal shows in lowering, too."""
    found: set[Trace] = set()
    for tail in TAILS:
        try:
            variant = with_open_tails(trace, state, tail)
        except ScheduleError:
            continue
        if variant not in found:
            found.add(variant)
            yield variant

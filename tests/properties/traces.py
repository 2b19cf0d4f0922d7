"""Random schedule steps, most of them legal, drawn through a chooser so that hypothesis or a generator may decide."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from search_space.ir.expr import var
from search_space.ir.stmt import KINDS
from search_space.schedule.errors import ScheduleError
from search_space.schedule.state import TAILS, Stage, State
from search_space.schedule.steps import (
    Annotate,
    CacheRead,
    CacheWrite,
    ComputeAt,
    ComputeInline,
    Fuse,
    Pack,
    Pragma,
    Reorder,
    Rfactor,
    SetScope,
    Split,
    Step,
    Tensorize,
    Widen,
)
from search_space.schedule.trace import Trace

FACTORS = (1, 2, 3, 4, 5, 7, 8, 13, 113)


class Chooser(Protocol):
    """A source of decisions."""

    def pick(self, options: Sequence[Any]) -> Any:
        """One of the options."""


class Dice:
    """Decisions of a seeded generator."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def pick(self, options: Sequence[Any]) -> Any:
        return options[int(self.rng.integers(len(options)))]


def _subset(choose: Chooser, items: Sequence[Any]) -> list[Any]:
    return [x for x in items if choose.pick((True, False))] or [choose.pick(items)]


def _permutation(choose: Chooser, items: Sequence[Any]) -> tuple[Any, ...]:
    left, out = list(items), []
    while left:
        out.append(left.pop(choose.pick(range(len(left)))))
    return tuple(out)


def _split(choose: Chooser, state: State, stage: Stage) -> Step:
    factors = tuple(choose.pick(FACTORS) for _ in range(choose.pick((1, 1, 2))))
    return Split(stage.name, choose.pick(stage.leaves), factors, choose.pick(TAILS))


def _fuse(choose: Chooser, state: State, stage: Stage) -> Step:
    at = choose.pick(range(len(stage.leaves)))
    return Fuse(stage.name, stage.leaves[at : at + 2])


def _reorder(choose: Chooser, state: State, stage: Stage) -> Step:
    return Reorder(stage.name, _permutation(choose, _subset(choose, stage.leaves)))


def _annotate(choose: Chooser, state: State, stage: Stage) -> Step:
    kind = choose.pick(("vectorize", "vectorize", "unroll", "parallel", choose.pick(KINDS)))
    return Annotate(stage.name, choose.pick((choose.pick(stage.leaves), stage.leaves[-1])), kind)


def _compute_at(choose: Chooser, state: State, stage: Stage) -> Step:
    target = choose.pick(state.consumers(stage.name) or state.stages)
    return ComputeAt(stage.name, target.name, choose.pick(target.leaves))


def _cache_read(choose: Chooser, state: State, stage: Stage) -> Step:
    tensor = choose.pick(stage.reads())
    return CacheRead(tensor, choose.pick(("local", "global", "shared")), (stage.name,))


def _rfactor(choose: Chooser, state: State, stage: Stage) -> Step:
    return Rfactor(stage.name, choose.pick([x for x in stage.leaves if stage.is_reduce(x)] or stage.leaves))


def _pack(choose: Chooser, state: State, stage: Stage) -> Step:
    source = choose.pick([i for i in state.inputs if i.constant] or state.inputs)
    factors = tuple(choose.pick(((), (), (choose.pick(FACTORS),), (2, choose.pick(FACTORS)))) for _ in source.shape)
    parts = [(d, p) for d, f in enumerate(factors) for p in range(len(f) + 1)]
    return Pack(source.name, factors, _permutation(choose, parts))


Maker = Callable[[Chooser, State, Stage], Step]
STRUCTURE: tuple[Maker, ...] = (
    lambda c, s, stage: ComputeInline(stage.name),
    lambda c, s, stage: CacheWrite(stage.name, c.pick(("local", "global"))),
    lambda c, s, stage: Widen(stage.name),
    lambda c, s, stage: SetScope(stage.name, c.pick(("local", "local", "shared", "nowhere"))),
    _cache_read,
    _rfactor,
    _pack,
)
LOOPS: tuple[Maker, ...] = (_split, _split, _fuse, _reorder)
PLACEMENTS: tuple[Maker, ...] = (
    _compute_at,
    _annotate,
    lambda c, s, stage: Pragma(stage.name, c.pick(stage.leaves), "hint", c.pick((0, 1))),
)
ANY: tuple[Maker, ...] = STRUCTURE + LOOPS + PLACEMENTS


def random_trace(choose: Chooser, state: State) -> tuple[Trace, State]:
    """A legal trace: steps in the usual order, with a few of any kind between; illegal ones raise and are left out."""
    trace = Trace()
    phases = (
        (STRUCTURE, (0, 0, 1, 2)),
        ((_split, _rfactor), (0, 0, 1)),
        (LOOPS, (0, 2, 4, 6)),
        (PLACEMENTS, (1, 2, 3, 5)),
    )
    for makers, counts in phases:
        for _ in range(choose.pick(counts)):
            maker = choose.pick((*makers, choose.pick(ANY)))
            step = maker(choose, state, choose.pick(state.stages))
            try:
                after = step.apply(state)
            except ScheduleError:
                continue
            state, trace = after, trace.then(step)
    return trace, state


def symbolic(trace: Trace) -> tuple[Trace, dict[str, int]]:
    """The trace with every split factor replaced by a decision variable, and the variables' numbers."""
    numbers: dict[str, int] = {}
    steps: list[Step] = []
    for step in trace.steps:
        if isinstance(step, Split):
            names = [f"d{len(numbers) + i}" for i in range(len(step.factors))]
            numbers.update(zip(names, step.factors, strict=True))
            step = replace(step, factors=tuple(var(n) for n in names))
        steps.append(step)
    return Trace(tuple(steps)), numbers


def anything(choose: Chooser, state: State) -> Step:
    """A step whose names and numbers come from anywhere in the schedule, or from nowhere."""
    tensors = [s.name for s in state.stages] + [i.name for i in state.inputs] + ["nothing"]
    loops = [leaf for s in state.stages for leaf in s.leaves] + ["i.0", "nowhere"]
    numbers = (-1, 0, 1, 2, 3, 1000)
    stage, other, axis = choose.pick(tensors), choose.pick(tensors), choose.pick(loops)
    scope = choose.pick(("local", "global", "moon"))
    makers: tuple[Callable[[], Step], ...] = (
        lambda: Split(
            stage, axis, tuple(choose.pick(numbers) for _ in range(choose.pick((0, 1, 2)))), choose.pick((*TAILS, ""))
        ),
        lambda: Fuse(stage, tuple(choose.pick(loops) for _ in range(choose.pick((0, 1, 2, 3))))),
        lambda: Reorder(stage, tuple(choose.pick(loops) for _ in range(choose.pick((0, 1, 2, 3))))),
        lambda: Annotate(stage, axis, choose.pick((*KINDS, "sideways"))),
        lambda: ComputeAt(stage, other, axis),
        lambda: ComputeInline(stage),
        lambda: SetScope(stage, scope),
        lambda: CacheWrite(stage, scope),
        lambda: CacheRead(stage, scope, tuple(choose.pick(tensors) for _ in range(choose.pick((0, 1, 2))))),
        lambda: Rfactor(stage, axis),
        lambda: Tensorize(stage, axis, choose.pick(("vnni_dot", "nothing"))),
        lambda: Pack(
            stage,
            tuple((choose.pick(numbers),) for _ in range(choose.pick((1, 2)))),
            choose.pick(((), ((0, 0), (0, 1)))),
        ),
        lambda: Pragma(stage, axis, "hint", 1),
    )
    return choose.pick(makers)()

"""Schedules in the making: immutable, each primitive gives the schedule after it and what it made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from search_space.schedule.state import Stage, State
from search_space.schedule.step import Factor
from search_space.schedule.steps import (
    Annotate,
    CacheRead,
    CacheWrite,
    ComputeAt,
    ComputeInline,
    Fuse,
    Interleave,
    Pack,
    Pragma,
    Relayout,
    Reorder,
    Rfactor,
    SetScope,
    Split,
    Step,
    Tensorize,
)
from search_space.schedule.trace import Trace

Loop = str
"""A loop of a stage: one of its axes (`Stage.spatial`, `Stage.reduced`), or what `split` and `fuse` made."""


def one_by_one(loops: Sequence[Any]) -> tuple[Any, ...]:
    """Returns the loops of a call that names them one by one, or in one list."""
    if len(loops) == 1 and isinstance(loops[0], list | tuple):
        return tuple(loops[0])
    return tuple(loops)


@dataclass(frozen=True)
class Builder:
    """A schedule so far. Stages are given by name, loops as the primitives that made them returned them.

    What a primitive does, and what must hold, says its step (`search_space.schedule.steps`), which may be
    symbolic: factors are numbers or expressions in decision variables.

    Attributes:
        state: stages, their loops and their places.
        trace: the steps that led here from the unscheduled definition.
    """

    state: State
    trace: Trace = field(default_factory=Trace)

    def apply(self, *steps: Step) -> Self:
        """The schedule after `steps`.

        Raises:
            ScheduleError: a step that is illegal where it stands.
        """
        state = self.state
        for step in steps:
            state = step.apply(state)
        return replace(self, state=state, trace=self.trace.then(*steps))

    def stage(self, name: str) -> Stage:
        """The stage of that name, as it is now."""
        return self.state.stage(name)

    # ------------------------------------------------------------------ loops
    def split(
        self, stage: str, loop: Loop, factors: Factor | Sequence[Factor], tail: str = "exact"
    ) -> tuple[Self, tuple[Loop, ...]]:
        """See `Split`; gives the new loops, outermost first: one more than there are factors.

        One factor may stand for a list of one.
        """
        inner = tuple(factors) if isinstance(factors, Sequence) else (factors,)
        return self._with_loops(stage, Split(stage, loop, inner, tail))

    def fuse(self, stage: str, *loops: Loop | Sequence[Loop]) -> tuple[Self, Loop]:
        """See `Fuse`; gives the new loop. Loops are given one by one or in a list; one alone stays what it is."""
        names = one_by_one(loops)
        if len(names) == 1:
            return self, names[0]
        done, (fused,) = self._with_loops(stage, Fuse(stage, names))
        return done, fused

    def reorder(self, stage: str, *loops: Loop | Sequence[Loop]) -> Self:
        """See `Reorder`; loops are given one by one or in a list."""
        return self.apply(Reorder(stage, one_by_one(loops)))

    def annotate(self, stage: str, kind: str, *loops: Loop) -> Self:
        """See `Annotate`; of several loops, each."""
        return self.apply(*(Annotate(stage, loop, kind) for loop in loops))

    def parallel(self, stage: str, loop: Loop) -> Self:
        """Runs iterations on the cores side by side."""
        return self.annotate(stage, "parallel", loop)

    def unroll(self, stage: str, *loops: Loop) -> Self:
        """Writes every iteration of these loops out."""
        return self.annotate(stage, "unroll", *loops)

    def vectorize(self, stage: str, loop: Loop) -> Self:
        """Makes a loop the lanes of a vector."""
        return self.annotate(stage, "vectorize", loop)

    def bind(self, stage: str, loop: Loop, tag: str) -> Self:
        """Binds a loop to blocks or threads, such as `threadIdx.x`."""
        return self.annotate(stage, tag, loop)

    def in_registers(self, stage: str, loops: Sequence[Loop]) -> Self:
        """Makes loops a tile of registers: all unrolled but the last, which becomes the lanes of a vector."""
        return self.unroll(stage, *loops[:-1]).vectorize(stage, loops[-1])

    def tensorize(self, stage: str, loop: Loop, intrinsic: str) -> Self:
        """See `Tensorize`."""
        return self.apply(Tensorize(stage, loop, intrinsic))

    def pragma(self, stage: str, loop: Loop, key: str, value: int) -> Self:
        """See `Pragma`."""
        return self.apply(Pragma(stage, loop, key, value))

    # ------------------------------------------------------------------ stages
    def compute_at(self, stage: str, target: str, loop: Loop) -> Self:
        """See `ComputeAt`."""
        return self.apply(ComputeAt(stage, target, loop))

    def compute_inline(self, *stages: str) -> Self:
        """See `ComputeInline`; of several stages, each."""
        return self.apply(*map(ComputeInline, stages))

    def set_scope(self, stage: str, scope: str) -> Self:
        """See `SetScope`."""
        return self.apply(SetScope(stage, scope))

    def cache_write(self, stage: str, scope: str) -> tuple[Self, str]:
        """See `CacheWrite`; gives the new stage, which computes what `stage` then copies."""
        return self._with_stage(CacheWrite(stage, scope))

    def cache_read(self, tensor: str, scope: str, *readers: str) -> tuple[Self, str]:
        """See `CacheRead`; gives the new stage, a copy of the tensor."""
        return self._with_stage(CacheRead(tensor, scope, readers))

    def rfactor(self, stage: str, loop: Loop) -> tuple[Self, str]:
        """See `Rfactor`; gives the new stage of partial results, of which `loop` is the last axis."""
        return self._with_stage(Rfactor(stage, loop))

    def relayout(self, stage: str, order: Sequence[int], pad: Factor = 0) -> Self:
        """See `Relayout`."""
        return self.apply(Relayout(stage, tuple(order), pad))

    def interleave(self, stage: str, axis: str, factor: int) -> Self:
        """See `Interleave`."""
        return self.apply(Interleave(stage, axis, factor))

    def pack(self, tensor: str, factors: Sequence[Sequence[Factor]], order: Sequence[tuple[int, int]]) -> Self:
        """See `Pack`."""
        return self.apply(Pack(tensor, tuple(map(tuple, factors)), tuple(order)))

    # ------------------------------------------------------------------ what a step made
    def _with_loops(self, stage: str, step: Step) -> tuple[Self, tuple[Loop, ...]]:
        done, before = self.apply(step), self.stage(stage).leaves
        return done, tuple(leaf for leaf in done.stage(stage).leaves if leaf not in before)

    def _with_stage(self, step: Step) -> tuple[Self, str]:
        done, before = self.apply(step), {s.name for s in self.state.stages}
        (made,) = (s.name for s in done.state.stages if s.name not in before)
        return done, made

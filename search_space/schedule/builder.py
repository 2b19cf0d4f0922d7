"""Immutable schedules: each primitive returns the schedule after it, and the loops or the stage that it adds."""

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
    Widen,
)
from search_space.schedule.trace import Trace

Loop = str
"""A loop of a stage: one of its axes (`Stage.spatial`, `Stage.reduction`), or a loop from `split` or `fuse`."""


def one_by_one(loops: Sequence[Any]) -> tuple[Any, ...]:
    """Returns the loops of a call that names them one by one, or in one list."""
    if len(loops) == 1 and isinstance(loops[0], list | tuple):
        return tuple(loops[0])
    return tuple(loops)


@dataclass(frozen=True)
class ScheduleBuilder:
    """A schedule and its steps so far. Stages are given by name, loops as the primitives returned them.

    The step of each primitive (`search_space.schedule.steps`) documents its effect and its conditions. Steps may be
    symbolic: factors are numbers or expressions in decision variables.

    Attributes:
        state: stages, their loops and their places.
        trace: the steps that led here from the unscheduled definition.
    """

    state: State
    trace: Trace = field(default_factory=Trace)

    def apply(self, *steps: Step) -> Self:
        """Returns the schedule after `steps`.

        Raises:
            ScheduleError: a step that is illegal at its position.
        """
        state = self.state
        for step in steps:
            state = step.apply(state)
        return replace(self, state=state, trace=self.trace.then(*steps))

    def stage(self, name: str) -> Stage:
        """Returns the stage with a name, in its current state."""
        return self.state.stage(name)

    # ------------------------------------------------------------------ loops
    def split(
        self, stage: str, loop: Loop, factors: Factor | Sequence[Factor], tail: str = "exact"
    ) -> tuple[Self, tuple[Loop, ...]]:
        """Splits a loop; returns the new loops, outermost first: one more than there are factors. See `Split`.

        One factor may replace a list of one.
        """
        inner = tuple(factors) if isinstance(factors, Sequence) else (factors,)
        return self._with_loops(stage, Split(stage, loop, inner, tail))

    def fuse(self, stage: str, *loops: Loop | Sequence[Loop]) -> tuple[Self, Loop]:
        """Fuses loops, given one by one or in a list; returns the new loop, or a single loop unchanged. See `Fuse`."""
        names = one_by_one(loops)
        if len(names) == 1:
            return self, names[0]
        done, (fused,) = self._with_loops(stage, Fuse(stage, names))
        return done, fused

    def reorder(self, stage: str, *loops: Loop | Sequence[Loop]) -> Self:
        """Puts loops, given one by one or in a list, in this order; see `Reorder`."""
        return self.apply(Reorder(stage, one_by_one(loops)))

    def annotate(self, stage: str, kind: str, *loops: Loop) -> Self:
        """Sets the kind of each of the loops; see `Annotate`."""
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
        """Replaces the loops at and inside `loop` by an instruction; see `Tensorize`."""
        return self.apply(Tensorize(stage, loop, intrinsic))

    def pragma(self, stage: str, loop: Loop, key: str, value: int) -> Self:
        """Attaches a hint for targets to a loop; see `Pragma`."""
        return self.apply(Pragma(stage, loop, key, value))

    # ------------------------------------------------------------------ stages
    def compute_at(self, stage: str, target: str, loop: Loop) -> Self:
        """Computes a stage inside a loop of its consumer `target`; see `ComputeAt`."""
        return self.apply(ComputeAt(stage, target, loop))

    def compute_inline(self, *stages: str) -> Self:
        """Inlines each of the stages into its consumers; see `ComputeInline`."""
        return self.apply(*map(ComputeInline, stages))

    def set_scope(self, stage: str, scope: str) -> Self:
        """Keeps a stage's result in another memory; see `SetScope`."""
        return self.apply(SetScope(stage, scope))

    def cache_write(self, stage: str, scope: str) -> tuple[Self, str]:
        """Computes a stage in another memory and copies it; returns the new stage, the source. See `CacheWrite`."""
        return self._with_stage(CacheWrite(stage, scope))

    def cache_read(self, tensor: str, scope: str, *readers: str) -> tuple[Self, str]:
        """Copies a tensor to another memory for its readers; returns the new stage, the copy. See `CacheRead`."""
        return self._with_stage(CacheRead(tensor, scope, readers))

    def rfactor(self, stage: str, loop: Loop) -> tuple[Self, str]:
        """Splits a reduction; returns the new stage of partial results, whose last axis is `loop`. See `Rfactor`."""
        return self._with_stage(Rfactor(stage, loop))

    def relayout(self, stage: str, order: Sequence[int], pad: Factor = 0) -> Self:
        """Stores a stage's dimensions in another order, with a pad between rows; see `Relayout`."""
        return self.apply(Relayout(stage, tuple(order), pad))

    def interleave(self, stage: str, axis: str, factor: int) -> Self:
        """Stores `factor` neighbours along an axis next to each other; see `Interleave`."""
        return self.apply(Interleave(stage, axis, factor))

    def widen(self, stage: str) -> Self:
        """Stores a stage of 16-bit floats as float32; see `Widen`."""
        return self.apply(Widen(stage))

    def pack(self, tensor: str, factors: Sequence[Sequence[Factor]], order: Sequence[tuple[int, int]]) -> Self:
        """Packs a constant before the first call; see `Pack`."""
        return self.apply(Pack(tensor, tuple(map(tuple, factors)), tuple(order)))

    # ------------------------------------------------------------------ results of a step
    def _with_loops(self, stage: str, step: Step) -> tuple[Self, tuple[Loop, ...]]:
        done, before = self.apply(step), self.stage(stage).leaves
        return done, tuple(leaf for leaf in done.stage(stage).leaves if leaf not in before)

    def _with_stage(self, step: Step) -> tuple[Self, str]:
        done, before = self.apply(step), {s.name for s in self.state.stages}
        (made,) = (s.name for s in done.state.stages if s.name not in before)
        return done, made

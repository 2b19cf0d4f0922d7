"""Steps that change the loops of one stage."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import ClassVar

from search_space.ir.expr import lift
from search_space.ir.stmt import KINDS
from search_space.schedule.errors import ScheduleError
from search_space.schedule.state import (
    TAILS,
    FuseRelation,
    SplitRelation,
    State,
)
from search_space.schedule.step import (
    Factor,
    Step,
    check_new_leaves,
    check_unused,
    position,
    root_extent,
)


@dataclass(frozen=True)
class Split(Step):
    """A split of a loop into a nest; `factors` are the inner extents, the outermost is inferred.

    Before: `for i in n`. After: `for i.0 in ceil(n / (f1 * f2)): for i.1 in f1: for i.2 in f2`.
    `tail` selects the treatment of an extent that the factors do not divide: `exact` (an error), `guard` (a predicate,
    a mask on vectors), `clamp` (the last tile starts earlier and is computed twice in part: no predicate; only where
    storing twice is harmless), `peel` (a second loop for the rest). Halide: split with TailStrategy; TVM: split.
    """

    stage: str
    axis: str
    factors: tuple[Factor, ...]
    tail: str = "exact"
    name: ClassVar[str] = "split"

    def apply(self, state: State) -> State:
        stage = state.stage(self.stage)
        at = position(stage, self.axis)
        if self.tail not in TAILS:
            raise ScheduleError(f"`tail` must be one of {', '.join(TAILS)}, but got tail={self.tail!r}")
        if not self.factors:
            raise ScheduleError(f"`factors` must not be empty, but got factors=() for {self.stage}.{self.axis}")
        if self.tail == "clamp" and stage.is_reduce(self.axis):
            raise ScheduleError(f"`tail` must not be clamp on a reduce axis, but got axis={self.axis!r}")
        if self.tail == "peel" and len(self.factors) != 1:
            raise ScheduleError(f"`factors` must be one number where tail=peel, but got factors={self.factors}")
        factors = tuple(lift(f) for f in self.factors)
        for f in factors:
            if f.is_const and f.value < 1:
                raise ScheduleError(f"`factor` must be at least 1, but got factor={f.value}")
        extent = root_extent(stage, self.axis)
        inner = 1
        for f in factors:
            inner = inner * f.value if f.is_const and inner else 0
        if self.tail == "exact" and extent is not None and extent.is_const and inner and extent.value % inner:
            raise ScheduleError(f"`factor` must divide extent, but got factor={inner}, extent={extent.value}")
        check_unused(state, stage, self.axis)
        children = tuple(f"{self.axis}.{i}" for i in range(len(factors) + 1))
        check_new_leaves(stage, children)
        leaves = stage.leaves[:at] + children + stage.leaves[at + 1 :]
        relation = SplitRelation(self.axis, children, factors, self.tail)
        return state.update(replace(stage, leaves=leaves, relations=(*stage.relations, relation)))


@dataclass(frozen=True)
class Fuse(Step):
    """A fusion of adjacent loops. Before: `for i: for j`. After: `for i*j`. Halide, TVM: fuse."""

    stage: str
    axes: tuple[str, ...]
    name: ClassVar[str] = "fuse"

    def apply(self, state: State) -> State:
        stage = state.stage(self.stage)
        if len(self.axes) < 2:
            raise ScheduleError(f"`axes` must name at least two loops, but got axes={self.axes}")
        at = [position(stage, a, "axes") for a in self.axes]
        if at != list(range(at[0], at[0] + len(at))):
            raise ScheduleError(f"`axes` must be adjacent loops, outermost first, but got axes={self.axes}")
        if len({stage.is_reduce(a) for a in self.axes}) > 1:
            raise ScheduleError(f"`axes` must be all spatial or all reduced, but got axes={self.axes}")
        for axis in self.axes:
            check_unused(state, stage, axis)
        child = "_".join(self.axes)
        check_new_leaves(stage, (child,))
        leaves = (*stage.leaves[: at[0]], child, *stage.leaves[at[-1] + 1 :])
        return state.update(replace(stage, leaves=leaves, relations=(*stage.relations, FuseRelation(self.axes, child))))


@dataclass(frozen=True)
class Reorder(Step):
    """A new order of the named loops in their current positions; other loops stay. Halide, TVM: reorder."""

    stage: str
    axes: tuple[str, ...]
    name: ClassVar[str] = "reorder"

    def apply(self, state: State) -> State:
        stage = state.stage(self.stage)
        if len(set(self.axes)) != len(self.axes):
            raise ScheduleError(f"`axes` must not repeat, but got axes={self.axes}")
        places = sorted(position(stage, a, "axes") for a in self.axes)
        leaves = list(stage.leaves)
        for place, axis in zip(places, self.axes, strict=True):
            leaves[place] = axis
        return state.update(replace(stage, leaves=tuple(leaves)))


@dataclass(frozen=True)
class Annotate(Step):
    """The kind of a loop: parallel, vectorize, unroll, vthread or a thread tag. Halide, TVM: the same names, bind."""

    stage: str
    axis: str
    kind: str
    name: ClassVar[str] = "annotate"

    def apply(self, state: State) -> State:
        stage = state.stage(self.stage)
        position(stage, self.axis)
        if self.kind not in KINDS:
            raise ScheduleError(f"`kind` must be one of {', '.join(KINDS)}, but got kind={self.kind!r}")
        if self.kind == "parallel" and stage.is_reduce(self.axis):
            raise ScheduleError(f"a reduce loop must not be parallel (use rfactor), but got axis={self.axis!r}")
        return state.update(replace(stage, kinds=MappingProxyType({**stage.kinds, self.axis: self.kind})))


@dataclass(frozen=True)
class Tensorize(Step):
    """A replacement of the loops at and inside `axis` by the instruction `intrinsic`. TVM: tensorize."""

    stage: str
    axis: str
    intrinsic: str
    name: ClassVar[str] = "tensorize"

    def apply(self, state: State) -> State:
        stage = state.stage(self.stage)
        position(stage, self.axis)
        return state.update(replace(stage, tensorization=(self.axis, self.intrinsic)))


@dataclass(frozen=True)
class Pragma(Step):
    """A hint on a loop that a target may read, such as `prefetch_bytes`. TVM: pragma."""

    stage: str
    axis: str
    key: str
    value: int
    name: ClassVar[str] = "pragma"

    def apply(self, state: State) -> State:
        stage = state.stage(self.stage)
        position(stage, self.axis)
        return state.update(replace(stage, pragmas=(*stage.pragmas, (self.axis, self.key, self.value))))

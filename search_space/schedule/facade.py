"""`te.Schedule`: a thin facade that appends steps to a trace and holds the current immutable state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from search_space import te
from search_space.ir.expr import Expr
from search_space.schedule.errors import ScheduleError
from search_space.schedule.intrinsics import TensorIntrin, register_intrinsic
from search_space.schedule.state import State, initial_state
from search_space.schedule.step import Factor
from search_space.schedule.steps import (
    Annotate,
    CacheRead,
    CacheWrite,
    ComputeAt,
    ComputeInline,
    Fuse,
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

__all__ = ["Schedule", "StageTensor", "StageView", "TensorIntrin"]

Loop = "str | te.IterVar"


@dataclass(frozen=True)
class StageTensor:
    """A stage made by cache_read, cache_write or rfactor, usable wherever the schedule takes a tensor."""

    name: str
    schedule: Schedule

    @property
    def op(self) -> StageTensor:
        return self

    @property
    def axis(self) -> tuple[te.IterVar, ...]:
        stage = self.schedule.state.stage(self.name)
        return tuple(te.IterVar(a.name, _number(a.extent)) for a in stage.axes)

    @property
    def reduce_axis(self) -> tuple[te.IterVar, ...]:
        stage = self.schedule.state.stage(self.name)
        return tuple(te.IterVar(a.name, _number(a.extent), "reduce") for a in stage.reduce_axes)


def _number(extent: Expr) -> int:
    return int(extent.value) if extent.is_const else 0


class Schedule:
    """A hand-written schedule. `s[tensor]` gives the stage; every call appends one step to `s.trace`."""

    def __init__(self, initial: State, names: dict[te.Operation, str]) -> None:
        self.initial = initial
        self.state = initial
        self.trace = Trace()
        self._names = names

    @classmethod
    def of(cls, ops: te.Operation | Sequence[te.Operation]) -> Schedule:
        """A schedule whose outputs are `ops`."""
        ops = [ops] if isinstance(ops, te.Operation) else list(ops)
        names: dict[te.Operation, str] = {}
        return cls(initial_state([te.Tensor(op) for op in ops], names), names)

    def name_of(self, tensor: Any) -> str:
        """The stage or input a tensor, an operation or a name stands for."""
        if isinstance(tensor, str):
            return tensor
        if isinstance(tensor, StageTensor):
            return tensor.name
        op = tensor.op if isinstance(tensor, te.Tensor) else tensor
        if op not in self._names:
            raise ScheduleError(f"`tensor` must belong to this schedule, but got {getattr(tensor, 'name', tensor)}")
        return self._names[op]

    def apply(self, step: Step) -> None:
        """Appends a step; the schedule is unchanged if it is illegal."""
        self.state = step.apply(self.state)
        self.trace = self.trace.then(step)

    def __getitem__(self, tensor: Any) -> StageView:
        name = self.name_of(tensor)
        self.state.stage(name)
        return StageView(self, name)

    def cache_write(self, tensor: Any, scope: str) -> StageTensor:
        """See `CacheWrite`."""
        return self._new(CacheWrite(self.name_of(tensor), scope))

    def cache_read(self, tensor: Any, scope: str, readers: Any) -> StageTensor:
        """See `CacheRead`."""
        readers = readers if isinstance(readers, (list, tuple)) else [readers]
        return self._new(CacheRead(self.name_of(tensor), scope, tuple(self.name_of(r) for r in readers)))

    def rfactor(self, tensor: Any, axis: Any) -> StageTensor:
        """See `Rfactor`."""
        return self._new(Rfactor(self.name_of(tensor), _name(axis)))

    def pack(self, tensor: Any, factors: Sequence[Sequence[Factor]], order: Sequence[tuple[int, int]]) -> None:
        """See `Pack`."""
        self.apply(Pack(self.name_of(tensor), tuple(tuple(f) for f in factors), tuple((d, p) for d, p in order)))

    def _new(self, step: Step) -> StageTensor:
        before = {s.name for s in self.state.stages}
        self.apply(step)
        (name,) = [s.name for s in self.state.stages if s.name not in before]
        return StageTensor(name, self)


def _name(axis: Any) -> str:
    return axis if isinstance(axis, str) else str(axis.name)


class StageView:
    """The loops of one stage, with the primitives as methods; loops are returned as axes for further calls."""

    def __init__(self, schedule: Schedule, name: str) -> None:
        self._schedule = schedule
        self.name = name

    @property
    def op(self) -> StageTensor:
        return StageTensor(self.name, self._schedule)

    @property
    def leaf_iter_vars(self) -> tuple[te.IterVar, ...]:
        """The current loops, outermost first."""
        return tuple(te.IterVar(leaf, 0) for leaf in self._schedule.state.stage(self.name).leaves)

    def split(
        self,
        axis: Any,
        factor: Factor | None = None,
        nparts: int | None = None,
        factors: Sequence[Factor] | None = None,
        tail: str | None = None,
    ) -> tuple[te.IterVar, ...]:
        """Splits a loop; see `Split`. `factor` is the inner extent, `nparts` the outer.

        Where no tail is given it is `exact` if numbers divide the extent, else `guard`.
        """
        name = _name(axis)
        stage = self._schedule.state.stage(self.name)
        extent = {a.name: _number(a.extent) for a in (*stage.axes, *stage.reduce_axes)}.get(name, 0)
        if nparts is not None:
            if not extent:
                raise ScheduleError(f"`nparts` must be used on an axis whose extent is known, but got axis={name!r}")
            factor = -(-extent // nparts)
        inner = tuple(factors) if factors is not None else (factor,)
        if any(f is None for f in inner):
            raise ScheduleError("`split` must be given factor, nparts or factors, but got none of them")
        if tail is None:
            whole = prod(f for f in inner if isinstance(f, int) and f)
            known = all(isinstance(f, int) for f in inner)
            tail = "exact" if extent and known and extent % whole == 0 else "guard"
        self._schedule.apply(Split(self.name, name, tuple(f for f in inner if f is not None), tail))
        return tuple(te.IterVar(f"{name}.{i}", 0) for i in range(len(inner) + 1))

    def fuse(self, *axes: Any) -> te.IterVar:
        names = tuple(_name(a) for a in axes)
        self._schedule.apply(Fuse(self.name, names))
        return te.IterVar("_".join(names), 0)

    def reorder(self, *axes: Any) -> None:
        self._schedule.apply(Reorder(self.name, tuple(_name(a) for a in axes)))

    def unroll(self, axis: Any) -> None:
        self._annotate(axis, "unroll")

    def vectorize(self, axis: Any) -> None:
        self._annotate(axis, "vectorize")

    def parallel(self, axis: Any) -> None:
        self._annotate(axis, "parallel")

    def bind(self, axis: Any, thread: te.IterVar) -> None:
        """Binds a loop to a thread axis; on targets without such threads it runs as a loop."""
        self._annotate(axis, thread.name)

    def vthread(self, axis: Any) -> None:
        self._annotate(axis, "vthread")

    def _annotate(self, axis: Any, kind: str) -> None:
        self._schedule.apply(Annotate(self.name, _name(axis), kind))

    def compute_at(self, target: StageView, axis: Any) -> None:
        self._schedule.apply(ComputeAt(self.name, target.name, _name(axis)))

    def compute_inline(self) -> None:
        self._schedule.apply(ComputeInline(self.name))

    def set_scope(self, scope: str) -> None:
        self._schedule.apply(SetScope(self.name, scope))

    def relayout(self, order: Sequence[int], pad: Factor = 0) -> None:
        """See `Relayout`."""
        self._schedule.apply(Relayout(self.name, tuple(order), pad))

    def tensorize(self, axis: Any, intrinsic: TensorIntrin) -> None:
        register_intrinsic(intrinsic)
        self._schedule.apply(Tensorize(self.name, _name(axis), intrinsic.name))

    def pragma(self, axis: Any, key: str, value: int = 1) -> None:
        self._schedule.apply(Pragma(self.name, _name(axis), key, value))

"""`te.Schedule`: the schedules of Halide and TVM, whose methods change them, over the immutable `ScheduleBuilder`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from search_space.ir.expr import Expr
from search_space.ir.simplify import Simplifier
from search_space.ir.sizes import is_sized
from search_space.schedule.builder import ScheduleBuilder, one_by_one
from search_space.schedule.errors import ScheduleError
from search_space.schedule.intrinsics import TensorIntrin, register_intrinsic
from search_space.schedule.state import State, initial_state
from search_space.schedule.step import Factor
from search_space.schedule.steps import Fuse, Step
from search_space.schedule.trace import Trace
from search_space.tensor import Extent, IterVar, Operation, Tensor

__all__ = ["Schedule", "StageTensor", "StageView", "TensorIntrin"]


@dataclass(frozen=True)
class StageTensor:
    """A stage made by cache_read, cache_write or rfactor, usable wherever the schedule takes a tensor."""

    name: str
    schedule: Schedule

    @property
    def op(self) -> StageTensor:
        return self

    @property
    def axis(self) -> tuple[IterVar, ...]:
        stage = self.schedule.state.stage(self.name)
        return tuple(IterVar(a.name, _readable_extent(a.extent)) for a in stage.axes)

    @property
    def reduce_axis(self) -> tuple[IterVar, ...]:
        stage = self.schedule.state.stage(self.name)
        return tuple(IterVar(a.name, _readable_extent(a.extent), "reduce") for a in stage.reduce_axes)


def _readable_extent(extent: Expr) -> Extent:
    """Converts an extent to a number or an expression of sizes; 0 for another expression."""
    return extent if is_sized(extent) else _number(extent)


def _divides(factor: int, extent: Expr) -> bool:
    rest = Simplifier({})(extent % factor)
    return bool(rest.is_const and rest.value == 0)


def _number(extent: Expr) -> int:
    return int(extent.value) if extent.is_const else 0


class Schedule:
    """A hand-written schedule. `s[tensor]` gives the stage; every call appends one step to `s.trace`."""

    def __init__(self, initial: State, names: dict[Operation, str]) -> None:
        self.initial = initial
        self.builder = ScheduleBuilder(initial)
        self._names = names

    @property
    def state(self) -> State:
        """The stages as they are scheduled now."""
        return self.builder.state

    @property
    def trace(self) -> Trace:
        """The steps so far."""
        return self.builder.trace

    @classmethod
    def of(cls, ops: Operation | Sequence[Operation]) -> Schedule:
        """Creates a schedule whose outputs are `ops`."""
        ops = [ops] if isinstance(ops, Operation) else list(ops)
        names: dict[Operation, str] = {}
        return cls(initial_state([Tensor(op) for op in ops], names), names)

    def stage_name(self, tensor: Any) -> str:
        """Returns the name of the stage or input for a tensor, an operation or a name."""
        if isinstance(tensor, str):
            return tensor
        if isinstance(tensor, StageTensor):
            return tensor.name
        op = tensor.op if isinstance(tensor, Tensor) else tensor
        if op not in self._names:
            raise ScheduleError(f"`tensor` must belong to this schedule, but got {getattr(tensor, 'name', tensor)}")
        return self._names[op]

    def apply(self, step: Step) -> None:
        """Appends a step; the schedule is unchanged if it is illegal."""
        self.builder = self.builder.apply(step)

    def __getitem__(self, tensor: Any) -> StageView:
        name = self.stage_name(tensor)
        self.state.stage(name)
        return StageView(self, name)

    def cache_write(self, tensor: Any, scope: str) -> StageTensor:
        """Computes a tensor in another memory and copies it; returns the source. See `CacheWrite`."""
        self.builder, made = self.builder.cache_write(self.stage_name(tensor), scope)
        return StageTensor(made, self)

    def cache_read(self, tensor: Any, scope: str, readers: Any) -> StageTensor:
        """Copies a tensor to another memory for its readers; returns the copy. See `CacheRead`."""
        readers = readers if isinstance(readers, (list, tuple)) else [readers]
        self.builder, made = self.builder.cache_read(self.stage_name(tensor), scope, *map(self.stage_name, readers))
        return StageTensor(made, self)

    def rfactor(self, tensor: Any, axis: Any) -> StageTensor:
        """Splits a reduction; returns the partial results, whose last axis is `axis`. See `Rfactor`."""
        self.builder, made = self.builder.rfactor(self.stage_name(tensor), _name(axis))
        return StageTensor(made, self)

    def pack(self, tensor: Any, factors: Sequence[Sequence[Factor]], order: Sequence[tuple[int, int]]) -> None:
        """Packs a constant before the first call; see `Pack`."""
        self.builder = self.builder.pack(self.stage_name(tensor), factors, [(d, p) for d, p in order])


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

    def split(
        self,
        axis: Any,
        factor: Factor | None = None,
        nparts: int | None = None,
        factors: Sequence[Factor] | None = None,
        tail: str | None = None,
    ) -> tuple[IterVar, ...]:
        """Splits a loop; see `Split`. `factor` is the inner extent, `nparts` the outer.

        The default tail is `exact` if numbers divide the extent for all sizes in it, else `guard`.
        """
        name = _name(axis)
        stage = self._schedule.state.stage(self.name)
        extents = {a.name: a.extent for a in (*stage.axes, *stage.reduce_axes)}
        extent = _number(extents[name]) if name in extents else 0
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
            tail = "exact" if known and name in extents and _divides(whole, extents[name]) else "guard"
        done, loops = self._builder.split(self.name, name, [f for f in inner if f is not None], tail)
        self._do(done)
        return tuple(IterVar(loop, 0) for loop in loops)

    def fuse(self, *axes: Any) -> IterVar:
        """Fuses loops, given one by one or in a list; see `Fuse`."""
        names = [_name(a) for a in one_by_one(axes)]
        if len(names) < 2:
            self._schedule.apply(Fuse(self.name, tuple(names)))  # raises the error
        done, loop = self._builder.fuse(self.name, names)
        self._do(done)
        return IterVar(loop, 0)

    def reorder(self, *axes: Any) -> None:
        """Puts loops, given one by one or in a list, in this order; see `Reorder`."""
        self._do(self._builder.reorder(self.name, *map(_name, one_by_one(axes))))

    def unroll(self, axis: Any) -> None:
        self._do(self._builder.unroll(self.name, _name(axis)))

    def vectorize(self, axis: Any) -> None:
        self._do(self._builder.vectorize(self.name, _name(axis)))

    def parallel(self, axis: Any) -> None:
        self._do(self._builder.parallel(self.name, _name(axis)))

    def bind(self, axis: Any, thread: IterVar) -> None:
        """Binds a loop to a thread axis; on targets without such threads it runs as a loop."""
        self._do(self._builder.bind(self.name, _name(axis), thread.name))

    def vthread(self, axis: Any) -> None:
        self._do(self._builder.annotate(self.name, "vthread", _name(axis)))

    def compute_at(self, target: StageView, axis: Any) -> None:
        self._do(self._builder.compute_at(self.name, target.name, _name(axis)))

    def compute_inline(self) -> None:
        self._do(self._builder.compute_inline(self.name))

    def set_scope(self, scope: str) -> None:
        self._do(self._builder.set_scope(self.name, scope))

    def relayout(self, order: Sequence[int], pad: Factor = 0) -> None:
        """Stores the stage's dimensions in another order, with a pad between rows; see `Relayout`."""
        self._do(self._builder.relayout(self.name, order, pad))

    def interleave(self, axis: Any, factor: int) -> None:
        """Stores `factor` neighbours along an axis next to each other; see `Interleave`."""
        self._do(self._builder.interleave(self.name, _name(axis), factor))

    def widen(self) -> None:
        """Stores the stage's 16-bit floats as float32; see `Widen`."""
        self._do(self._builder.widen(self.name))

    def tensorize(self, axis: Any, intrinsic: TensorIntrin) -> None:
        register_intrinsic(intrinsic)
        self._do(self._builder.tensorize(self.name, _name(axis), intrinsic.name))

    def pragma(self, axis: Any, key: str, value: int = 1) -> None:
        self._do(self._builder.pragma(self.name, _name(axis), key, value))

    @property
    def _builder(self) -> ScheduleBuilder:
        return self._schedule.builder

    def _do(self, builder: ScheduleBuilder) -> None:
        self._schedule.builder = builder

"""Schedule steps: frozen data, each a pure function from state to state with its guards first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import Any, ClassVar

from search_space.ir.expr import Expr, ceildiv, const, lift, load, logical_and, product, select, substitute, var
from search_space.ir.stmt import KINDS, SCOPES
from search_space.schedule.errors import ScheduleError
from search_space.schedule.state import (
    TAILS,
    Attach,
    Axis,
    FuseRelation,
    Layout,
    SplitRelation,
    Stage,
    State,
    identity_of,
    make_stage,
    rename_loads,
)

Factor = int | Expr


@dataclass(frozen=True)
class Step:
    """Base of the steps; `name` is the step's name in a trace."""

    name: ClassVar[str] = ""

    def apply(self, state: State) -> State:
        """The state after this step.

        Raises:
            ScheduleError: a precondition does not hold.
        """
        raise NotImplementedError

    def to_json(self) -> dict[str, Any]:
        """Plain data, `{"step": name, field: value}`; the numbers must be in it (no decision variables)."""
        return {"step": self.name, **{f.name: _plain(getattr(self, f.name)) for f in fields(self)}}

    def substitute(self, values: Mapping[str, int]) -> Step:
        """The step with decision variables replaced by numbers."""
        return replace(self, **{f.name: _concrete(getattr(self, f.name), values) for f in fields(self)})


def _plain(value: Any) -> Any:
    if isinstance(value, Expr):
        if not value.is_const:
            raise ScheduleError(f"a recorded step must hold numbers, but got the decision variable {value}")
        return value.value
    return [_plain(v) for v in value] if isinstance(value, tuple) else value


def _concrete(value: Any, values: Mapping[str, int]) -> Any:
    if isinstance(value, Expr):
        done = substitute(value, values)
        return done.value if done.is_const else done
    return tuple(_concrete(v, values) for v in value) if isinstance(value, tuple) else value


def _leaf(stage: Stage, leaf: str, field_name: str = "axis") -> int:
    if leaf not in stage.leaves:
        raise ScheduleError(
            f"`{field_name}` must be a loop of {stage.name} ({', '.join(stage.leaves)}), but got {field_name}={leaf!r}"
        )
    return stage.leaves.index(leaf)


def _unused(state: State, stage: Stage, leaf: str) -> None:
    """Guards against replacing a loop that something refers to."""
    if leaf in stage.kinds:
        raise ScheduleError(
            f"`axis` must be split and fused before it is annotated, but {stage.name}.{leaf} is {stage.kinds[leaf]}"
        )
    if (stage.tensorized and stage.tensorized[0] == leaf) or any(axis == leaf for axis, _, _ in stage.pragmas):
        raise ScheduleError(f"`axis` must be split and fused before its pragmas are set, but got {stage.name}.{leaf}")
    _no_attached(state, stage, leaf)


def _no_attached(state: State, stage: Stage, leaf: str | None = None) -> None:
    for other in state.stages:
        at = other.attach
        if at.kind == "at" and at.stage == stage.name and leaf in (None, at.leaf):
            raise ScheduleError(
                f"loops must be transformed before other stages are computed at them, but {other.name} is computed at "
                f"{stage.name}.{at.leaf}"
            )


def _fresh_leaves(stage: Stage, names: tuple[str, ...]) -> None:
    taken = {*stage.leaves, *(a.name for a in (*stage.axes, *stage.reduce_axes))}
    clash = [n for n in names if n in taken]
    if clash:
        raise ScheduleError(f"new loops must have names of their own, but {stage.name} has {clash[0]} already")


def _untouched(state: State, stage: Stage, step: str) -> None:
    """Guards a step that gives a stage new loops."""
    if stage.relations and step == "cache_write":
        raise ScheduleError(f"`{step}` must come before loops are split or fused, but {stage.name} has some")
    if stage.kinds or stage.tensorized or stage.pragmas:
        raise ScheduleError(f"`{step}` must come before loops are annotated, but {stage.name} has some")
    _no_attached(state, stage)


def _root_extent(stage: Stage, leaf: str) -> Expr | None:
    """The extent of an untransformed axis of a root stage; None where bounds are inferred only in lowering."""
    if stage.attach.kind != "root":
        return None
    return next((a.extent for a in (*stage.axes, *stage.reduce_axes) if a.name == leaf), None)


@dataclass(frozen=True)
class Split(Step):
    """Splits a loop into a nest; `factors` are the inner extents, the outermost is inferred.

    Before: `for i in n`. After: `for i.0 in ceil(n / (f1 * f2)): for i.1 in f1: for i.2 in f2`.
    `tail` says what happens where the factors do not divide: `exact` (they must), `guard` (a predicate, a mask on
    vectors), `clamp` (the last tile starts earlier and is computed twice in part: no predicate; only where storing
    twice is harmless), `peel` (a second loop for the rest). Halide: split with TailStrategy; TVM: split.
    """

    stage: str
    axis: str
    factors: tuple[Factor, ...]
    tail: str = "exact"
    name: ClassVar[str] = "split"

    def apply(self, state: State) -> State:
        stage = state.stage(self.stage)
        at = _leaf(stage, self.axis)
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
        extent = _root_extent(stage, self.axis)
        whole = 1
        for f in factors:
            whole = whole * f.value if f.is_const and whole else 0
        if self.tail == "exact" and extent is not None and extent.is_const and whole and extent.value % whole:
            raise ScheduleError(f"`factor` must divide extent, but got factor={whole}, extent={extent.value}")
        _unused(state, stage, self.axis)
        children = tuple(f"{self.axis}.{i}" for i in range(len(factors) + 1))
        _fresh_leaves(stage, children)
        leaves = stage.leaves[:at] + children + stage.leaves[at + 1 :]
        relation = SplitRelation(self.axis, children, factors, self.tail)
        return state.update(replace(stage, leaves=leaves, relations=(*stage.relations, relation)))


@dataclass(frozen=True)
class Fuse(Step):
    """Makes adjacent loops one. Before: `for i: for j`. After: `for i*j`. Halide, TVM: fuse."""

    stage: str
    axes: tuple[str, ...]
    name: ClassVar[str] = "fuse"

    def apply(self, state: State) -> State:
        stage = state.stage(self.stage)
        if len(self.axes) < 2:
            raise ScheduleError(f"`axes` must name at least two loops, but got axes={self.axes}")
        at = [_leaf(stage, a, "axes") for a in self.axes]
        if at != list(range(at[0], at[0] + len(at))):
            raise ScheduleError(f"`axes` must be adjacent loops, outermost first, but got axes={self.axes}")
        if len({stage.is_reduce(a) for a in self.axes}) > 1:
            raise ScheduleError(f"`axes` must be all spatial or all reduced, but got axes={self.axes}")
        for axis in self.axes:
            _unused(state, stage, axis)
        child = "_".join(self.axes)
        _fresh_leaves(stage, (child,))
        leaves = stage.leaves[: at[0]] + (child,) + stage.leaves[at[-1] + 1 :]
        return state.update(replace(stage, leaves=leaves, relations=(*stage.relations, FuseRelation(self.axes, child))))


@dataclass(frozen=True)
class Reorder(Step):
    """Puts the named loops in the given order, in the places they hold now; the others stay. Halide, TVM: reorder."""

    stage: str
    axes: tuple[str, ...]
    name: ClassVar[str] = "reorder"

    def apply(self, state: State) -> State:
        stage = state.stage(self.stage)
        if len(set(self.axes)) != len(self.axes):
            raise ScheduleError(f"`axes` must not repeat, but got axes={self.axes}")
        places = sorted(_leaf(stage, a, "axes") for a in self.axes)
        leaves = list(stage.leaves)
        for place, axis in zip(places, self.axes, strict=True):
            leaves[place] = axis
        return state.update(replace(stage, leaves=tuple(leaves)))


@dataclass(frozen=True)
class Annotate(Step):
    """Says how a loop runs: parallel, vectorize, unroll, vthread or a thread tag. Halide, TVM: the same names, bind."""

    stage: str
    axis: str
    kind: str
    name: ClassVar[str] = "annotate"

    def apply(self, state: State) -> State:
        stage = state.stage(self.stage)
        _leaf(stage, self.axis)
        if self.kind not in KINDS:
            raise ScheduleError(f"`kind` must be one of {', '.join(KINDS)}, but got kind={self.kind!r}")
        if self.kind == "parallel" and stage.is_reduce(self.axis):
            raise ScheduleError(f"a reduce loop must not be parallel (use rfactor), but got axis={self.axis!r}")
        return state.update(replace(stage, kinds=MappingProxyType({**stage.kinds, self.axis: self.kind})))


@dataclass(frozen=True)
class ComputeAt(Step):
    """Computes `stage` inside the loop `axis` of its consumer `target`, only the region needed. TVM: compute_at."""

    stage: str
    target: str
    axis: str
    name: ClassVar[str] = "compute_at"

    def apply(self, state: State) -> State:
        stage, target = state.stage(self.stage), state.stage(self.target)
        _leaf(target, self.axis)
        if self.stage in state.outputs:
            raise ScheduleError(f"`stage` must not be an output, but got stage={self.stage!r}")
        inside = {self.target}
        for other in reversed(state.stages):
            if other.attach.kind == "at" and other.attach.stage in inside:
                inside.add(other.name)
        outside = [c.name for c in state.consumers(self.stage) if c.name not in inside and c.attach.kind != "inline"]
        if outside or not state.consumers(self.stage):
            raise ScheduleError(
                f"`target` must hold every consumer of {self.stage}, but got target={self.target!r}, "
                f"consumers={', '.join(outside) or 'none'}"
            )
        return state.update(replace(stage, attach=Attach("at", self.target, self.axis)))


@dataclass(frozen=True)
class ComputeInline(Step):
    """Replaces every read of `stage` by its definition. TVM: compute_inline."""

    stage: str
    name: ClassVar[str] = "compute_inline"

    def apply(self, state: State) -> State:
        stage = state.stage(self.stage)
        if stage.reducer is not None:
            raise ScheduleError(f"a reduction must not be inlined, but got stage={self.stage!r}")
        if self.stage in state.outputs:
            raise ScheduleError(f"an output must not be inlined, but got stage={self.stage!r}")
        return state.update(replace(stage, attach=Attach("inline")))


@dataclass(frozen=True)
class SetScope(Step):
    """Keeps a stage's result in another memory (`local`: registers). TVM: set_scope."""

    stage: str
    scope: str
    name: ClassVar[str] = "set_scope"

    def apply(self, state: State) -> State:
        stage = state.stage(self.stage)
        if self.scope not in SCOPES:
            raise ScheduleError(f"`scope` must be one of {', '.join(SCOPES)}, but got scope={self.scope!r}")
        if self.stage in state.outputs and self.scope != "global":
            raise ScheduleError(f"an output must be global, but got stage={self.stage!r}, scope={self.scope!r}")
        return state.update(replace(stage, scope=self.scope))


@dataclass(frozen=True)
class CacheWrite(Step):
    """Computes `stage` into a new stage `stage.scope` and copies from it. Must come before the loops are changed.

    Before: `Y[...] = f(...)`. After: `Y.local[...] = f(...); Y[...] = Y.local[...]`. TVM: cache_write.
    """

    stage: str
    scope: str = "local"
    name: ClassVar[str] = "cache_write"

    def apply(self, state: State) -> State:
        stage = state.stage(self.stage)
        _untouched(state, stage, self.name)
        if self.scope not in SCOPES:
            raise ScheduleError(f"`scope` must be one of {', '.join(SCOPES)}, but got scope={self.scope!r}")
        cached = replace(stage, name=_fresh(state, f"{stage.name}.{self.scope}"), scope=self.scope, attach=Attach())
        read = load(cached.name, [var(a.name) for a in stage.axes], stage.dtype)
        copy = make_stage(stage.name, stage.dtype, stage.axes, (), read, None, stage.scope, stage.tag)
        copy = replace(copy, attach=stage.attach)
        stages = [s for s in state.stages if s.name != stage.name]
        at = state.stages.index(stage)
        return replace(state, stages=(*stages[:at], cached, copy, *stages[at:]))


@dataclass(frozen=True)
class CacheRead(Step):
    """Copies `tensor` to another memory for the stages in `readers`. TVM: cache_read."""

    tensor: str
    scope: str
    readers: tuple[str, ...]
    name: ClassVar[str] = "cache_read"

    def apply(self, state: State) -> State:
        if self.scope not in SCOPES:
            raise ScheduleError(f"`scope` must be one of {', '.join(SCOPES)}, but got scope={self.scope!r}")
        source = state.input(self.tensor) or state.stage(self.tensor)
        shape = [lift(e) for e in source.shape]
        readers = [state.stage(r) for r in self.readers]
        if not readers:
            raise ScheduleError(f"`readers` must name at least one stage, but got none for tensor={self.tensor!r}")
        for reader in readers:
            if self.tensor not in reader.reads():
                raise ScheduleError(f"`readers` must read {self.tensor}, but got reader={reader.name!r}")
        new = _fresh(state, f"{self.tensor}.{self.scope}")
        axes = [Axis(f"d{i}", e) for i, e in enumerate(shape)]
        body = load(self.tensor, [var(a.name) for a in axes], source.dtype)
        stage = make_stage(new, source.dtype, axes, (), body, None, self.scope)
        stages: list[Stage] = []
        placed = False
        for s in state.stages:
            if s.name in self.readers:
                if not placed:
                    stages.append(stage)
                    placed = True
                s = replace(s, body=rename_loads(s.body, {self.tensor: new}))
            stages.append(s)
        return replace(state, stages=tuple(stages))


@dataclass(frozen=True)
class Rfactor(Step):
    """Makes the reduce loop `axis` a spatial axis of a new stage `stage.rf`, which `stage` then reduces.

    Before: `s += a[k.0, k.1]`. After: `s.rf[k.1] += a[k.0, k.1]; s += s.rf[k.1]`. The new axis is the last one, so
    that it can be vectorized. Floating-point sums are re-associated. Halide, TVM: rfactor.
    """

    stage: str
    axis: str
    name: ClassVar[str] = "rfactor"

    def apply(self, state: State) -> State:
        stage = state.stage(self.stage)
        _leaf(stage, self.axis)
        if stage.reducer is None or not stage.is_reduce(self.axis):
            raise ScheduleError(f"`axis` must be a reduce loop, but got axis={self.axis!r} of {self.stage}")
        _untouched(state, stage, self.name)
        values, extents, conditions = _reduce_values(stage)
        others = [leaf for leaf in stage.leaves if stage.is_reduce(leaf) and leaf != self.axis]
        guard = logical_and(*conditions)
        body = substitute(stage.body, values)
        body = select(guard, body, const(identity_of(stage), stage.dtype)) if conditions else body
        new_axis = Axis(self.axis, extents[self.axis])
        partial = make_stage(
            _fresh(state, f"{stage.name}.rf"),
            stage.dtype,
            (*stage.axes, new_axis),
            [Axis(o, extents[o], True) for o in others],
            body,
            stage.reducer if others else None,
            tag=stage.tag,
        )
        indices = [var(a.name) for a in partial.axes]
        final = replace(
            make_stage(
                stage.name,
                stage.dtype,
                stage.axes,
                [replace(new_axis, reduce=True)],
                load(partial.name, indices, stage.dtype),
                stage.reducer,
                stage.scope,
            ),
            attach=stage.attach,
        )
        at = state.stages.index(stage)
        return replace(state, stages=(*state.stages[:at], partial, final, *state.stages[at + 1 :]))


def _reduce_values(stage: Stage) -> tuple[dict[str, Expr], dict[str, Expr], list[Expr]]:
    """Root reduce axes in terms of leaves, extents of all loops, and the predicates of guarded splits."""
    extents = {a.name: a.extent for a in (*stage.axes, *stage.reduce_axes)}
    for relation in stage.relations:
        if isinstance(relation, FuseRelation) or not stage.is_reduce(relation.parent):
            raise ScheduleError(f"`rfactor` must come before anything but splits of reduce axes, in {stage.name}")
        if relation.tail not in ("exact", "guard"):
            raise ScheduleError(f"`rfactor` needs splits that are exact or guarded, but got tail={relation.tail!r}")
        inner = product(relation.factors)
        extents[relation.children[0]] = ceildiv(extents[relation.parent], inner)
        extents.update(zip(relation.children[1:], relation.factors, strict=True))
    values: dict[str, Expr] = {}
    conditions: list[Expr] = []
    for relation in reversed(stage.relations):
        assert isinstance(relation, SplitRelation)
        value = values.get(relation.children[0], var(relation.children[0]))
        for child, factor in zip(relation.children[1:], relation.factors, strict=True):
            value = value * factor + values.get(child, var(child))
        values[relation.parent] = value
        if relation.tail == "guard":
            conditions.append(value < extents[relation.parent])
    roots = {a.name: values[a.name] for a in stage.reduce_axes if a.name in values}
    return roots, extents, conditions


@dataclass(frozen=True)
class Tensorize(Step):
    """Replaces the loops at and inside `axis` by the instruction `intrinsic`. TVM: tensorize."""

    stage: str
    axis: str
    intrinsic: str
    name: ClassVar[str] = "tensorize"

    def apply(self, state: State) -> State:
        stage = state.stage(self.stage)
        _leaf(stage, self.axis)
        return state.update(replace(stage, tensorized=(self.axis, self.intrinsic)))


@dataclass(frozen=True)
class Pack(Step):
    """Re-lays a constant before the first call: dimension d is split by `factors[d]`, the parts put in `order`.

    Before: `W[k, n]`. After, with factors ((), (32,)) and order ((1, 0), (0, 0), (1, 1)): `W.packed[n//32, k, n%32]`.
    Free at run time; a dimension that is not divided is padded with zeros. TVM: layout rewrite.
    """

    tensor: str
    factors: tuple[tuple[Factor, ...], ...]
    order: tuple[tuple[int, int], ...]
    name: ClassVar[str] = "pack"

    def apply(self, state: State) -> State:
        source = state.input(self.tensor)
        if source is None or not source.constant:
            raise ScheduleError(f"`tensor` must be a constant input, but got tensor={self.tensor!r}")
        if source.layout is not None:
            raise ScheduleError(f"`tensor` must not be packed twice, but got tensor={self.tensor!r}")
        if len(self.factors) != len(source.shape):
            raise ScheduleError(
                f"`factors` must have one entry a dimension, but got {len(self.factors)} for shape={source.shape}"
            )
        for factor in (f for fs in self.factors for f in map(lift, fs)):
            if factor.is_const and factor.value < 1:
                raise ScheduleError(f"`factor` must be at least 1, but got factor={factor.value}")
        parts = {(d, p) for d, f in enumerate(self.factors) for p in range(len(f) + 1)}
        if set(self.order) != parts or len(self.order) != len(parts):
            raise ScheduleError(f"`order` must name each of {sorted(parts)} once, but got order={self.order}")
        layout = Layout(tuple(tuple(lift(f) for f in fs) for fs in self.factors), self.order)
        inputs = tuple(replace(i, layout=layout) if i.name == self.tensor else i for i in state.inputs)
        return replace(state, inputs=inputs)


@dataclass(frozen=True)
class Pragma(Step):
    """Attaches a hint to a loop that a target may read (`unroll_limit`, `double_buffer`, ...). TVM: pragma."""

    stage: str
    axis: str
    key: str
    value: int
    name: ClassVar[str] = "pragma"

    def apply(self, state: State) -> State:
        stage = state.stage(self.stage)
        _leaf(stage, self.axis)
        return state.update(replace(stage, pragmas=(*stage.pragmas, (self.axis, self.key, self.value))))


STEPS: dict[str, type[Step]] = {
    cls.name: cls
    for cls in (
        Split,
        Fuse,
        Reorder,
        Annotate,
        ComputeAt,
        ComputeInline,
        SetScope,
        CacheWrite,
        CacheRead,
        Rfactor,
        Tensorize,
        Pack,
        Pragma,
    )
}


def step_from_json(data: Mapping[str, Any]) -> Step:
    """The step a trace entry describes.

    Raises:
        ScheduleError: an unknown step, or fields that are not the step's own.
    """
    kind = data.get("step")
    if kind not in STEPS:
        raise ScheduleError(f"`step` must be one of {', '.join(STEPS)}, but got step={kind!r}")
    cls = STEPS[kind]
    wanted = {f.name for f in fields(cls)}
    given = {k: _frozen(v) for k, v in data.items() if k != "step"}
    if set(given) != wanted:
        raise ScheduleError(f"a {kind} step must have {sorted(wanted)}, but got {sorted(given)}")
    return cls(**given)


def _frozen(value: Any) -> Any:
    return tuple(_frozen(v) for v in value) if isinstance(value, list) else value


def _fresh(state: State, name: str) -> str:
    taken = {s.name for s in state.stages} | {i.name for i in state.inputs}
    unique, count = name, 1
    while unique in taken:
        unique, count = f"{name}{count}", count + 1
    return unique


__all__ = [cls.__name__ for cls in STEPS.values()] + ["STEPS", "Step", "step_from_json"]

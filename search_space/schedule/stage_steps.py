"""Steps that move stages, or add and re-lay tensors."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from search_space.dtypes import NARROW
from search_space.ir.expr import (
    Expr,
    cast,
    ceildiv,
    const,
    lift,
    load,
    logical_and,
    product,
    select,
    substitute,
    transform,
    var,
)
from search_space.ir.simplify import Simplifier
from search_space.ir.sizes import is_sized
from search_space.ir.stmt import SCOPES
from search_space.schedule.errors import ScheduleError
from search_space.schedule.state import (
    Attach,
    Axis,
    FuseRelation,
    Layout,
    SplitRelation,
    Stage,
    State,
    make_stage,
    reduction_identity,
    rename_loads,
)
from search_space.schedule.step import (
    Factor,
    Step,
    check_untouched,
    fresh_name,
    position,
)


@dataclass(frozen=True)
class ComputeAt(Step):
    """The computation of `stage` inside the loop `axis` of its consumer `target`, as far as needed. TVM: compute_at."""

    stage: str
    target: str
    axis: str
    name: ClassVar[str] = "compute_at"

    def apply(self, state: State) -> State:
        stage, target = state.stage(self.stage), state.stage(self.target)
        position(target, self.axis)
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
    """A replacement of every read of `stage` by its definition. TVM: compute_inline."""

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
    """Another memory for a stage's result (`local`: registers). TVM: set_scope."""

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
    """A new stage `stage.scope` that computes `stage`, which copies it. Must come before the loops are changed.

    Before: `Y[...] = f(...)`. After: `Y.local[...] = f(...); Y[...] = Y.local[...]`. TVM: cache_write.
    """

    stage: str
    scope: str = "local"
    name: ClassVar[str] = "cache_write"

    def apply(self, state: State) -> State:
        stage = state.stage(self.stage)
        check_untouched(state, stage, self.name)
        if self.scope not in SCOPES:
            raise ScheduleError(f"`scope` must be one of {', '.join(SCOPES)}, but got scope={self.scope!r}")
        cached = replace(stage, name=fresh_name(state, f"{stage.name}.{self.scope}"), scope=self.scope, attach=Attach())
        read = load(cached.name, [var(a.name) for a in stage.axes], stage.dtype)
        copy = make_stage(stage.name, stage.dtype, stage.axes, (), read, None, stage.scope, stage.tag)
        copy = replace(copy, attach=stage.attach)
        stages = [s for s in state.stages if s.name != stage.name]
        at = state.stages.index(stage)
        return replace(state, stages=(*stages[:at], cached, copy, *stages[at:]))


@dataclass(frozen=True)
class CacheRead(Step):
    """A copy of `tensor` in another memory for the stages in `readers`. TVM: cache_read."""

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
        new = fresh_name(state, f"{self.tensor}.{self.scope}")
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
class Relayout(Step):
    """Another order of a stage's dimensions in memory, with `pad` additional elements between rows.

    Before: `S[i, j]`. After, with order (1, 0): `S[j, i]`. The loops stay. With padded rows, threads that read a column
    of shared memory use different banks. TVM: transform_layout, storage_align.
    """

    stage: str
    order: tuple[int, ...]
    pad: Factor = 0
    name: ClassVar[str] = "relayout"

    def apply(self, state: State) -> State:
        stage = state.stage(self.stage)
        if sorted(self.order) != list(range(len(stage.axes))):
            raise ScheduleError(
                f"`order` must name each of {len(stage.axes)} dimensions once, but got order={self.order}"
            )
        pad = lift(self.pad)
        if pad.is_const and pad.value < 0:
            raise ScheduleError(f"`pad` must not be negative, but got pad={pad.value}")
        if self.stage in state.outputs:
            raise ScheduleError(f"`stage` must not be an output, but got stage={self.stage!r}")
        axes = tuple(stage.axes[d] for d in self.order)
        state = state.update(replace(stage, axes=axes, pad=pad))

        def visit(node: Expr) -> Expr | None:
            if node.op != "load" or node.args[0] != self.stage:
                return None
            indices = [transform(i, visit) for i in node.args[1:]]
            return load(self.stage, [indices[d] for d in self.order], node.dtype)

        return replace(state, stages=tuple(replace(s, body=transform(s.body, visit)) for s in state.stages))


@dataclass(frozen=True)
class Interleave(Step):
    """A layout with `factor` neighbours along a dimension of a stage next to each other, as its last dimension.

    Before: `S[r, j]`. After, with axis `r` and factor 2: `S[r // 2, j, r % 2]`, the layout of instructions whose lanes
    each multiply and add up a few neighbours. Elements past the end are zeros. TVM: transform_layout.
    """

    stage: str
    axis: str
    factor: int
    name: ClassVar[str] = "interleave"

    def apply(self, state: State) -> State:
        stage = state.stage(self.stage)
        check_untouched(state, stage, self.name)
        if stage.relations or stage.reducer is not None or self.stage in state.outputs:
            raise ScheduleError(f"`stage` must be a copy whose loops are untouched, but got stage={self.stage!r}")
        dim = next((d for d, a in enumerate(stage.axes) if a.name == self.axis), None)
        if dim is None:
            raise ScheduleError(
                f"`axis` must be a dimension of {self.stage} ({', '.join(stage.spatial)}), but got axis={self.axis!r}"
            )
        extent = stage.axes[dim].extent
        if self.factor < 1:
            raise ScheduleError(f"`factor` must be at least 1, but got factor={self.factor}")
        inner = Axis(f"{self.axis}.{self.factor}", const(self.factor))
        outer = Axis(self.axis, ceildiv(extent, const(self.factor)))
        axes = (*stage.axes[:dim], outer, *stage.axes[dim + 1 :], inner)
        index = var(self.axis) * self.factor + var(inner.name)
        body = substitute(stage.body, {self.axis: index})
        if not (extent.is_const and extent.value % self.factor == 0):
            body = select(index < extent, body, const(0, stage.dtype))
        made = make_stage(stage.name, stage.dtype, axes, (), body, None, stage.scope, stage.tag)
        state = state.update(replace(made, attach=stage.attach, full_axes=frozenset({inner.name})))

        def visit(node: Expr) -> Expr | None:
            if node.op != "load" or node.args[0] != self.stage:
                return None
            indices = [transform(i, visit) for i in node.args[1:]]
            r = indices[dim]
            indices[dim] = r // self.factor
            return load(self.stage, [*indices, r % self.factor], node.dtype)

        return replace(state, stages=tuple(replace(s, body=transform(s.body, visit)) for s in state.stages))


@dataclass(frozen=True)
class Widen(Step):
    """A stage of 16-bit floats whose elements are stored as float32, so that they are converted once, not at each use.

    Before: `S[i] = a[i]; ... float32(S[i]) ...`. After: `S[i] = float32(a[i]); ... S[i] ...`. Values are the same, as
    float32 holds every 16-bit float.
    """

    stage: str
    name: ClassVar[str] = "widen"

    def apply(self, state: State) -> State:
        stage = state.stage(self.stage)
        check_untouched(state, stage, self.name)
        if stage.dtype not in NARROW:
            raise ScheduleError(f"`stage` must be of {' or '.join(NARROW)}, but got {stage.dtype} for {self.stage!r}")
        if stage.reducer is not None or self.stage in state.outputs:
            raise ScheduleError(f"`stage` must be neither a reduction nor an output, but got stage={self.stage!r}")
        state = state.update(replace(stage, dtype="float32", body=cast(stage.body, "float32")))

        def wide(node: Expr) -> Expr | None:
            if node.op != "load" or node.args[0] != self.stage:
                return None
            return load(self.stage, [transform(i, visit) for i in node.args[1:]], "float32")

        def visit(node: Expr) -> Expr | None:
            inner = wide(node.args[0]) if node.op == "cast" and node.dtype == "float32" else None
            if inner is not None:
                return inner
            found = wide(node)
            return None if found is None else cast(found, stage.dtype)

        others = tuple(s if s.name == self.stage else replace(s, body=transform(s.body, visit)) for s in state.stages)
        return replace(state, stages=others)


@dataclass(frozen=True)
class Rfactor(Step):
    """A new stage `stage.rf` with the reduce loop `axis` as a spatial axis, which `stage` then reduces.

    Before: `s += a[k.0, k.1]`. After: `s.rf[k.1] += a[k.0, k.1]; s += s.rf[k.1]`. The new axis is the last one, so
    that it can be vectorized. Floating-point sums are re-associated. Halide, TVM: rfactor.
    """

    stage: str
    axis: str
    name: ClassVar[str] = "rfactor"

    def apply(self, state: State) -> State:
        stage = state.stage(self.stage)
        position(stage, self.axis)
        if stage.reducer is None or not stage.is_reduce(self.axis):
            raise ScheduleError(f"`axis` must be a reduce loop, but got axis={self.axis!r} of {self.stage}")
        check_untouched(state, stage, self.name)
        values, extents, conditions = _reduce_values(stage)
        others = [leaf for leaf in stage.leaves if stage.is_reduce(leaf) and leaf != self.axis]
        guard = logical_and(*conditions)
        body = substitute(stage.body, values)
        body = select(guard, body, const(reduction_identity(stage), stage.dtype)) if conditions else body
        new_axis = Axis(self.axis, extents[self.axis])
        partial = make_stage(
            fresh_name(state, f"{stage.name}.rf"),
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
    """Returns root reduce axes in terms of leaves, extents of all loops, and the predicates of guarded splits."""
    extents = {a.name: a.extent for a in (*stage.axes, *stage.reduce_axes)}
    simplify = Simplifier({})
    for relation in stage.relations:
        made = relation.parent if isinstance(relation, SplitRelation) else relation.child
        if not stage.is_reduce(made):
            raise ScheduleError(f"`rfactor` must come before spatial axes are split or fused, in {stage.name}")
        if isinstance(relation, FuseRelation):
            extents[relation.child] = product(extents[p] for p in relation.parents)
            continue
        if relation.tail not in ("exact", "guard"):
            raise ScheduleError(f"`rfactor` needs splits that are exact or guarded, but got tail={relation.tail!r}")
        inner, extent = product(relation.factors), extents[relation.parent]
        # Numbers were checked at the split; sizes are checked when loops are built, but this split is gone by then.
        divided = simplify(extent % inner) is const(0)
        if relation.tail == "exact" and is_sized(extent) and not divided:
            raise ScheduleError(f"`factor` must divide extent, but got factor={inner}, extent={extent} ({stage.name})")
        extents[relation.children[0]] = simplify(extent // inner) if divided else ceildiv(extent, inner)
        extents.update(zip(relation.children[1:], relation.factors, strict=True))
    values: dict[str, Expr] = {}
    conditions: list[Expr] = []
    for relation in reversed(stage.relations):
        if isinstance(relation, FuseRelation):
            rest = values.get(relation.child, var(relation.child))
            for parent in reversed(relation.parents[1:]):
                values[parent], rest = rest % extents[parent], rest // extents[parent]
            values[relation.parents[0]] = rest
            continue
        value = values.get(relation.children[0], var(relation.children[0]))
        for child, factor in zip(relation.children[1:], relation.factors, strict=True):
            value = value * factor + values.get(child, var(child))
        values[relation.parent] = value
        if relation.tail == "guard":
            conditions.append(value < extents[relation.parent])
    roots = {a.name: values[a.name] for a in stage.reduce_axes if a.name in values}
    return roots, extents, conditions


@dataclass(frozen=True)
class Pack(Step):
    """A new layout of a constant before the first call: dimension d is split by `factors[d]`, parts are put in `order`.

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

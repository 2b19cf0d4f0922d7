"""Lowering of a schedule to a loop program: symbolically, once per sketch, or for a candidate's numbers.

Both give the same program, so that legality and features of a candidate are those of its sketch at the candidate's
numbers. Therefore the code here never asks for a number, but only for facts that hold for all numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

from search_space.hardware import LINE
from search_space.ir.expr import (
    Expr,
    const,
    dtype_bytes,
    lift,
    load,
    logical_and,
    maximum,
    minimum,
    select,
    substitute,
    transform,
    var,
    variables,
)
from search_space.ir.findings import Findings
from search_space.ir.polynomial import canon
from search_space.ir.rounding import rounds
from search_space.ir.sizes import is_sized, span
from search_space.ir.stmt import WRITTEN_OUT, Allocate, Buffer, For, LoopProgram, Stmt, Store, seq
from search_space.lower.cleanup import simplify_value
from search_space.lower.domains import Bounds, loop_var
from search_space.lower.inline import inline_stages
from search_space.lower.legality import check_schedule
from search_space.lower.pack import is_made, pack_program, packed_buffer, packed_indices, packed_layout, source_buffer
from search_space.lower.tensorize import make_intrinsic_call
from search_space.schedule.errors import ScheduleError
from search_space.schedule.state import SplitRelation, Stage, State, reduction_identity


def lower(state: State, name: str = "kernel", findings: Findings | None = None) -> LoopProgram:
    """Lowers a schedule to its loop program.

    Args:
        state: its steps may hold decision variables; then so do the program's extents, shapes and constraints.
        name: the kernel's name.
        findings: results of the simplifier, shared with schedules of the same definition; None: nothing is shared.

    Raises:
        ScheduleError: a region that cannot be inferred, or numbers that break a split's rule.
    """
    state = inline_stages(state)
    check_schedule(state)
    return _Lowering(state, findings).program(name)


def rows_apart(shape: tuple[Expr, ...], dtype: str) -> tuple[Expr, ...]:
    """Returns the shape of a loop's buffer with rows padded to a constant length, if sizes determine their length.

    Addresses of several rows are then a pointer and constants. There is room for the longest row anyway. Rows lie an
    odd number of cache lines apart, so that they do not compete for few sets of a cache.
    """
    if not any(map(is_sized, shape[1:])):
        return shape
    first, *rest = shape
    *others, last = (const(span(extent)[1]) if is_sized(extent) else extent for extent in rest)
    if last.is_const:
        elements = LINE // dtype_bytes(dtype)
        last = const((-(-int(last.value) // elements) | 1) * elements)
    return first, *others, last


@dataclass(frozen=True)
class _PeeledTail:
    """The effects of a peeled tail on the loops inside it: fixed outer indices and shorter inner extents."""

    values: dict[str, Expr]
    extents: dict[str, Expr]


class _Lowering:
    """The builder of the loop trees of all stages, given their bounds."""

    def __init__(self, state: State, findings: Findings | None) -> None:
        self.state = state
        self.bounds = Bounds(state, findings)
        self.simplify = self.bounds.simplify
        self.inputs = {i.name: i for i in state.inputs}
        self.stages = {s.name: s for s in state.stages}

    def program(self, name: str) -> LoopProgram:
        outputs = [self.buffer(self.stages[o]) for o in self.state.outputs]
        read = {name for stage in self.state.stages for name in stage.reads()}
        made = {name for i in self.state.inputs if i.derivation is not None for name in i.derivation.sources}
        taken = [i for i in self.state.inputs if i.name in read or (i.derivation is None and i.name not in made)]
        remade = [i for i in taken if is_made(i)]
        params = [packed_buffer(i, self.simplify) if is_made(i) else source_buffer(i) for i in taken]
        body: Stmt = seq(*(self.build(s) for s in self.state.stages if s.attach.kind == "root"))
        for stage in reversed(self.state.stages):
            if stage.attach.kind == "root" and stage.name not in self.state.outputs:
                body = Allocate(self.buffer(stage), body)
        prologues = [pack_program(i, self.inputs, self.simplify) for i in remade]
        return LoopProgram(
            name,
            (*params, *outputs),
            body,
            self.state.outputs,
            tuple(dict.fromkeys(self.bounds.constraints)),
            tuple(prologues),
            tuple(source_buffer(i) for i in self.state.inputs if i.derivation is None),
        )

    def buffer(self, stage: Stage) -> Buffer:
        shape = self.bounds.domains[stage.name].extent
        if not (stage.pad.is_const and stage.pad.value == 0):
            shape = (*shape[:-1], canon(shape[-1] + stage.pad))
        if stage.attach.kind == "at":
            shape = rows_apart(shape, stage.dtype)
        return Buffer(stage.name, shape, stage.dtype, stage.scope)

    def build(self, stage: Stage) -> Stmt:
        return self.loops(stage, 0, _PeeledTail({}, {}))

    def loops(self, stage: Stage, depth: int, peeled_tail: _PeeledTail) -> Stmt:
        """Builds the loops of `stage` from `depth` inward; the initialisation comes before the first reduce loop."""
        init: Stmt | None = None
        if stage.reducer and depth == self.first_reduce(stage):
            init = self.init(stage, depth, peeled_tail)
        if stage.tensorization and depth < len(stage.leaves) and stage.leaves[depth] == stage.tensorization[0]:
            update, name = self.update(stage, peeled_tail), stage.tensorization[1]
            main: Stmt = make_intrinsic_call(stage, depth, update, self.bounds, name, peeled_tail.extents)
        elif depth == len(stage.leaves):
            main = self.update(stage, peeled_tail)
        else:
            main = self.loop(stage, depth, peeled_tail)
        return main if init is None else seq(init, main)

    def loop(self, stage: Stage, depth: int, peeled_tail: _PeeledTail) -> Stmt:
        leaf = stage.leaves[depth]
        name, kind = self.name_loop(stage, leaf, peeled_tail)
        extent = peeled_tail.extents.get(leaf, self.bounds.nests[stage.name].extents[leaf])
        body = self.attach_producers(stage, leaf, self.loops(stage, depth + 1, peeled_tail), peeled_tail)
        main = For(name, extent, kind, body, tuple((key, value) for axis, key, value in stage.pragmas if axis == leaf))
        tail = self.tail(stage, leaf, extent, peeled_tail)
        if tail is None:
            return main
        # the rest of a peeled loop: its body once more, since trip counts differ; it may have no iteration
        return seq(main, self.attach_producers(stage, leaf, self.loops(stage, depth + 1, tail), tail))

    def name_loop(self, stage: Stage, leaf: str, peeled_tail: _PeeledTail) -> tuple[str, str]:
        """Returns the variable and the kind of a loop at a place.

        Open sizes may determine the length of a peeled loop's rest, unlike that of vectors and unrolled code: the rest
        becomes a serial loop with its own variable.
        """
        name, kind = loop_var(stage.name, leaf), stage.kinds.get(leaf, "serial")
        if name in peeled_tail.values:
            return str(peeled_tail.values[name].args[0]), "serial"
        extent = self.bounds.nests[stage.name].extents[leaf]
        if kind in WRITTEN_OUT and is_sized(extent):
            raise ScheduleError(f"a loop to {kind} must run a number of times (split it), but {name} runs {extent}")
        return name, kind

    def tail(self, stage: Stage, leaf: str, extent: Expr, peeled_tail: _PeeledTail) -> _PeeledTail | None:
        """Returns the place after the loop `leaf` if it was peeled and a rest remains."""
        for r in stage.relations:
            if isinstance(r, SplitRelation) and r.tail == "peel" and r.children[0] == leaf:
                whole = self.bounds.nests[stage.name].extents[r.parent]
                sized = is_sized(whole)
                rest = self.simplify(whole % r.factors[0] if sized else whole - extent * r.factors[0])
                if rest.is_const and rest.value == 0:
                    return None
                values = {**peeled_tail.values, loop_var(stage.name, leaf): extent}
                if sized and stage.kinds.get(r.children[1]) in WRITTEN_OUT:
                    inner = loop_var(stage.name, r.children[1])
                    values[inner] = var(f"{inner}.rest")
                    self.bounds.ranges[f"{inner}.rest"] = rest
                return _PeeledTail(values, {**peeled_tail.extents, r.children[1]: rest})
        return None

    def attach_producers(self, stage: Stage, leaf: str, body: Stmt, peeled_tail: _PeeledTail) -> Stmt:
        """Puts the stages computed at this loop before `body`, each with its buffer around both."""
        # consumers first, each around the others: a producer then comes before the stages here that read it
        for producer in reversed(self.state.stages):
            at = producer.attach
            if at.kind == "at" and at.stage == stage.name and at.leaf == leaf:
                built = self.loops(producer, 0, _PeeledTail(peeled_tail.values, {}))
                body = Allocate(self.buffer(producer), seq(built, body))
        return body

    def first_reduce(self, stage: Stage) -> int:
        return next((i for i, leaf in enumerate(stage.leaves) if stage.is_reduce(leaf)), len(stage.leaves))

    def init(self, stage: Stage, depth: int, peeled_tail: _PeeledTail) -> Stmt:
        """Builds the initialisation under the spatial loops from `depth` inward."""
        nest = self.bounds.nests[stage.name]
        if depth == len(stage.leaves):
            identity = const(reduction_identity(stage), stage.dtype)
            return self.fix_tail_indices(
                Store(stage.name, self.target(stage), identity, None, _predicate(nest.spatial_guards)), peeled_tail
            )
        leaf = stage.leaves[depth]
        if stage.is_reduce(leaf):
            return self.init(stage, depth + 1, peeled_tail)
        extent = peeled_tail.extents.get(leaf, nest.extents[leaf])
        name, kind = self.name_loop(stage, leaf, peeled_tail)
        main = For(name, extent, kind, self.init(stage, depth + 1, peeled_tail))
        tail = self.tail(stage, leaf, extent, peeled_tail)
        return main if tail is None else seq(main, self.init(stage, depth + 1, tail))

    def target(self, stage: Stage) -> tuple[Expr, ...]:
        nest = self.bounds.nests[stage.name]
        values = nest.values if stage.attach.kind == "root" else nest.local
        return tuple(self.simplify(values[a.name]) for a in stage.axes)

    def update(self, stage: Stage, peeled_tail: _PeeledTail) -> Store:
        nest = self.bounds.nests[stage.name]
        value = self.read(stage)
        for guard in () if self.sums_zeros(stage) else nest.reduce_guards:
            value = select(guard, value, const(reduction_identity(stage), stage.dtype))
        store = Store(stage.name, self.target(stage), value, stage.reducer, _predicate(nest.spatial_guards))
        return self.fix_tail_indices(store, peeled_tail)

    def is_zero_filled(self, stage: Stage) -> bool:
        """Tells whether a stage holds zeros where its axes overrun, and never a value computed from elements there."""
        return stage.scope == "shared" and stage.attach.kind == "at" and stage.reducer is None

    def zeros(self, stage: Stage) -> frozenset[str]:
        """Returns the axes past whose end a stage holds zeros."""
        if self.is_zero_filled(stage):
            return self.bounds.domains[stage.name].overrun
        if stage.body.op == "load" and stage.body.args[0] in self.stages and stage.attach.kind == "at":
            source = self.stages[stage.body.args[0]]  # a copy of a stage with zeros has them, too
            indices = dict(zip((a.name for a in source.axes), stage.body.args[1:], strict=True))
            overrun = self.bounds.domains[stage.name].overrun
            return frozenset(str(indices[a].args[0]) for a in self.zeros(source) if indices[a].op == "var") & overrun
        return frozenset()

    def sums_zeros(self, stage: Stage) -> bool:
        """Tells whether a sum of products adds zeros times zeros where its reduce axes overrun, and needs no check."""
        if stage.reducer != "sum" or not self.bounds.nests[stage.name].reduce_guards:
            return False
        open_axes = self.bounds.guarded_reduce_axes(stage)
        factors = _factors(stage.body)
        if open_axes is None or factors is None or len(factors) != 2:
            return False
        for factor in factors:
            if factor.args[0] not in self.stages:
                return False
            source = self.stages[factor.args[0]]
            zeros = self.zeros(source)
            indices = {
                i.args[0]
                for a, i in zip(source.axes, factor.args[1:], strict=True)
                if i.op == "var" and a.name in zeros
            }
            if not open_axes <= indices:
                return False
        return True

    def fix_tail_indices(self, store: Store, peeled_tail: _PeeledTail) -> Store:
        """Fixes the outer indices of a store that is under a peeled tail."""
        if not peeled_tail.values:
            return store
        return Store(
            store.buffer,
            tuple(self.simplify(substitute(i, peeled_tail.values)) for i in store.indices),
            self.indices_simplified(substitute(store.value, peeled_tail.values)),
            store.reducer,
            None if store.predicate is None else self.simplify(substitute(store.predicate, peeled_tail.values)),
        )

    def read(self, stage: Stage) -> Expr:
        """Returns the stage's body with every load addressed in the buffer it reads, indices simplified.

        Only a dimension indexed by an axis that may overrun needs a check.
        """
        values, loose = self.bounds.nests[stage.name].values, self.bounds.domains[stage.name].overrun
        if self.is_zero_filled(stage):  # one check of the whole value
            inside = [self.simplify(values[a.name] < a.extent) for a in stage.axes if a.name in loose]
            loose = frozenset()

        def visit(node: Expr) -> Expr | None:
            if node.op == "var":
                return values.get(node.args[0], node)
            if node.op != "load":
                return None
            name = node.args[0]
            indices = [self.simplify(transform(i, visit)) for i in node.args[1:]]
            open_dims = [bool(variables(i) & loose) for i in node.args[1:]]
            if name in self.stages:
                producer = self.stages[name]
                if producer.attach.kind == "at":
                    domain = self.bounds.domains[name]
                    indices = [self.bounds.recombine_index(producer, i) for i in indices]
                    shifted = [self.simplify(canon(i - at)) for i, at in zip(indices, domain.low, strict=True)]
                    # an axis that overruns along with its reader holds every index that is read
                    cut = [d and a.name not in domain.overrun for d, a in zip(open_dims, producer.axes, strict=True)]
                    return self.guard_load(load(name, shifted, node.dtype), domain.extent, cut)
                return self.guard_load(load(name, indices, node.dtype), producer.shape, open_dims)
            source = self.inputs[name]
            if not is_made(source):
                shape = tuple(lift(s) for s in source.shape)
                return self.guard_load(load(name, indices, node.dtype), shape, open_dims)
            buffer = packed_buffer(source, self.simplify)
            packed = [
                # any block will do past the end: values computed from it are never stored
                self.simplify(maximum(minimum(i, extent - 1), 0)) if open_dims[dim] and part == 0 else i
                for (dim, part), i, extent in zip(
                    packed_layout(source).order,
                    packed_indices(source, indices, self.simplify),
                    buffer.shape,
                    strict=True,
                )
            ]
            return load(buffer.name, packed, node.dtype)

        body = transform(stage.body, visit)
        if self.is_zero_filled(stage):
            body = select(logical_and(*inside), body, const(0, stage.dtype))
        return self.indices_simplified(body)

    def guard_load(self, node: Expr, shape: tuple[Expr, ...], open_dims: list[bool]) -> Expr:
        """Guards a load: it becomes zero where an index that may overrun has done so."""
        conditions = [
            self.simplify(condition)
            for index, extent, is_open in zip(node.args[1:], shape, open_dims, strict=True)
            for condition in ((const(0) <= index, index < extent) if is_open else ())
        ]
        return select(logical_and(*conditions), node, const(0, node.dtype))

    def indices_simplified(self, body: Expr) -> Expr:
        return simplify_value(body, self.simplify)


def _factors(body: Expr) -> list[Expr] | None:
    """Returns the loads whose product `body` is, casts and roundings ignored; None for any other expression."""
    if rounds(body):
        return _factors(body.operands[0])
    if body.op == "load":
        return [body]
    if body.op != "mul":
        return None
    left, right = (_factors(a) for a in body.args)
    return None if left is None or right is None else left + right


def _predicate(guards: tuple[Expr, ...]) -> Expr | None:
    condition = logical_and(*guards)
    return None if condition.is_const and condition.value else condition

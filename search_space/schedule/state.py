"""The immutable state of a schedule: stages, the loops of each, and the place at which each is computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

from search_space.former_names import FormerAttribute
from search_space.ir.expr import BITS, BOOL, FLOATS, Expr, const, is_size, lift, load, substitute, transform, var, walk
from search_space.ir.sizes import find_sizes
from search_space.schedule.errors import ScheduleError
from search_space.tags import Tag
from search_space.tensor import Extent, Operation, Tensor

TAILS = ("exact", "guard", "clamp", "peel")
_IDENTITY = {"sum": 0, "prod": 1, "max": float("-inf"), "min": float("inf")}

NO_PAD = const(0)


@dataclass(frozen=True)
class Axis:
    """A dimension of a stage's domain before any loop transformation."""

    name: str
    extent: Expr
    reduce: bool = False


@dataclass(frozen=True)
class SplitRelation:
    """`parent` is iterated as a nest of `children`, outermost first; `factors` are the extents of all but the first."""

    parent: str
    children: tuple[str, ...]
    factors: tuple[Expr, ...]
    tail: str


@dataclass(frozen=True)
class FuseRelation:
    """`parents`, outermost first, are iterated as the one loop `child`."""

    parents: tuple[str, ...]
    child: str


@dataclass(frozen=True)
class Attach:
    """The place of a stage: at the root, inlined into its consumers, or inside `stage`'s loop `leaf`."""

    kind: str = "root"
    stage: str = ""
    leaf: str = ""


@dataclass(frozen=True)
class Layout:
    """A constant's packed layout: each dimension is split by `factors`, the parts ordered by `order`.

    The parts of dimension d are (d, 0), (d, 1), ...; a dimension that its factors do not divide is padded with zeros.
    """

    factors: tuple[tuple[Expr, ...], ...]
    order: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Derivation:
    """The computation of a constant: its element at `axes` is `body`, which reads the constants `sources`."""

    axes: tuple[str, ...]
    body: Expr
    sources: tuple[str, ...]


@dataclass(frozen=True)
class Input:
    """An input of a kernel: a placeholder, or a constant derived from placeholders.

    `layout` is a constant's packed layout. Packed and derived constants are computed once, before the first call.
    """

    name: str
    shape: tuple[Extent, ...]
    dtype: str
    constant: bool = False
    layout: Layout | None = None
    derivation: Derivation | None = None
    mean: float | None = None


@dataclass(frozen=True)
class Stage:
    """One computed tensor: its definition over `axes`, its loops (`leaves`), and its place.

    In memory, `pad` elements lie between its rows. Along the axes named in `full_axes` it is always computed
    completely.
    """

    name: str
    dtype: str
    axes: tuple[Axis, ...]
    reduce_axes: tuple[Axis, ...]
    body: Expr
    reducer: str | None
    leaves: tuple[str, ...]
    relations: tuple[SplitRelation | FuseRelation, ...] = ()
    kinds: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    attach: Attach = Attach()
    scope: str = "global"
    tensorization: tuple[str, str] | None = None
    pragmas: tuple[tuple[str, str, int], ...] = ()
    tag: Tag = Tag.NONE
    pad: Expr = NO_PAD
    full_axes: frozenset[str] = frozenset()

    @property
    def shape(self) -> tuple[Expr, ...]:
        return tuple(a.extent for a in self.axes)

    @property
    def spatial(self) -> tuple[str, ...]:
        """The loops over the stage's own axes, before any is split or fused."""
        return tuple(a.name for a in self.axes)

    reduced = FormerAttribute("reduction")

    @property
    def reduction(self) -> tuple[str, ...]:
        """The loops over the reduce axes, before any is split or fused."""
        return tuple(a.name for a in self.reduce_axes)

    def reads(self) -> tuple[str, ...]:
        """Returns the names of the tensors the body loads, in order of first appearance."""
        return self._reads

    @cached_property
    def _reads(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(n.args[0] for n in walk(self.body) if n.op == "load"))

    def is_reduce(self, leaf: str) -> bool:
        """Tells whether `leaf` comes from a reduce axis."""
        roots = {leaf}
        for relation in reversed(self.relations):
            if isinstance(relation, SplitRelation):
                if roots & set(relation.children):
                    roots = roots - set(relation.children) | {relation.parent}
            elif relation.child in roots:
                roots = roots - {relation.child} | set(relation.parents)
        return any(a.name in roots for a in self.reduce_axes)


def reduction_identity(stage: Stage) -> float:
    """Returns the initial value of the stage's reduction."""
    assert stage.reducer is not None
    return identity(stage.reducer, stage.dtype)


def identity(reducer: str, dtype: str) -> float:
    """Returns the neutral element of a reducer, in a dtype."""
    if dtype in FLOATS or reducer in ("sum", "prod"):
        return _IDENTITY[reducer]
    if dtype == BOOL:
        return reducer == "min"
    bits, signed = BITS[dtype], dtype != "uint8"
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    return low if reducer == "max" else high


@dataclass(frozen=True)
class State:
    """A complete schedule: inputs (placeholders, then derived constants), and stages, producers before consumers."""

    inputs: tuple[Input, ...]
    stages: tuple[Stage, ...]
    outputs: tuple[str, ...]

    def stage(self, name: str) -> Stage:
        for stage in self.stages:
            if stage.name == name:
                return stage
        raise ScheduleError(f"`stage` must be one of {', '.join(s.name for s in self.stages)}, but got stage={name!r}")

    def input(self, name: str) -> Input | None:
        return next((i for i in self.inputs if i.name == name), None)

    def update(self, stage: Stage) -> State:
        """Replaces the stage of the same name."""
        return replace(self, stages=tuple(stage if s.name == stage.name else s for s in self.stages))

    def consumers(self, name: str) -> tuple[Stage, ...]:
        """Returns the stages that read `name`."""
        return tuple(s for s in self.stages if name in s.reads())


def make_stage(
    name: str,
    dtype: str,
    axes: Sequence[Axis],
    reduce_axes: Sequence[Axis],
    body: Expr,
    reducer: str | None,
    scope: str = "global",
    tag: Tag = Tag.NONE,
) -> Stage:
    """Makes a stage with its axes as loops, in order, reduce axes innermost."""
    leaves = tuple(a.name for a in (*axes, *reduce_axes))
    if len(set(leaves)) != len(leaves):
        raise ScheduleError(f"axes of a stage must have distinct names, but got {', '.join(leaves)} in {name}")
    return Stage(name, dtype, tuple(axes), tuple(reduce_axes), body, reducer, leaves, scope=scope, tag=tag)


def operations(outputs: Sequence[Tensor], inputs: Sequence[Tensor] = ()) -> dict[Operation, str]:
    """Lists all operations behind `outputs`, producers first, each with a unique name; `inputs` lead, in order."""
    order: dict[Operation, str] = {}

    def visit(op: Operation) -> None:
        if op not in order:
            for tensor in op.inputs:
                visit(tensor.op)
            order[op] = ""

    for tensor in (*inputs, *outputs):
        visit(tensor.op)
    used: set[str] = set()
    for op in order:
        unique, count = op.name, 1
        while unique in used:
            unique, count = f"{op.name}_{count}", count + 1
        used.add(unique)
        order[op] = unique
    return order


def initial_state(
    outputs: Sequence[Tensor], names: dict[Operation, str] | None = None, inputs: Sequence[Tensor] = ()
) -> State:
    """Returns the schedule with every computation at the root, its loops in the order of its axes.

    A computation tagged `Tag.CONSTANT` is no stage but a derived constant, computed once before the first call.
    If a stage has the shape of another that it reads, it reads axes of one element at its own index.

    Args:
        outputs: tensors to compute, with everything they read.
        names: mapping that is filled with each operation's unique name, if given.
        inputs: placeholders that come first, in this order; the others follow as they are read.

    Raises:
        ScheduleError: a computation tagged constant that reads a tensor that is no constant, reduces, or is an output;
            a size that is no extent of an input, so that arrays would not determine it.
    """
    order = operations(outputs, inputs)
    _check_sizes(order)
    names = {} if names is None else names
    names.update(order)
    by_name = {
        names[op]: Input(names[op], op.shape, op.dtype, op.constant, mean=op.mean) for op in order if op.body is None
    }
    placeholders = tuple(by_name.values())
    stages: list[Stage] = []
    for op in order:
        if op.body is not None and op.tag == Tag.CONSTANT:
            by_name[names[op]] = _derive_constant(op, names, by_name, op in {t.op for t in outputs})
        elif op.body is not None:
            stages.append(_at_own_places(_make_stage(op, names), {s.name: s for s in stages}))
    read = {name for stage in stages for name in stage.reads()}
    derived = tuple(i for i in by_name.values() if i.derivation is not None and i.name in read)
    return State((*placeholders, *derived), tuple(stages), tuple(names[t.op] for t in outputs))


def _check_sizes(order: Mapping[Operation, str]) -> None:
    """Checks that every size is the extent of an axis of an input."""
    mentioned = [node for op in order for node in op.size_expressions]
    sizes = find_sizes(mentioned)
    bare = {e.args[0] for op in order if op.body is None for e in op.shape if isinstance(e, Expr) and is_size(e)}
    if unknown := [name for name in sizes if name not in bare]:
        raise ScheduleError(f"a size must be the extent of an axis of an input, but {', '.join(unknown)} is of none")


def _derive_constant(
    op: Operation, names: Mapping[Operation, str], inputs: Mapping[str, Input], is_output: bool
) -> Input:
    """Builds a computation of constants alone in terms of placeholders: derived constants in it are substituted."""
    name = names[op]
    if is_output or op.reducer is not None:
        raise ScheduleError(f"a stage tagged {Tag.CONSTANT} must neither reduce nor be an output, but got {name}")
    wrong = [t.name for t in op.inputs if names[t.op] not in inputs or not inputs[names[t.op]].constant]
    if wrong or not op.inputs:
        got = ", ".join(wrong) or "nothing"
        raise ScheduleError(f"a stage tagged {Tag.CONSTANT} must read constants alone, but {name} reads {got}")

    def visit(node: Expr) -> Expr | None:
        derivation = inputs[node.args[0]].derivation if node.op == "load" else None
        if derivation is None:
            return None
        indices = [transform(i, visit) for i in node.args[1:]]
        return substitute(derivation.body, dict(zip(derivation.axes, indices, strict=True)))

    body = transform(_named_body(op, names), visit)
    sources = tuple(dict.fromkeys(n.args[0] for n in walk(body) if n.op == "load"))
    return Input(name, op.shape, op.dtype, True, derivation=Derivation(tuple(a.name for a in op.axis), body, sources))


def _named_body(op: Operation, names: Mapping[Operation, str]) -> Expr:
    """Returns the operation's body, with tensors read by name."""
    assert op.body is not None
    return rename_loads(op.body, {Tensor(o): n for o, n in names.items()})


def _make_stage(op: Operation, names: Mapping[Operation, str]) -> Stage:
    body = _named_body(op, names)
    axes = [Axis(a.name, lift(a.extent)) for a in op.axis]
    reduced = [Axis(a.name, lift(a.extent), True) for a in op.reduce_axis]
    return make_stage(names[op], op.dtype, axes, reduced, body, op.reducer, tag=op.tag)


def _at_own_places(stage: Stage, others: Mapping[str, Stage]) -> Stage:
    """Replaces indices along axes of one element by the stage's own axis, for reads of stages of its shape.

    A broadcast has index 0 there. A stage in the same loops must be read at the element that was computed, also in the
    lanes of a vector of which one is used.
    """

    def visit(node: Expr) -> Expr | None:
        if node.op != "load":
            return None
        indices = [transform(i, visit) for i in node.args[1:]]
        if node.args[0] in others and others[node.args[0]].shape == stage.shape:
            one = const(1)
            indices = [var(a.name) if a.extent is one else i for a, i in zip(stage.axes, indices, strict=True)]
        return load(node.args[0], indices, node.dtype)

    return replace(stage, body=transform(stage.body, visit))


def rename_loads(body: Expr, names: Mapping[Any, Any]) -> Expr:
    """Replaces the tensors that `body` loads: each in `names` is replaced, its indices kept."""

    def visit(node: Expr) -> Expr | None:
        if node.op == "load" and node.args[0] in names:
            return load(names[node.args[0]], [transform(i, visit) for i in node.args[1:]], node.dtype)
        return None

    return transform(body, visit)

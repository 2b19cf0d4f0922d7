"""The graphs of a network at several sizes, and their common structure.

A graph has known shapes, and so have the passes that make it and the kernels that it is split into. Therefore it is
made at several sizes, and all must be equal except for numbers: the same kernels in the same order, on values in the
same memory. The numbers at all sizes follow from those at some, see `search_space.terms`. Values have the offsets of
the largest sizes, where each takes the most memory. A network of one shape is a family of one graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import zip_longest
from typing import Any

import numpy as np

from autotune.compiler.executable.scopes import Scope, make_scope
from autotune.compiler.executable.shapes import NotOpen, ShapeSet
from autotune.graph.decisions import Decisions
from autotune.graph.ir import Array, Graph
from autotune.graph.loops import list_loops
from autotune.graph.partition import Group, partitioned_as
from autotune.graph.views import dense
from search_space import te_json
from search_space.generalised import OpenDefinition, common, known_at, merge_definitions
from search_space.schedule.state import operations
from search_space.terms import NoTerm, SizePoint, Term, fit_term
from search_space.workloads import Workload
from targets.arrays import contiguous
from targets.base import Parameter
from targets.extents import Extent

GraphAt = Callable[[SizePoint], Graph]
"""Function sizes → the graph of a network there, as `executable_graph` returns it."""


class GraphFamily:
    """A network at several sizes, or at its one shape.

    Args:
        graph_at: function that makes a graph; it is called once for each of the points.
        shapes: sizes that are open, and points at which the network has a graph of its own.
        alignment: alignment of the target.

    Attributes:
        graph: graph at the largest sizes.
        shapes: the argument.
        points: points at which the network was made, the largest sizes last.

    Raises:
        NotOpen: the network is not the same at all points.
    """

    def __init__(self, graph_at: GraphAt, shapes: ShapeSet, alignment: int = 1) -> None:
        self.shapes, self.points = shapes, shapes.points
        *others, greatest = self.points
        decisions = Decisions()
        with decisions.hold():
            self.graph = graph_at(greatest)
        if shapes.sizes and (loops := list_loops(self.graph)):
            raise NotOpen(f"a network of open sizes must have no loop, but got {loops[0].name!r}")
        self._scopes = {greatest: make_scope(self.graph, alignment)}
        for point in others:
            with decisions.hold():
                graph = graph_at(point)
            self._scopes[point] = make_scope(_sharing(graph, self.graph), alignment)
            self._compare(point)
        self._definitions: dict[tuple[int, str], OpenDefinition] = {}
        self._workloads: dict[int, Any] = {}
        self._pitches: dict[tuple[int, str], dict[str, tuple[int | Term, ...]]] = {}
        for point in shapes.exact:
            if point not in self._scopes:
                self._scopes[point] = make_scope(_sharing(graph_at(point), self.graph), alignment)
        self._check_ends()

    @property
    def largest(self) -> Scope:
        """The network at the largest sizes."""
        return self._scopes[self.points[-1]]

    @property
    def scopes(self) -> list[Scope]:
        """The network at the largest sizes, and at points at which it has its own kernels."""
        return [self._scopes[point] for point in dict.fromkeys((self.points[-1], *self.shapes.exact))]

    @property
    def count(self) -> int:
        """Number of calls of kernels at open sizes."""
        return len(self.largest.groups)

    @property
    def distinct(self) -> list[int]:
        """Calls that are not like an earlier one."""
        return [call for call in range(self.count) if self.first_alike(call) == call]

    def scope(self, point: SizePoint) -> Scope:
        """Returns the network at one of the points, or at known sizes."""
        return self._scopes[point]

    def group(self, number: int, point: SizePoint) -> Group:
        """Returns the group of a call at one of the points."""
        return self._scopes[point].groups[number]

    def extent(self, term: Term) -> Extent:
        """Converts a term of the sizes to an extent."""
        return term.plain(list(self.shapes.sizes))

    def first_alike(self, number: int) -> int:
        """Returns the first call that computes the same as a call, on arrays of the same layout, at all sizes."""
        return self._alike[number]

    def parameter(self, name: str) -> Parameter:
        """Describes an input or output of the network.

        Raises:
            NotOpen: an extent does not follow from the sizes.
        """
        kinds = [self._scopes[point].graph.type(name) for point in self.points]
        try:
            terms = [fit_term(extents, self.points) for extents in zip(*(k.shape for k in kinds), strict=True)]
        except (NoTerm, ValueError) as error:
            raise NotOpen(f"the shape of {name!r} must follow from the sizes: {error}") from error
        extents = tuple(map(self.extent, terms)) if len({k.shape for k in kinds}) > 1 else ()
        return Parameter(name, kinds[-1].shape, kinds[-1].dtype, extents=extents)

    def workload(self, number: int, point: SizePoint) -> Workload:
        """Returns the workload of a call at any sizes.

        Raises:
            NotOpen: its arguments do not follow from the sizes.
        """
        if point in self._scopes:
            return _workload(self.group(number, point))
        number = self.first_alike(number)
        try:
            if number not in self._workloads:
                every = [_workload(self.group(number, point)).to_json() for point in self.points]
                self._workloads[number] = common(every, self.points)
            return Workload.from_json(known_at(self._workloads[number], point))
        except ValueError as error:
            raise NotOpen(f"{self.group(number, self.points[-1]).title} must follow from the sizes: {error}") from error

    def definition(self, number: int, algorithm: str) -> OpenDefinition:
        """Returns the definition of a call by an algorithm, for any sizes.

        Raises:
            NotOpen: the definition differs between sizes.
        """
        key = self.first_alike(number), algorithm
        if key not in self._definitions:
            groups = [self.group(number, point) for point in self.points]
            try:
                found = [te_json.to_json(_workload(group).tensors(algorithm)) for group in groups]
                self._definitions[key] = merge_definitions(found, self.points)
            except ValueError as error:
                raise NotOpen(f"{groups[-1].title} must be one definition at all sizes: {error}") from error
        return self._definitions[key]

    def pitches(self, number: int, algorithm: str) -> dict[str, tuple[int | Term, ...]]:
        """Returns the strides of a call's arrays that are not dense, by the workload's names.

        They are numbers, or terms of the sizes of the call's definition. A constant of open shape has the strides of
        the largest sizes.

        Raises:
            NotOpen: they do not follow from the sizes.
        """
        key = self.first_alike(number), algorithm
        if key not in self._pitches:
            self._pitches[key] = self._find_pitches(*key)
        return self._pitches[key]

    def _find_pitches(self, number: int, algorithm: str) -> dict[str, tuple[int | Term, ...]]:
        found = self.definition(number, algorithm)
        own = [tuple(size.at(point) for size in found.sizes) for point in self.points]
        group = self.group(number, self.points[-1])
        *inputs, output = _workload(group).tensors(algorithm)
        names = operations([output], inputs)
        pitches: dict[str, tuple[int | Term, ...]] = {}
        for tensor, name in zip([*inputs, output], [*group.inputs, group.output], strict=True):
            every = [self._strides(name, point) for point in self.points]
            if name in self._open_constants:
                pitches[names[tensor.op]] = dense(self.graph.type(name).shape)
            elif any(strides is not None for strides in every):
                shapes = [self._scopes[point].graph.type(name).shape for point in self.points]
                laid = [strides or dense(shape) for strides, shape in zip(every, shapes, strict=True)]
                if laid != list(map(dense, shapes)):
                    pitches[names[tensor.op]] = _pitches(name, laid, shapes, own)
        return pitches

    # ------------------------------------------------------------------ comparing
    def _check_ends(self) -> None:
        """Compares inputs and outputs of all graphs with those that follow from the sizes."""
        names = [*self.graph.inputs, *self.graph.outputs]
        ends = list(map(self.parameter, names))
        for point, scope in self._scopes.items():
            graph, sizes = scope.graph, dict(zip(self.shapes.sizes, point, strict=True))
            found = [(kind.shape, kind.dtype) for kind in map(graph.type, (*graph.inputs, *graph.outputs))]
            if found != [(end.at(sizes).shape, end.dtype) for end in ends]:
                raise NotOpen(f"inputs and outputs must follow from the sizes, but do not at {sizes}")

    def _compare(self, point: SizePoint) -> None:
        """Compares the network at some sizes with that at the largest."""
        here, there = self._scopes[point], self._scopes[self.points[-1]]
        shown = "x".join(map(str, point))
        for mine, theirs in zip_longest((g.title for g in here.groups), (g.title for g in there.groups)):
            if mine != theirs:
                got = f"has {mine or 'no kernel'} in place of {theirs or 'none'} at {shown}"
                raise NotOpen(f"a network must have the same kernels at all sizes, but {got}")
        for mine, theirs in zip(here.groups, there.groups, strict=True):
            if (mine.inputs, mine.output) != (theirs.inputs, theirs.output):
                raise NotOpen(f"{theirs.title} must read the same values at all sizes, but reads others at {shown}")
            for name in (*mine.inputs, mine.output):
                at, wanted = here.locations[name], there.locations[name]
                if (at.root, at.offset) != (wanted.root, wanted.offset):
                    raise NotOpen(f"{name!r} must lie in the same place at all sizes, but lies elsewhere at {shown}")
                if here.graph.type(at.root).nbytes > there.graph.type(at.root).nbytes:
                    raise NotOpen(f"{name!r} must take the most memory at the largest sizes, but takes more at {shown}")
        for name, array in here.graph.constants.items():
            whole = there.graph.constants.get(name)
            if whole is None or not _is_part(array, whole):
                raise NotOpen(f"the constant {name!r} must be the same at all sizes, but is another one at {shown}")

    @cached_property
    def _alike(self) -> list[int]:
        """List of the first call that is like each call."""
        first: dict[tuple[Any, ...], int] = {}
        first_calls = []
        for number in range(self.count):
            names = [self.group(number, self.points[-1]).inputs, (self.group(number, self.points[-1]).output,)]
            arrays = [name for each in names for name in each]
            laid = tuple(tuple(self._strides(name, point) for name in arrays) for point in self.points)
            of_open_shape = tuple(
                self.graph.type(name).shape if name in self._open_constants else None for name in arrays
            )
            computed = tuple(_workload(self.group(number, point)).key for point in self.points)
            first_calls.append(first.setdefault((computed, laid, of_open_shape), number))
        return first_calls

    @cached_property
    def _open_constants(self) -> set[str]:
        """Constants whose shapes depend on the sizes."""
        graphs = [self._scopes[point].graph for point in self.points]
        shapes = [{name: array.shape for name, array in graph.constants.items()} for graph in graphs]
        return {name for name in shapes[0] if len({each.get(name) for each in shapes}) > 1}

    def _strides(self, name: str, point: SizePoint) -> tuple[int, ...] | None:
        """Returns the strides of a value within another one, at some sizes; None: dense."""
        return self._scopes[point].locations[name].strides


def _pitches(
    name: str, layouts: Sequence[tuple[int, ...]], shapes: Sequence[tuple[int, ...]], own: Sequence[SizePoint]
) -> tuple[int | Term, ...]:
    """Derives the strides of a value from those at some sizes; along an axis of one element any stride is right.

    Raises:
        NotOpen: they do not follow from the sizes.
    """
    derived: list[int | Term] = []
    for strides, extents in zip(zip(*layouts, strict=True), zip(*shapes, strict=True), strict=True):
        if len(set(strides)) == 1 or set(extents) == {1}:
            derived.append(strides[-1])
            continue
        try:
            derived.append(fit_term(strides, own))
        except NoTerm as error:
            raise NotOpen(f"strides of {name!r} must follow from the sizes: {error}") from error
    return tuple(derived)


def _workload(group: Group) -> Workload:
    assert group.workload is not None, "loops are refused"
    return group.workload


def _sharing(graph: Graph, other: Graph) -> Graph:
    """Replaces constants by equal ones of another graph, so that they are in memory once."""
    shared: dict[str, Array] = {}
    for name, array in graph.constants.items():
        theirs = other.constants.get(name)
        same = theirs is not None and theirs.shape == array.shape and theirs.dtype == array.dtype
        shared[name] = theirs if theirs is not None and same and _equal(array, theirs) else array
    return partitioned_as(replace(graph, constants=shared), graph)


def _equal(a: Array, b: Array) -> bool:
    same_place = a.ctypes.data == b.ctypes.data and a.strides == b.strides
    if same_place or a.nbytes != b.nbytes:
        return same_place
    return np.array_equal(_bits(a), _bits(b))


def _bits(array: Array) -> Array:
    """Reads elements as integers, which equal themselves even if NaN, eight bytes at once if possible."""
    data = contiguous(array).reshape(-1).view(np.uint8)
    return data if data.nbytes % 8 else data.view(np.uint64)


def _is_part(array: Array, full: Array) -> bool:
    """Tells whether an array is the beginning, along all axes, of another one."""
    if array is full:
        return True
    if array.ndim != full.ndim or array.dtype != full.dtype:
        return False
    if any(a > b for a, b in zip(array.shape, full.shape, strict=True)):
        return False
    part = np.asarray(full[tuple(slice(extent) for extent in array.shape)])
    return _equal(array, part)

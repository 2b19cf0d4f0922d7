"""Choice of layouts: transpositions sink towards the outputs and cancel, so that activations stay channels-last.

One walk visits all nodes. A transposition is not computed at its node but recorded with the value. Operations that work
in any layout propagate it; for the others it is computed, once for all of them.
"""

from __future__ import annotations

from collections import Counter
from math import prod
from typing import Any

from autotune.graph.ir import Array, Graph, GraphBuilder, Node, without_unread_constants
from autotune.graph.ops import Kind, find
from autotune.graph.passes.dead_code import dead_code
from autotune.graph.passes.layout import (
    Axes,
    Form,
    PermutedValue,
    Rows,
    compose,
    identity,
    inverse,
    keeps_order,
    rows_in_order,
    through_reshape,
    transpose,
    trim,
)


def channels_last(graph: Graph) -> Graph:
    """Chooses layouts with the fewest bytes moved by transpositions, never more than in the given graph."""
    candidates = [graph, *(dead_code(_Sinking(graph, split).run()) for split in (False, True))]
    return min(candidates, key=count_moves)


def count_moves(graph: Graph) -> tuple[int, int]:
    """Counts the bytes that transpositions of a graph move, and the transpositions."""
    sizes = [node.type.nbytes for node in graph.nodes if node.op == "transpose"]
    return sum(sizes), len(sizes)


class _Sinking:
    """One walk over a graph.

    Args:
        split: whether a transposition that only partly passes a reshape is split into that part and one before it.
    """

    def __init__(self, graph: Graph, split: bool) -> None:
        self.graph, self.split = graph, split
        self.builder = GraphBuilder(graph.name, graph.inputs, graph.output_names)
        self.forms: dict[str, Form] = {name: self._plain(name) for name in graph.inputs}
        for name, array in graph.constants.items():
            self.forms[name] = self._plain(self.builder.constant(array, name))
        self.names_by_form: dict[Form, str] = {}

    def run(self) -> Graph:
        for node in self.graph.nodes:
            self.forms[node.name] = self._visit(node)
        outputs = [self._value(name, name) for name in self.graph.outputs]
        return without_unread_constants(self.builder.finish(outputs))

    def _visit(self, node: Node) -> Form:
        if node.op == "transpose":
            form = self._permuted_form(node.inputs[0])
            return PermutedValue(form.source, compose(form.axes, node.attrs["axes"]))
        if all(isinstance(form, PermutedValue) and form.plain for form in map(self._form, node.inputs)):
            return self._as_it_is(node)
        if find(node.op).kind is Kind.elementwise:
            return self._elementwise(node)
        special = {
            "concat": self._concat,
            "pad": self._pad,
            "slice": self._slice,
            "reduce": self._reduce,
            "reshape": self._reshape,
            "matmul": self._matmul,
        }.get(node.op)
        found = special(node) if special is not None else None
        return found if found is not None else self._as_it_is(node)

    # Forms.

    def _form(self, name: str) -> Form:
        return self.forms[name]

    def _plain(self, name: str) -> PermutedValue:
        return PermutedValue(name, identity(len(self.builder.type(name).shape)))

    def _permuted_form(self, name: str) -> PermutedValue:
        form = self.forms[name]
        return form if isinstance(form, PermutedValue) else self._plain(self._value(name))

    def _value(self, name: str, new_name: str = "") -> str:
        """Returns the new name of an old value in the old graph's layout."""
        form = self.forms[name]
        if isinstance(form, PermutedValue) and form.plain:
            return form.source
        if form not in self.names_by_form:
            self.names_by_form[form] = self._compute(form, new_name)
        return self.names_by_form[form]

    def _compute(self, form: Form, new_name: str) -> str:
        if isinstance(form, PermutedValue):
            return transpose(self.builder, form.source, form.axes, new_name)
        shape = self.builder.type(form.source).shape
        boxes = self.builder.add("reshape", [form.source], shape=(shape[0], *form.extents))
        boxes = self.builder.add("transpose", [boxes], axes=(0, *(a + 1 for a in form.axes)))
        return self.builder.add("reshape", [boxes], new_name, shape=shape)

    def _in_order(self, name: str, axes: Axes) -> str:
        """Returns the stored value whose transposition by `axes` is the old value."""
        form = self._permuted_form(name)
        wanted = PermutedValue(form.source, compose(form.axes, inverse(axes)))
        if wanted.plain:
            return wanted.source
        if wanted not in self.names_by_form:
            self.names_by_form[wanted] = transpose(self.builder, wanted.source, wanted.axes)
        return self.names_by_form[wanted]

    def _as_it_is(self, node: Node) -> PermutedValue:
        return self._plain(self.builder.add(node.op, [self._value(i) for i in node.inputs], node.name, **node.attrs))

    def _add(self, node: Node, inputs: list[str], axes: Axes, **attrs: Any) -> PermutedValue:
        return PermutedValue(self.builder.add(node.op, inputs, node.name, **attrs), axes)

    def _best(self, names: tuple[str, ...], rank: int) -> Axes:
        """Returns the axes under which most bytes of these values are already stored."""
        votes: Counter[Axes] = Counter()
        for name in names:
            form, kind = self.forms[name], self.graph.type(name)
            if len(kind.shape) != rank or self.graph.constants.get(name) is not None:
                continue
            form = self._permuted_form(name)
            if not keeps_order(self.builder.type(form.source).shape, form.axes) or form.plain:
                votes[form.axes] += kind.nbytes
        return max(votes, key=lambda axes: (votes[axes], axes != identity(rank)), default=identity(rank))

    # Operations that work in any layout.

    def _elementwise(self, node: Node) -> Form:
        first = self.forms[node.inputs[0]]
        if isinstance(first, Rows) and all(self._is_number(name) for name in node.inputs[1:]):
            stored = self.builder.add(
                node.op, [first.source, *map(self._value, node.inputs[1:])], node.name, **node.attrs
            )
            return Rows(stored, first.extents, first.axes)
        axes = self._best(node.inputs, len(node.type.shape))
        return self._add(node, [self._operand(name, axes) for name in node.inputs], axes, **node.attrs)

    def _is_number(self, name: str) -> bool:
        array = self.graph.constants.get(name)
        return array is not None and array.size == 1

    def _operand(self, name: str, axes: Axes) -> str:
        """Returns an operand of an element-wise operation, in the layout of the stored values."""
        shape, array = self.graph.type(name).shape, self.graph.constants.get(name)
        missing = (1,) * (len(axes) - len(shape))
        if array is not None:
            return self._constant(name, array, missing, axes)
        if not missing:
            return self._in_order(name, axes)
        full = self.builder.add("reshape", [self._value(name)], shape=(*missing, *shape))
        return transpose(self.builder, full, inverse(axes))

    def _constant(self, name: str, array: Array, missing: tuple[int, ...], axes: Axes) -> str:
        if array.size == 1 or axes == identity(len(axes)):
            return self._value(name)
        turned = trim(array.reshape(*missing, *array.shape).transpose(inverse(axes)))
        return self.builder.constant(turned, name)

    def _concat(self, node: Node) -> Form:
        axes = self._best(node.inputs, len(node.type.shape))
        return self._add(node, [self._in_order(i, axes) for i in node.inputs], axes, axis=axes[node.attrs["axis"]])

    def _pad(self, node: Node) -> Form:
        form = self._permuted_form(node.inputs[0])
        sides = {side: self._by_stored(node.attrs[side], form.axes) for side in ("before", "after")}
        return self._add(node, [form.source], form.axes, **sides, value=node.attrs["value"])

    def _slice(self, node: Node) -> Form:
        form = self._permuted_form(node.inputs[0])
        cut = {name: self._by_stored(node.attrs[name], form.axes) for name in ("begin", "size", "step")}
        return self._add(node, [form.source], form.axes, **cut)

    @staticmethod
    def _by_stored(values: tuple[int, ...], axes: Axes) -> tuple[int, ...]:
        return compose(values, inverse(axes))

    def _reduce(self, node: Node) -> Form:
        form = self._permuted_form(node.inputs[0])
        given, rank = node.attrs["axes"], len(form.axes)
        reduced = {a % rank for a in ((given,) if isinstance(given, int) else given)}
        kept = [form.axes[a] for a in range(rank) if a not in reduced]
        axes = tuple(sorted(kept).index(a) for a in kept)
        at = tuple(sorted(form.axes[a] for a in reduced))
        reduced_stored = self.builder.add("reduce", [form.source], node.name, axes=at, reducer=node.attrs["reducer"])
        return PermutedValue(reduced_stored, axes)

    def _reshape(self, node: Node) -> Form | None:
        form = self._permuted_form(node.inputs[0])
        stored, shape = self.builder.type(form.source).shape, node.attrs["shape"]
        if keeps_order(stored, form.axes):
            return self._plain(self.builder.add("reshape", [form.source], node.name, shape=shape))
        way = through_reshape(stored, form.axes, shape)
        if way.inner == identity(len(stored)) or (self.split and not keeps_order(way.shape, way.axes)):
            inner = PermutedValue(form.source, way.inner)
            if not inner.plain and inner not in self.names_by_form:
                self.names_by_form[inner] = transpose(self.builder, form.source, way.inner)
            source = form.source if inner.plain else self.names_by_form[inner]
            return PermutedValue(self.builder.add("reshape", [source], node.name, shape=way.shape), way.axes)
        if form.axes[0] == 0 and tuple(shape) == (stored[0], prod(stored[1:])):
            rows = self.builder.add("reshape", [form.source], node.name, shape=shape)
            return Rows(rows, tuple(stored[1:]), tuple(a - 1 for a in form.axes[1:]))
        return None

    def _matmul(self, node: Node) -> Form | None:
        form, weight = self.forms[node.inputs[0]], self.graph.constants.get(node.inputs[1])
        if not isinstance(form, Rows) or weight is None:
            return None
        new = self.builder.constant(rows_in_order(weight, form), node.inputs[1])
        return self._plain(self.builder.add("matmul", [form.source, new], node.name))

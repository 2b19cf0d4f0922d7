"""Matcher that finds where substitution rules apply in a graph, for the search, and rewrites the graph there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from types import MappingProxyType
from typing import Any

from autotune.graph.ir import Attributes, Graph, GraphBuilder, GraphError, Node, TensorType, topological
from autotune.graph.ops import find
from autotune.graph.passes.dead_code import dead_code
from autotune.lab.substitutions.cost import depends_on_weights
from autotune.lab.substitutions.operators import FIRST, LAST, TERM_OPS, Shape, Windows
from autotune.lab.substitutions.rules import Rule
from autotune.lab.substitutions.terms import Term, operands, subterms


@dataclass(frozen=True)
class Match:
    """A rule that applies at some nodes of a graph.

    Attributes:
        rule: rule whose source matches.
        bound: variables → names of values.
        windows: attributes of the source's windows.
        roots: values that the target's outputs replace; for one half of a concat of several, see `within`.
        within: index of the first of two adjacent operands, if the source is a concat of two and the graph has one of
            more.
    """

    rule: Rule
    bound: Mapping[str, str]
    windows: Windows
    roots: tuple[str, ...]
    within: int | None = None


_JOINS = ("concat", "concat_batch")


def extent(size: int) -> str:
    """Encodes the last extent of a variable's value, if nothing else of the value is used."""
    return f"#{size}"


def is_extent(name: str) -> bool:
    """Tells whether a name comes from `extent`, and is not the name of a value."""
    return name.startswith("#")


def parse_extent(name: str) -> int:
    """Decodes the size that `extent` was given."""
    return int(name[1:])


class Matcher:
    """Finds rules in one graph."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.weights = depends_on_weights(graph)

    @cached_property
    def _by_op(self) -> dict[str, list[Node]]:
        by_op: dict[str, list[Node]] = {}
        for node in self.graph.nodes:
            if node.name not in self.weights:
                by_op.setdefault(node.op, []).append(node)
        return by_op

    def matches(self, rules: Iterable[Rule]) -> Iterator[Match]:
        """Lists all matches of all rules, in the order of the rules and the nodes."""
        present = frozenset(self._by_op)
        for rule in rules:
            if not rule.needs <= present:
                continue
            yield from self._of_pair(rule) if len(rule.source) == 2 else self._of_one(rule)

    def _roots(self, term: Term) -> list[Node]:
        return self._by_op.get(TERM_OPS[str(term[0])].op, [])

    def _of_one(self, rule: Rule) -> Iterator[Match]:
        (source,) = rule.source
        for node in self._roots(source):
            for bound, windows in self._node(source, node, {}, Windows()):
                yield Match(rule, bound, windows, (node.name,))
            if source[0] in _JOINS and len(node.inputs) > 2 and TERM_OPS[str(source[0])].matches(node, Windows()):
                for place in range(len(node.inputs) - 1):
                    two = node.inputs[place : place + 2]
                    for bound, windows in self._operands(source, two, {}, Windows()):
                        yield Match(rule, bound, windows, (node.name,), place)

    def _of_pair(self, rule: Rule) -> Iterator[Match]:
        """Matches two nodes of which neither depends on the other, in the order of the graph."""
        first, second = rule.source
        for a in self._roots(first):
            for bound, windows in self._node(first, a, {}, Windows()):
                for b in self._roots(second):
                    if self._order[a.name] < self._order[b.name] and a.name not in self._needs[b.name]:
                        for both, slid in self._node(second, b, dict(bound), windows):
                            yield Match(rule, both, slid, (a.name, b.name))

    @cached_property
    def _order(self) -> dict[str, int]:
        return {node.name: place for place, node in enumerate(self.graph.nodes)}

    @cached_property
    def _needs(self) -> dict[str, frozenset[str]]:
        """Node → all nodes that it depends on."""
        needs: dict[str, frozenset[str]] = {}
        for node in self.graph.nodes:
            direct = [name for name in node.inputs if name in needs]
            needs[node.name] = frozenset(direct).union(*(needs[name] for name in direct))
        return needs

    def _value(
        self, term: Term, name: str, bound: dict[str, str], windows: Windows
    ) -> Iterator[tuple[dict[str, str], Windows]]:
        """Lists every way in which a value matches a term."""
        if isinstance(term, str):
            if (both := self._both(term, bound.get(term, name), name)) is not None:
                yield {**bound, term: both}, windows
            return
        node = self.graph.node(name)
        if node is not None and node.op == TERM_OPS[str(term[0])].op:
            yield from self._node(term, node, bound, windows)

    def _both(self, variable: str, bound: str, name: str) -> str | None:
        """Returns the binding of a variable that is consistent with `bound` and `name`, or None."""
        if bound == name:
            fits = is_extent(name) or (variable[0] == "w") == (name in self.weights)
            return name if fits else None
        if is_extent(name):
            bound, name = name, bound
        if not is_extent(bound) or (variable[0] == "w") != (name in self.weights):
            return None
        return name if parse_extent(bound) == self.graph.type(name).shape[-1] else None

    def _cut(self, name: str, node: Node) -> tuple[str, ...] | None:
        """Returns the operands of a slice of the first or last elements of the last axis; None for other slices."""
        (source,) = node.inputs
        begin, size, step = (node.attrs[a] for a in ("begin", "size", "step"))
        whole = self.graph.type(source).shape
        start = 0 if name == FIRST else whole[-1] - size[-1]
        if any(begin[:-1]) or size[:-1] != whole[:-1] or set(step) != {1} or begin[-1] != start:
            return None
        return source, extent(size[-1])

    def _node(
        self, term: Term, node: Node, bound: dict[str, str], windows: Windows
    ) -> Iterator[tuple[dict[str, str], Windows]]:
        op = TERM_OPS[str(term[0])]
        if op.name in (FIRST, LAST):
            if (cut := self._cut(op.name, node)) is not None and isinstance(term[2], str):
                yield from self._operands(term, cut, bound, windows)
            return
        slid = op.matches(node, windows) if len(node.inputs) == op.arity else None
        if slid is None:
            return
        orders = [node.inputs]
        # Graphs add vectors from either side; sums of alike operands have them in either order.
        if op.op in ("add", "multiply") and node.inputs[0] != node.inputs[1]:
            orders.append((node.inputs[1], node.inputs[0]))
        for inputs in orders:
            yield from self._operands(term, inputs, bound, slid)

    def _operands(
        self, term: Term, inputs: tuple[str, ...], bound: dict[str, str], windows: Windows
    ) -> Iterator[tuple[dict[str, str], Windows]]:
        kinds = [
            Shape((parse_extent(name),), True)
            if is_extent(name)
            else Shape(self.graph.type(name).shape, name in self.weights)
            for name in inputs
        ]
        if not TERM_OPS[str(term[0])].accepts(*kinds):
            return
        found = [(bound, windows)]
        for operand, name in zip(operands(term), inputs, strict=True):
            found = [new for b, w in found for new in self._value(operand, name, b, w)]
        yield from found


@lru_cache(maxsize=1 << 16)
def _infer(op: str, attrs: tuple[tuple[str, Any], ...], kinds: tuple[TensorType, ...]) -> tuple[Attributes, TensorType]:
    """Computes normalised attributes, and the type of the output.

    Raises:
        GraphError: inputs and attributes that do not go together.
    """
    operation = find(op)
    try:
        checked = operation.attributes(dict(attrs), kinds)
        return MappingProxyType(checked), operation.infer(checked, kinds)
    except (ValueError, TypeError) as error:
        raise GraphError(f"{op} on ({', '.join(map(str, kinds))}): {error}") from None


class _ExtendingBuilder(GraphBuilder):
    """A builder that extends a graph, and keeps its nodes as they are."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph.name, graph.inputs, graph.output_names)
        self._constants = dict(graph.constants)
        self._types = dict(graph._types)
        self.old = graph.nodes

    def add(self, op: str, inputs: Sequence[str], name: str = "", **attrs: Any) -> str:
        """Adds a node like `GraphBuilder.add`; inferred types are cached."""
        kinds = tuple(self._types[i] for i in inputs)
        name = self._fresh(name or op)
        checked, kind = _infer(op, tuple(attrs.items()), kinds)
        self._nodes[name] = Node(name, op, tuple(inputs), checked, kind)
        self._types[name] = kind
        return name

    def declare(self, extents: Iterable[str]) -> None:
        """Makes extents readable as shapes. A node that reads one as a value makes an invalid graph."""
        self._types |= {name: TensorType((parse_extent(name),)) for name in extents}

    def replace_values(self, instead: Mapping[str, str], outputs: tuple[str, ...]) -> Graph:
        """Builds the graph with values replaced by others."""
        new = dict(self._nodes)

        def read(names: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(instead.get(name, name) for name in names)

        remaining = []
        for node in self.old:
            if node.name in instead:
                # A target may be made of values that its source has, but never of the value that is replaced.
                continue
            inputs = read(node.inputs)
            remaining.append(node if inputs == node.inputs else Node(node.name, node.op, inputs, node.attrs, node.type))
        ordered = topological([*remaining, *new.values()], [*self._inputs, *self._constants])
        # Raises where a target reads an extent as a value: its rule needs more than the source shows.
        graph = Graph(self.name, self._inputs, self._constants, tuple(ordered), read(outputs), self._output_names)
        return dead_code(graph)


def apply(graph: Graph, match: Match) -> Graph | None:
    """Builds the graph with the target in place of the source; None if the target is undefined, or of another type.

    Nodes of the source that other nodes read remain.
    """
    builder = _ExtendingBuilder(graph)
    names: dict[Term, str] = dict(match.bound.items())
    builder.declare(name for name in match.bound.values() if is_extent(name))
    weights = depends_on_weights(graph)
    try:
        for term in subterms(*match.rule.target):
            if not isinstance(term, str):
                read = [names[operand] for operand in operands(term)]
                kinds = [Shape(builder.type(name).shape, name in weights) for name in read]
                op = TERM_OPS[str(term[0])]
                if not op.accepts(*kinds):
                    return None
                names[term] = op.emit(builder, read, match.windows)
                if all(name in weights for name in read):
                    weights.add(names[term])
        new = _replacements(builder, graph, match, [names[term] for term in match.rule.target])
        if any(builder.type(name) != graph.type(root) for root, name in new.items()):
            return None
        return builder.replace_values(new, graph.outputs)
    except GraphError:
        # A window that does not fit, as for a kernel larger than its data, or an extent that is read as a value.
        return None


def _replacements(builder: GraphBuilder, graph: Graph, match: Match, targets: list[str]) -> dict[str, str]:
    if match.within is None:
        return dict(zip(match.roots, targets, strict=True))
    (root,) = match.roots
    node = graph.node(root)
    assert node is not None
    inputs = [*node.inputs[: match.within], targets[0], *node.inputs[match.within + 2 :]]
    return {root: builder.add("concat", inputs, **node.attrs)}

"""Order of an executable's calls: outputs that replace inputs where they lie, and values that live briefly.

Calls of a scope may run in any order that its values allow. An output that shares the memory of an input, as a state of
training does, adds a condition: all readers of the old elements run before the call that writes the new ones.
"""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace

from autotune.compiler.executable.accesses import Accesses, Updates
from autotune.compiler.executable.recomputation import recompute
from autotune.compiler.executable.scopes import Scope, make_scope
from autotune.graph.ir import Graph, GraphBuilder, Node
from autotune.graph.ops import Kind, find
from autotune.graph.partition import Group
from search_space.schedule.loop_steps import Split
from search_space.schedule.trace import Trace
from search_space.workloads import Workload
from targets.base import BuildError


@dataclass(frozen=True)
class ArenaOptions:
    """Conditions on the memory of a graph's values.

    Attributes:
        updates: outputs that may share the memory of inputs.
        max_bytes: limit of the arena, for which values are computed again; None: only where that takes little time.
    """

    updates: Updates
    max_bytes: int | None = None


def arrange(scope: Scope, options: ArenaOptions, spacing: int, estimate: Callable[[Workload], float]) -> Scope:
    """Orders the calls of a scope, and repeats some if its arena would be too large otherwise.

    Args:
        scope: scope of known sizes.
        options: conditions.
        spacing: bytes at whose multiples values begin.
        estimate: function that estimates the seconds of a workload.

    Raises:
        BuildError: no order lets outputs lie in the memory of inputs.
        BudgetError: the arena is larger than its limit.
    """
    ordered = order(scope, options.updates)
    if options.max_bytes is not None and ordered.plan(spacing).nbytes <= options.max_bytes:
        return ordered
    return recompute(ordered, options.updates, options.max_bytes, spacing, estimate)


def check_updates(scope: Scope, updates: Updates) -> set[Group]:
    """Checks that outputs may lie in the memory of inputs.

    Returns:
        The calls that read elements where they write their own.

    Raises:
        BuildError: a call reads an element of an input after one that replaces it, or another one than it replaces.
    """
    at_once = set()
    for writer, reader in Accesses(scope).late_readers(updates):
        group = scope.groups[reader]
        if reader > writer:
            raise BuildError(f"a state must be read before it is replaced, but {group.title} reads it afterwards")
        if reader == writer:
            if not _is_by_element(scope, group, updates):
                raise BuildError(f"a state must be replaced element by element, but {group.title} reads others of it")
            at_once.add(group)
    return at_once


def check_stores(group: Group, trace: Trace) -> None:
    """Checks that a call which replaces its own operand computes each element once.

    Raises:
        BuildError: a tile is computed twice in part.
    """
    if any(isinstance(step, Split) and step.tail == "clamp" for step in trace.steps):
        raise BuildError(f"a state must be replaced by a schedule without clamped tiles, but {group.title} has one")


def _is_by_element(scope: Scope, group: Group, updates: Updates) -> bool:
    """Tells whether each element of a call's output reads no element of the inputs that it replaces but its own.

    A reduction may store sums before it ends, so that a call which begins with one must not replace what it reads.
    """
    first, *rest = group.nodes
    olds = [name for name in group.inputs if scope.root(name) in updates]
    inner = () if find(first.op).kind is Kind.elementwise else (first, *group.front)
    if find(first.op).kind not in (Kind.elementwise, Kind.injective) or group.front or group.through is not None:
        return False
    if any(name in olds for node in inner for name in node.inputs):
        return False
    shape, output = scope.graph.type(group.output).shape, scope.locations[group.output]
    alike = all(scope.graph.type(name).shape == shape and scope.locations[name].strides is None for name in olds)
    same = {scope.locations[name].offset for name in olds} <= {output.offset}
    return alike and same and output.strides in (None, (1,)) and all(_is_elementwise(node) for node in rest)


def _is_elementwise(node: Node) -> bool:
    return find(node.op).kind is Kind.elementwise


def separate_updates(graph: Graph, updates: Updates, alignment: int) -> Graph:
    """Adds a copy of each new value whose call could not write it over the old one.

    Args:
        graph: graph that `executable_graph` returned.
        updates: outputs that share the memory of inputs.
        alignment: alignment of the target.
    """
    scope = make_scope(graph, alignment)
    pairs = Accesses(scope).late_readers(updates)
    alone = {scope.groups[reader] for writer, reader in pairs if reader == writer}
    apart = {group.output for group in alone if not _is_by_element(scope, group, updates)}
    if not apart:
        return graph
    builder = GraphBuilder(graph.name, graph.inputs, graph.output_names)
    names = {name: name for name in graph.inputs}
    names |= {name: builder.constant(array, name) for name, array in graph.constants.items()}
    copies: dict[str, str] = {}
    for node in graph.nodes:
        copied = copies if node.op == "concat" else {}
        names[node.name] = builder.keep(node, graph, [copied.get(name, names[name]) for name in node.inputs])
        if node.name in apart:
            # A kernel ends at a view: the copy has one of its own.
            flat = builder.add("reshape", [names[node.name]], shape=(1, node.type.size))
            copies[node.name] = builder.add("copy", [builder.add("reshape", [flat], shape=node.type.shape)])
    return builder.finish([copies.get(name, names[name]) for name in graph.outputs])


def order(scope: Scope, updates: Updates) -> Scope:
    """Orders the calls of a scope: a call that frees no less than it takes runs as soon as it can, others as before.

    Raises:
        BuildError: no order lets outputs lie in the memory of inputs.
    """
    accesses = Accesses(scope)
    count = len(scope.groups)
    before = [accesses.sources(number) for number in range(count)]
    for writer, reader in accesses.late_readers(updates):
        if reader != writer:
            before[writer].add(reader)
    after: list[list[int]] = [[] for _ in range(count)]
    for number, earlier in enumerate(before):
        for each in earlier:
            after[each].append(number)
    memory = _Memory(scope, accesses)
    waiting = [len(earlier) for earlier in before]
    ready = [number for number in range(count) if not waiting[number]]
    numbers: list[int] = []
    while ready:
        chosen = next((number for number in ready if memory.growth(number) <= 0), ready[0])
        ready.remove(chosen)
        memory.run(chosen)
        numbers.append(chosen)
        for each in after[chosen]:
            waiting[each] -= 1
            if not waiting[each]:
                bisect.insort(ready, each)
    if len(numbers) < count:
        raise BuildError("states must be replaced after all calls that read them, but some of these need the new ones")
    return replace(scope, groups=tuple(scope.groups[number] for number in numbers))


class _Memory:
    """Bytes in an arena while calls are put in order."""

    def __init__(self, scope: Scope, accesses: Accesses) -> None:
        self._types, self._accesses = scope.graph, accesses
        graph = scope.graph
        outside = {*graph.inputs, *graph.constants, *(scope.root(name) for name in graph.outputs)}
        self._inside = {span.root for span in accesses.writes} - outside
        self._live: set[str] = set()
        self._readers: dict[str, int] = defaultdict(int)
        for spans in accesses.reads:
            for root in {span.root for span in spans}:
                self._readers[root] += 1

    def growth(self, number: int) -> int:
        """Returns the bytes that a call takes, less those that it frees."""
        root = self._accesses.writes[number].root
        takes = 0 if root in self._live or root not in self._inside else self._types.type(root).nbytes
        read = {span.root for span in self._accesses.reads[number]}
        return takes - sum(self._types.type(each).nbytes for each in read if each in self._live and self._is_last(each))

    def run(self, number: int) -> None:
        """Runs a call."""
        if self._accesses.writes[number].root in self._inside:
            self._live.add(self._accesses.writes[number].root)
        for root in {span.root for span in self._accesses.reads[number]}:
            self._readers[root] -= 1
            if not self._readers[root]:
                self._live.discard(root)

    def _is_last(self, root: str) -> bool:
        return self._readers[root] == 1

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
from autotune.compiler.executable.scopes import Scope
from autotune.graph.ir import Node
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
    for old, writer, reader in Accesses(scope).late_readers(updates):
        group = scope.groups[reader]
        if reader > writer:
            raise BuildError(f"state {old} must be read before it is replaced, but {group.title} reads it afterwards")
        if reader == writer:
            if not is_by_element(scope, group, updates):
                raise BuildError(f"state {old} must be replaced element by element, but {group.title} reads others")
            at_once.add(group)
    return at_once


def check_stores(group: Group, trace: Trace) -> None:
    """Checks that a call which replaces its own operand computes each element once.

    Raises:
        BuildError: a tile is computed twice in part.
    """
    if any(isinstance(step, Split) and step.tail == "clamp" for step in trace.steps):
        raise BuildError(f"a state must be replaced by a schedule without clamped tiles, but {group.title} has one")


def is_by_element(scope: Scope, group: Group, updates: Updates) -> bool:
    """Tells whether each element of a call's output reads no element of the input that it replaces but its own.

    A reduction may store sums before it ends, so that a call which begins with one must not replace what it reads.
    """
    first, *rest = group.nodes
    graph = scope.graph
    outputs = dict(zip(graph.output_names, graph.outputs, strict=True))
    replaced = {old for old, name in updates.items() if scope.root(outputs[name]) == scope.root(group.output)}
    olds = [name for name in group.inputs if scope.root(name) in replaced]
    inner = () if find(first.op).kind is Kind.elementwise else (first, *group.front)
    if find(first.op).kind not in (Kind.elementwise, Kind.injective) or group.front or group.through is not None:
        return False
    if any(name in olds for node in inner for name in node.inputs):
        return False
    shape, output = graph.type(group.output).shape, scope.locations[group.output]
    alike = all(graph.type(name).shape == shape and scope.locations[name].strides is None for name in olds)
    same = {scope.locations[name].offset for name in olds} <= {output.offset}
    return alike and same and output.strides in (None, (1,)) and all(_is_elementwise(node) for node in rest)


def _is_elementwise(node: Node) -> bool:
    return find(node.op).kind is Kind.elementwise


def order(scope: Scope, updates: Updates) -> Scope:
    """Orders the calls of a scope: a call that frees no less than it takes runs as soon as it can, others as before.

    Raises:
        BuildError: no order lets outputs lie in the memory of inputs.
    """
    accesses = Accesses(scope)
    count = len(scope.groups)
    before = [accesses.sources(number) for number in range(count)]
    late: dict[int, str] = {}  # call → state that it writes after others have read it
    for old, writer, reader in accesses.late_readers(updates):
        if reader != writer:
            late[writer] = old
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
        old = next(late[number] for number in range(count) if waiting[number] and number in late)
        raise BuildError(f"state {old} must be replaced after all its readers, but some of them need the new one")
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

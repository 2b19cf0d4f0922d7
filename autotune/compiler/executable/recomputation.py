"""Recomputation: calls that run again, so that their values need not stay in memory until their last readers.

The search frees memory at the call around which most bytes live. In each step it takes the value that frees the most
bytes there for each estimated second of the calls that run again. Kernels are the same, so results are, bit for bit.
Kirisame et al. ("Dynamic tensor rematerialization", 2021) choose by a like measure, while a network runs.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from autotune.compiler.executable.accesses import Accesses, Updates
from autotune.compiler.executable.scopes import Scope
from autotune.graph.partition import Group
from search_space.workloads import Workload
from targets.arrays import round_up
from targets.base import BuildError

MOST_CALLS = 24
"""Greatest number of calls that run again for one value."""
FREE_SHARE = 0.01
"""Share of an executable's estimated seconds that calls may take again where no limit asks for them."""
FREE_STEPS = 64
"""Greatest number of steps of the search where no limit asks for them: more would make compilation slow."""
LEAST_SECONDS = 1e-7
"""Seconds that a call takes at least, where estimates are compared."""
SMALL = 16
"""An operand stays in memory, and is not computed again, if it has at most one in so many of the value's bytes."""


class BudgetError(BuildError):
    """An arena does not fit its limit."""


@dataclass(frozen=True)
class _Call:
    """A call in a sequence.

    Attributes:
        number: number of its group.
        version: 0 where it runs first, another number for each repetition.
    """

    number: int
    version: int = 0


_Value = tuple[str, int]
"""Value that owns memory, and the version of the call that computed it."""


@dataclass(frozen=True)
class _Step:
    """Calls that run again for a value.

    Attributes:
        position: position before which they run.
        calls: their values' roots, in order; the last is that of the value.
        sources: root → version that they read.
        nbytes: bytes that are freed.
        seconds: estimated seconds.
    """

    position: int
    roots: tuple[str, ...]
    sources: Mapping[str, int]
    nbytes: int
    seconds: float


class _Facts:
    """Facts of a scope's calls that do not change.

    Attributes:
        reads: roots in the arena that each call reads.
        roots: root that each call writes.
        nbytes: bytes of each root in the arena.
        inner: bytes that each call needs while it runs.
        owners: root → the one call that writes it; roots of loops are left out.
        seconds: estimated seconds of each call.
        replaced_by: calls that replace elements which each call reads.
    """

    def __init__(self, scope: Scope, updates: Updates, spacing: int, estimate: Callable[[Workload], float]) -> None:
        accesses = Accesses(scope)
        self.roots = [span.root for span in accesses.writes]
        intervals = {interval.name: interval for interval in scope.intervals(spacing)}
        self.nbytes = {n: round_up(i.nbytes, spacing) for n, i in intervals.items() if n in accesses.writers}
        self.inner = [0] * len(scope.groups)
        for name, interval in intervals.items():
            if name not in accesses.writers:
                self.inner[interval.first] += round_up(interval.nbytes, spacing)
        self.reads = [
            tuple(dict.fromkeys(span.root for span in spans if span.root in self.nbytes)) for spans in accesses.reads
        ]
        self.owners = {
            root: writers[0]
            for root, writers in accesses.writers.items()
            if root in self.nbytes and len(writers) == 1 and scope.groups[writers[0]].loop is None
        }
        self.seconds = [0.0 if group.workload is None else estimate(group.workload) for group in scope.groups]
        self.replaced_by: dict[int, set[int]] = defaultdict(set)
        for _, writer, reader in accesses.late_readers(updates):
            self.replaced_by[reader].add(writer)


@dataclass(frozen=True)
class _Sequence:
    """Calls in order.

    Attributes:
        facts: facts of the calls.
        calls: the calls.
        sources: reader and root → version that it reads, if that is not 0.
    """

    facts: _Facts
    calls: tuple[_Call, ...]
    sources: Mapping[tuple[_Call, str], int]

    def lives(self) -> dict[_Value, list[int]]:
        """Lists the positions at which each value is written and read, in order."""
        facts = self.facts
        lives: dict[_Value, list[int]] = defaultdict(list)
        for position, call in enumerate(self.calls):
            for root in facts.reads[call.number]:
                lives[root, self.sources.get((call, root), 0)].append(position)
            if facts.roots[call.number] in facts.nbytes:
                lives[facts.roots[call.number], call.version].append(position)
        return lives

    def profile(self, lives: Mapping[_Value, Sequence[int]]) -> NDArray[np.int64]:
        """Computes the bytes that live at each position (positions,)."""
        changes = np.zeros(len(self.calls) + 1, np.int64)
        for (root, _), positions in lives.items():
            changes[positions[0]] += self.facts.nbytes[root]
            changes[positions[-1] + 1] -= self.facts.nbytes[root]
        inner = np.array([self.facts.inner[call.number] for call in self.calls], np.int64)
        live: NDArray[np.int64] = np.cumsum(changes)[:-1] + inner
        return live

    def steps(self, peak: int, lives: Mapping[_Value, Sequence[int]]) -> Iterator[_Step]:
        """Lists steps that free memory at a position."""
        call_positions = {call: position for position, call in enumerate(self.calls)}
        versions: dict[str, list[int]] = defaultdict(list)
        for root, version in lives:
            versions[root].append(version)
        for (root, version), positions in lives.items():
            if root in self.facts.owners and positions[0] < peak < positions[-1] and peak not in positions:
                step = self._step(root, version, peak, lives, versions, call_positions)
                if step is not None and step.nbytes > 0:
                    yield step

    def _step(
        self,
        root: str,
        version: int,
        peak: int,
        lives: Mapping[_Value, Sequence[int]],
        versions: Mapping[str, Sequence[int]],
        positions: Mapping[_Call, int],
    ) -> _Step | None:
        """Lists the calls that compute a value again before its next reader; None: it cannot be."""
        facts = self.facts
        position = next(each for each in lives[root, version] if each > peak)
        roots: list[str] = []
        sources: dict[str, int] = {}
        freed, seconds = facts.nbytes[root], 0.0

        def add(value: str) -> bool:
            nonlocal freed, seconds
            number = facts.owners[value]
            if any(positions[_Call(writer)] < position for writer in facts.replaced_by.get(number, ())):
                return False
            for operand in facts.reads[number]:
                if operand in sources or operand in roots:
                    continue
                older = [
                    v for v in versions[operand] if lives[operand, v][0] < position and (operand, v) != (root, version)
                ]
                last = {v: lives[operand, v][-1] for v in older}
                latest = max(older, key=lambda v: last[v], default=None)
                if latest is not None and last[latest] > peak:
                    sources[operand] = latest
                elif latest is not None and facts.nbytes[operand] * SMALL <= facts.nbytes[root]:
                    sources[operand] = latest
                    freed -= facts.nbytes[operand]
                elif operand not in facts.owners or len(roots) >= MOST_CALLS or not add(operand):
                    return False
            again = any(lives[value, v][0] >= position for v in versions[value])  # that repetition is no longer needed
            seconds += 0.0 if again else facts.seconds[number]
            roots.append(value)
            return len(roots) <= MOST_CALLS

        return _Step(position, tuple(roots), sources, freed, seconds) if add(root) else None

    def apply(self, step: _Step, version: int) -> _Sequence:
        """Inserts the calls of a step as repetitions of a version that no call has."""
        facts = self.facts
        again = set(step.roots)
        new = [_Call(facts.owners[root], version) for root in step.roots]
        sources = dict(self.sources)
        for call in new:
            for operand in facts.reads[call.number]:
                sources[call, operand] = version if operand in again else step.sources[operand]
        before, after = self.calls[: step.position], self.calls[step.position :]
        for call in after:
            for operand in facts.reads[call.number]:
                if operand in again:
                    sources[call, operand] = version
        # Later repetitions are no longer read.
        calls = [*before, *new, *(call for call in after if facts.roots[call.number] not in again)]
        return _Sequence(facts, _without_unread(facts, calls, sources), sources)


def _without_unread(
    facts: _Facts, calls: Sequence[_Call], sources: Mapping[tuple[_Call, str], int]
) -> tuple[_Call, ...]:
    """Drops calls whose values no call reads."""
    needed: set[_Value] = set()
    result = []
    for call in reversed(calls):
        root = facts.roots[call.number]
        if root in facts.owners and (root, call.version) not in needed:
            continue
        needed |= {(operand, sources.get((call, operand), 0)) for operand in facts.reads[call.number]}
        result.append(call)
    return tuple(reversed(result))


def recompute(
    scope: Scope, updates: Updates, max_bytes: int | None, spacing: int, estimate: Callable[[Workload], float]
) -> Scope:
    """Repeats calls of a scope until its arena fits a limit, or until that takes time.

    Args:
        scope: scope, in the order of its calls.
        updates: outputs that share the memory of inputs.
        max_bytes: limit of the arena; None: calls are repeated for `FREE_SHARE` of the estimated time.
        spacing: bytes at whose multiples values begin.
        estimate: function that estimates the seconds of a workload.

    Raises:
        BudgetError: the search reaches no such arena; it says the smallest one that it does reach.
    """
    facts = _Facts(scope, updates, spacing, estimate)
    sequence = _Sequence(facts, tuple(_Call(number) for number in range(len(scope.groups))), {})
    left = FREE_SHARE * sum(facts.seconds) if max_bytes is None else math.inf
    for version in itertools.count(1):
        lives = sequence.lives()
        profile = sequence.profile(lives)
        most, peak = int(profile.max(initial=0)), int(profile.argmax())
        if max_bytes is not None and most <= max_bytes:
            repeated = _repeat(scope, sequence)
            if repeated.plan(spacing).nbytes <= max_bytes:
                return repeated
        if max_bytes is None and version > FREE_STEPS:
            break
        possible = [step for step in sequence.steps(peak, lives) if step.seconds <= left]
        possible.sort(key=lambda step: (-step.nbytes / (step.seconds + LEAST_SECONDS), step.roots[-1]))
        width = int((profile == most).sum())
        for step in possible:
            tried = sequence.apply(step, version)
            other = tried.profile(tried.lives())
            if (int(other.max()), int((other == other.max()).sum())) < (most, width):
                sequence, left = tried, left - step.seconds
                break
        else:
            break
    repeated = _repeat(scope, sequence)
    least = repeated.plan(spacing).nbytes
    if max_bytes is None:
        return repeated if least < scope.plan(spacing).nbytes else scope
    raise BudgetError(
        f"`max_arena_mb` must be at least {-(-least // 10**4) / 100} for {scope.graph.name}, "
        f"but got max_arena_mb={max_bytes / 1e6:g}"
    )


def _repeat(scope: Scope, sequence: _Sequence) -> Scope:
    """Makes the scope of a sequence: repeated values have names, memory and nodes of their own.

    The nodes have the types of the values. Inputs of calls are those of the groups.
    """
    facts, graph = sequence.facts, scope.graph
    names: dict[str, list[str]] = defaultdict(list)  # root → values in its memory
    for name, at in scope.locations.items():
        names[at.root].append(name)
    locations, nodes = dict(scope.locations), list(graph.nodes)
    for call in sequence.calls:
        if call.version:
            root = facts.roots[call.number]
            for name in names[root]:
                node = graph.node(name)
                assert node is not None, "inputs are not computed again"
                nodes.append(replace(node, name=_again(name, call.version)))
                locations[_again(name, call.version)] = replace(locations[name], root=_again(root, call.version))

    def group(call: _Call) -> Group:
        own = scope.groups[call.number]
        versions = [sequence.sources.get((call, scope.root(name)), 0) for name in own.inputs]
        inputs = tuple(map(_again, own.inputs, versions))
        last = replace(own.nodes[-1], name=_again(own.output, call.version))
        return replace(own, nodes=(*own.nodes[:-1], last), inputs=inputs)

    groups = tuple(map(group, sequence.calls))
    return Scope(replace(graph, nodes=tuple(nodes)), groups, locations, scope.bodies)


def _again(name: str, version: int) -> str:
    return f"{name} again {version}" if version else name

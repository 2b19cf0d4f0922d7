"""The search space of a workload: sketches lowered once, candidates as rows of choices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from search_space.former_names import FormerAttribute
from search_space.hardware import Hardware
from search_space.ir.columns import ColumnFunction, compile_columns
from search_space.ir.findings import Findings
from search_space.ir.stmt import Constraint, LoopProgram, substitute_program
from search_space.lower import cleanup, lower
from search_space.lower.memories import workspace_bytes
from search_space.machines.registry import get_machine, get_rules, registered_rules
from search_space.schedule.errors import ScheduleError
from search_space.schedule.state import State, initial_state
from search_space.schedule.trace import Trace
from search_space.sketch.base import Draft, SketchRule
from search_space.sketch.generate import SketchDerivation, derive
from search_space.sketch.tables import DecisionGroup

if TYPE_CHECKING:
    from search_space.workloads import Workload

__all__ = ["DecisionGroup", "SearchSpace", "Sketch", "generate", "unscheduled_state", "make_program"]

Choices = NDArray[np.int32]  # (candidates, groups)


@dataclass(frozen=True, eq=False)
class Sketch:
    """A schedule whose numbers are decision variables.

    Attributes:
        name: names of its variants.
        algorithm: the definition of the workload it schedules.
        groups: decision groups; a candidate is a row of `int32 (groups,)`, an index into each group's table.
        steps: the symbolic trace.
        limits: constraints besides those found in lowering.
        hardware: machine that it is scheduled for; its kind limits what programs may use.
        findings: cache of simplification results, shared by the sketches of an algorithm.
    """

    name: str
    algorithm: str
    groups: tuple[DecisionGroup, ...]
    steps: Trace
    initial: State
    hardware: Hardware
    limits: tuple[Constraint, ...] = ()
    findings: Findings = field(default_factory=Findings, repr=False)
    _cache: dict[str, ColumnFunction] = field(default_factory=dict, repr=False)

    @property
    def size(self) -> int:
        """Candidates, legal or not."""
        out = 1
        for group in self.groups:
            out *= len(group.table)
        return out

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the decision variables, in the order of `expand`'s rows."""
        return tuple(c for g in self.groups for c in g.columns)

    @cached_property
    def program(self) -> LoopProgram:
        """The loop program, its extents expressions in the decision variables."""
        return lower(self.steps.apply(self.initial), findings=self.findings)

    @property
    def refusal(self) -> str:
        """Reason why no choice gives a loop program; "" if there is a loop program."""
        try:
            _ = self.program
        except ScheduleError as error:
            return str(error)
        return ""

    @cached_property
    def constraints(self) -> tuple[Constraint, ...]:
        own = {(limit.left, limit.right) for limit in self.limits}
        found = get_machine(self.hardware.kind).limits(self.program, self.hardware)
        return (*self.limits, *self.program.constraints, *(c for c in found if (c.left, c.right) not in own))

    def expand(self, choices: Choices) -> NDArray[np.float64]:
        """Computes the values of the decision variables: choices (n, groups) → (columns, n)."""
        if not self.groups:
            return np.empty((0, len(choices)))
        return np.concatenate([g.table[choices[:, i]] for i, g in enumerate(self.groups)], axis=1).T.astype(float)

    def _find_violations(self, choices: Choices) -> NDArray[np.bool_]:
        """Tells which limits each candidate violates: (constraints, n)."""
        if "limits" not in self._cache:
            bounds = [c.left - c.right for c in self.constraints]
            self._cache["limits"] = compile_columns(bounds, self.columns)
        return self._cache["limits"](self.expand(choices)) > 0

    def legal(self, choices: Choices) -> NDArray[np.bool_]:
        """Tells for each candidate whether it satisfies every limit: (n, groups) → (n,)."""
        if not self.constraints:
            return np.ones(len(choices), bool)
        broken: NDArray[np.bool_] = np.any(self._find_violations(choices), axis=0)
        return np.logical_not(broken)

    def violations(self, choices: Choices) -> dict[str, int]:
        """Counts the candidates that violate each limit; a limit without violations is left out."""
        if not self.constraints:
            return {}
        counts: dict[str, int] = {}
        for constraint, broken in zip(self.constraints, self._find_violations(choices), strict=True):
            counts[constraint.name] = counts.get(constraint.name, 0) + int(broken.sum())
        return {name: count for name, count in counts.items() if count}

    def workspace(self, choices: Choices, threads: int) -> NDArray[np.float64]:
        """Computes each candidate's bytes besides inputs and output, see `workspace_bytes`: (n, groups) → (n,)."""
        if not self.groups:
            return np.full(len(choices), float(workspace_bytes(self.program, threads).value))
        key = f"workspace {threads}"
        if key not in self._cache:
            self._cache[key] = compile_columns([workspace_bytes(self.program, threads)], self.columns)
        (found,) = self._cache[key](self.expand(choices))
        return np.asarray(found, np.float64)

    def values(self, choice: Sequence[int] | NDArray[np.int32]) -> dict[str, int]:
        """Returns a candidate's number for each decision variable."""
        return {
            column: int(value)
            for group, index in zip(self.groups, choice, strict=True)
            for column, value in zip(group.columns, group.table[int(index)], strict=True)
        }

    def trace(self, choice: Sequence[int] | NDArray[np.int32]) -> Trace:
        """Returns a candidate's concrete trace."""
        return self.steps.substitute(self.values(choice))


class SketchChoice(Protocol):
    """A candidate, as `tuner.search.Candidate` is one: a sketch, and a choice for each of its decision groups."""

    @property
    def sketch(self) -> int: ...

    @property
    def choices(self) -> Sequence[int]: ...


@dataclass(frozen=True, eq=False)
class SearchSpace:
    """Every sketch of every algorithm of a workload.

    Attributes:
        dropped_count: number of sketches left out because of the cap on their number.
        refusals: sketches without a loop program for any choice, and why; they are left out.
        unmatched_rules: names of rules of one's own (`register_rule`) that decided no stage of any algorithm: no stage
            matches them, or an earlier rule decides it.
    """

    workload: Workload
    hardware: Hardware
    sketches: tuple[Sketch, ...]
    dropped_count: int = 0
    refusals: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    unmatched_rules: tuple[str, ...] = field(default=(), kw_only=True)

    refused = FormerAttribute("refusals")
    unmatched = FormerAttribute("unmatched_rules")

    @property
    def cores(self) -> int:
        """Number of cores of the machine."""
        return self.hardware.cores

    @property
    def size(self) -> int:
        """Candidates of all sketches, legal or not."""
        return sum(s.size for s in self.sketches)

    def program(self, candidate: SketchChoice) -> LoopProgram:
        """Lowers a candidate to its concrete loop program.

        Raises:
            ScheduleError: an illegal candidate may have none.
        """
        sketch = self.sketches[candidate.sketch]
        return make_program(self.workload, sketch.algorithm, sketch.trace(candidate.choices))


def generate(workload: Workload, hardware: Hardware, algorithms: Sequence[str] | None = None) -> SearchSpace:
    """Generates the search space of a workload on a machine.

    Args:
        algorithms: a subset of the workload's definitions; by default those that have sketches on this machine which
            are more than a last resort.

    Raises:
        ValueError: a tensor of too many elements.
    """
    workload.check_size()
    usable: list[Sketch] = []
    last: list[Sketch] = []
    dropped = 0
    refused: dict[str, str] = {}
    applied: set[str] = set()
    for algorithm in algorithms or workload.algorithms:
        derived, sketches = _derive_sketches(workload, algorithm, hardware, tuple(get_rules(hardware.kind)))
        dropped += derived.dropped_count
        applied |= derived.applied_rules
        refused |= {f"{algorithm}:{name}": reason for name, reason in derived.refusals.items()}
        for draft, sketch in zip(derived.drafts, sketches, strict=True):
            if reason := sketch.refusal:
                refused[sketch.name] = reason
            else:
                (last if draft.last_resort and algorithms is None else usable).append(sketch)
    unmatched = tuple(rule.name for rule in registered_rules(hardware.kind) if rule.name not in applied)
    return SearchSpace(workload, hardware, tuple(usable or last), dropped, refusals=refused, unmatched_rules=unmatched)


@lru_cache(maxsize=8)
def _derive_sketches(
    workload: Workload, algorithm: str, hardware: Hardware, rules: tuple[SketchRule, ...]
) -> tuple[SketchDerivation, tuple[Sketch, ...]]:
    """Derives the sketches of an algorithm.

    Cached, since `algorithms_on` mostly asks for the sketches of a workload before `generate` does.
    """
    state, findings = unscheduled_state(workload, algorithm), Findings()
    derived = derive(state, hardware)
    return derived, tuple(_sketch(algorithm, state, draft, hardware, findings) for draft in derived.drafts)


def _sketch(algorithm: str, state: State, draft: Draft, hardware: Hardware, findings: Findings) -> Sketch:
    return Sketch(
        f"{algorithm}:{draft.name or 'default'}",
        algorithm,
        draft.groups,
        draft.trace,
        state,
        hardware,
        draft.constraints,
        findings,
    )


@lru_cache(maxsize=4096)
def algorithms_on(workload: Workload, hardware: Hardware) -> tuple[str, ...]:
    """Lists the algorithms of a workload with sketches on a machine, last resorts only if there are no others."""
    usable: list[str] = []
    last: list[str] = []
    for algorithm in workload.algorithms:
        derived, sketches = _derive_sketches(workload, algorithm, hardware, tuple(get_rules(hardware.kind)))
        drafts = sorted(zip(derived.drafts, sketches, strict=True), key=lambda pair: pair[0].last_resort)
        first = next((draft for draft, sketch in drafts if not sketch.refusal), None)
        if first is not None:
            (last if first.last_resort else usable).append(algorithm)
    return tuple(usable or last)


def make_program(workload: Workload, algorithm: str, trace: Trace) -> LoopProgram:
    """Lowers a trace to its concrete loop program.

    Raises:
        ScheduleError: the trace does not fit the workload.
    """
    state = unscheduled_state(workload, algorithm)
    return cleanup(lower(trace.apply(state)))


def unscheduled_state(workload: Workload, algorithm: str) -> State:
    """Returns the unscheduled definition; kernels take their inputs in the workload's order."""
    *inputs, output = workload.tensors(algorithm)
    return initial_state([output], inputs=inputs)


def concrete(sketch: Sketch, values: Mapping[str, int]) -> LoopProgram:
    """Returns a candidate's program by substitution into the symbolic one; equal to lowering its concrete trace."""
    return cleanup(substitute_program(sketch.program, values))

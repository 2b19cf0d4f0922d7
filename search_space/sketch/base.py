"""What a sketch rule works on: a draft, and the interface every rule has."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace

from search_space.hardware import Hardware
from search_space.ir.expr import Expr, var
from search_space.ir.stmt import Constraint
from search_space.schedule.state import Stage, State
from search_space.schedule.steps import Step
from search_space.schedule.trace import Trace
from search_space.sketch.tables import DecisionGroup

LIBRARY = "library"
"""Tag of a stage that a library is to compute."""


@dataclass(frozen=True)
class Draft:
    """A sketch in the making.

    Attributes:
        name: the variants chosen so far.
        state, trace: the schedule so far, its decision variables symbolic.
        groups: decision groups of the variables in it.
        constraints: limits the rules put on the decisions, besides those that lowering finds.
        done: stages no rule need look at any more.
        anchors: tiled stage → loops (stage, leaf) at which its producers may be computed, outermost first.
        last_resort: whether it is worth nothing where there is any other.
        copies: stages that copy an input so that it lies better, and are treated as padding is.
    """

    name: str
    state: State
    trace: Trace = field(default_factory=Trace)
    groups: tuple[DecisionGroup, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    done: frozenset[str] = frozenset()
    anchors: dict[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    last_resort: bool = False
    copies: frozenset[str] = frozenset()

    def apply(self, *steps: Step) -> Draft:
        """The draft after `steps`."""
        state = self.state
        for step in steps:
            state = step.apply(state)
        return replace(self, state=state, trace=self.trace.then(*steps))

    def producers(self, stage: Stage) -> list[Stage]:
        """The stages whose results `stage` reads, each once; those inlined into it are seen through."""
        found: dict[str, Stage] = {}
        for name in stage.reads():
            if self.state.input(name) is None:
                read = self.state.stage(name)
                more = self.producers(read) if read.attach.kind == "inline" else [read]
                found.update({s.name: s for s in more})
        return list(found.values())

    def decide(self, group: DecisionGroup) -> tuple[Draft, tuple[Expr | int, ...]]:
        """Adds a decision group; its variables, or plain numbers where there is but one choice."""
        if len(group.table) == 1:
            return self, tuple(int(v) for v in group.table[0])
        return replace(self, groups=(*self.groups, group)), tuple(var(c) for c in group.columns)

    def require(self, name: str, left: Expr | int, right: int) -> Draft:
        """Adds the limit left <= right."""
        if isinstance(left, int):
            return self
        from search_space.ir.expr import const

        return replace(self, constraints=(*self.constraints, Constraint(name, left, const(right))))

    def finish(self, *stages: str) -> Draft:
        return replace(self, done=self.done | set(stages))

    def variant(self, label: str) -> Draft:
        return replace(self, name=f"{self.name}/{label}" if self.name else label)


class SketchRule(ABC):
    """Derives schedules for one kind of stage. The first rule that matches a stage is applied to it."""

    name: str

    @abstractmethod
    def matches(self, draft: Draft, stage: Stage, hardware: Hardware) -> bool:
        """Whether the rule knows what to do with `stage`, all of whose consumers have been dealt with."""

    @abstractmethod
    def apply(self, draft: Draft, stage: Stage, hardware: Hardware) -> list[Draft]:
        """The variants; each must mark `stage` as done."""

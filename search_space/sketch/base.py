"""The base of sketch rules: a draft, and the interface every rule has."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from search_space.hardware import Hardware
from search_space.ir.expr import Expr, const, var
from search_space.ir.stmt import Constraint
from search_space.schedule.builder import Loop, ScheduleBuilder
from search_space.schedule.state import Stage
from search_space.sketch.tables import DecisionGroup


@dataclass(frozen=True)
class Draft(ScheduleBuilder):
    """An unfinished sketch: a schedule whose factors may be decision variables, with the facts about these.

    Attributes:
        name: the variants chosen so far.
        groups: decision groups of the variables in it.
        constraints: limits the rules put on the decisions, besides those that lowering finds.
        finished_stages: stages that no rule needs to consider any more.
        anchors: tiled stage → loops (stage, leaf) at which its producers may be computed, outermost first.
        last_resort: whether it is useless if there is any other draft.
        copies: stages that copy an input for a better layout, and are treated like padding.
        parts: stage that reduces parts of a longer reduction, which another stage completes → its loop over a part.
    """

    name: str = ""
    groups: tuple[DecisionGroup, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    finished_stages: frozenset[str] = frozenset()
    anchors: dict[str, tuple[tuple[str, Loop], ...]] = field(default_factory=dict)
    last_resort: bool = False
    copies: frozenset[str] = frozenset()
    parts: dict[str, Loop] = field(default_factory=dict)

    def sums_in(self, scope: str, sums: str, output: str) -> tuple[Draft, str]:
        """Keeps the sums of a reduction in another memory for `output`; returns the draft and the stage of the sums.

        If the reduction is the output itself, which must be global, the sums become a stage that it copies.
        """
        return self.cache_write(sums, scope) if sums == output else (self.set_scope(sums, scope), sums)

    def producers(self, stage: Stage) -> list[Stage]:
        """Returns the stages whose results `stage` reads, each once, directly or through inlined stages."""
        stages: dict[str, Stage] = {}
        for name in stage.reads():
            if self.state.input(name) is None:
                read = self.state.stage(name)
                more = self.producers(read) if read.attach.kind == "inline" else [read]
                stages.update({s.name: s for s in more})
        return list(stages.values())

    def decide(self, group: DecisionGroup) -> tuple[Draft, tuple[Expr | int, ...]]:
        """Adds a decision group; returns its variables, or plain numbers if there is only one choice."""
        if len(group.table) == 1:
            return self, tuple(int(v) for v in group.table[0])
        return replace(self, groups=(*self.groups, group)), tuple(var(c) for c in group.columns)

    def choose(self, name: str, values: Sequence[int]) -> tuple[Draft, Expr | int]:
        """Adds a decision between numbers; returns its variable, which has the name of the group."""
        draft, (value,) = self.decide(DecisionGroup.of(name, (name,), [(v,) for v in values]))
        return draft, value

    def choose_row(
        self, name: str, columns: Sequence[str], rows: Sequence[Sequence[int]]
    ) -> tuple[Draft, tuple[Expr | int, ...]]:
        """Adds a decision between rows of numbers; returns its variables, `name.column` for each of the columns."""
        return self.decide(DecisionGroup.of(name, [f"{name}.{column}" for column in columns], rows))

    def require(self, name: str, left: Expr | int, right: int) -> Draft:
        """Adds the limit left <= right."""
        if isinstance(left, int):
            return self
        return replace(self, constraints=(*self.constraints, Constraint(name, left, const(right))))

    def finish(self, *stages: str) -> Draft:
        return replace(self, finished_stages=self.finished_stages | set(stages))

    def variant(self, label: str) -> Draft:
        return replace(self, name=f"{self.name}/{label}" if self.name else label)


class SketchRule(ABC):
    """A derivation of schedules for one kind of stage. The first rule that matches a stage is applied to it."""

    name: str

    @abstractmethod
    def matches(self, draft: Draft, stage: Stage, hardware: Hardware) -> bool:
        """Tells whether the rule can handle `stage`, all of whose consumers are done."""

    @abstractmethod
    def apply(self, draft: Draft, stage: Stage, hardware: Hardware) -> list[Draft]:
        """Lists the variants of a draft; each must mark `stage` as done."""

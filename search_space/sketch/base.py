"""What a sketch rule works on: a draft, and the interface every rule has."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from search_space.hardware import Hardware
from search_space.ir.expr import Expr, const, var
from search_space.ir.stmt import Constraint
from search_space.schedule.builder import Builder, Loop
from search_space.schedule.state import Stage
from search_space.sketch.tables import DecisionGroup


@dataclass(frozen=True)
class Draft(Builder):
    """A sketch in the making: a schedule whose factors may be decision variables, and what is known of these.

    Attributes:
        name: the variants chosen so far.
        groups: decision groups of the variables in it.
        constraints: limits the rules put on the decisions, besides those that lowering finds.
        done: stages no rule need look at any more.
        anchors: tiled stage → loops (stage, leaf) at which its producers may be computed, outermost first.
        last_resort: whether it is worth nothing where there is any other.
        copies: stages that copy an input so that it lies better, and are treated as padding is.
        parts: stage that reduces parts of something longer, which another one then reduces → its loop over a part.
    """

    name: str = ""
    groups: tuple[DecisionGroup, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    done: frozenset[str] = frozenset()
    anchors: dict[str, tuple[tuple[str, Loop], ...]] = field(default_factory=dict)
    last_resort: bool = False
    copies: frozenset[str] = frozenset()
    parts: dict[str, Loop] = field(default_factory=dict)

    def sums_in(self, scope: str, sums: str, output: str) -> tuple[Draft, str]:
        """Keeps the sums of a reduction in another memory until `output` is made of them; and their stage.

        Where the reduction is the output itself, which must be global, they are a stage that it copies.
        """
        return self.cache_write(sums, scope) if sums == output else (self.set_scope(sums, scope), sums)

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

    def choose(self, name: str, values: Sequence[int]) -> tuple[Draft, Expr | int]:
        """Adds a decision between numbers; its variable, which has the name of the group."""
        draft, (value,) = self.decide(DecisionGroup.of(name, (name,), [(v,) for v in values]))
        return draft, value

    def choose_row(
        self, name: str, columns: Sequence[str], rows: Sequence[Sequence[int]]
    ) -> tuple[Draft, tuple[Expr | int, ...]]:
        """Adds a decision between rows of numbers; its variables, `name.column` for each of the columns."""
        return self.decide(DecisionGroup.of(name, [f"{name}.{column}" for column in columns], rows))

    def require(self, name: str, left: Expr | int, right: int) -> Draft:
        """Adds the limit left <= right."""
        if isinstance(left, int):
            return self
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

"""The configuration of a template: it defines knobs and reads them, once for each combination of its choices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from search_space.hardware import Hardware
from search_space.ir.expr import Expr, lift, var
from search_space.ir.stmt import Constraint
from search_space.schedule.state import TAILS
from search_space.sketch.tables import DecisionGroup
from search_space.template.knobs import (
    POLICIES,
    AnnotateKnob,
    Knob,
    OrderKnob,
    Row,
    SplitKnob,
    list_orders,
    loop_kinds,
    split_rows,
)

KnobType = TypeVar("KnobType", Knob, SplitKnob, OrderKnob, AnnotateKnob)


class Config:
    """The knobs of a template on a machine, and the choices of one run of it.

    A run follows the `path`: the i-th choice that the template reads takes the i-th entry, later choices take their
    first value.

    Attributes:
        hardware: the machine.
        choices: (knob, label, index, number of values) of the choices read so far.
        groups: decision groups of the numbers read so far.
        constraints: limits on them.
    """

    def __init__(self, hardware: Hardware, path: Sequence[int] = ()) -> None:
        self.hardware = hardware
        self.choices: list[tuple[str, str, int, int]] = []
        self.groups: list[DecisionGroup] = []
        self.constraints: list[Constraint] = []
        self._path = tuple(path)
        self._knobs: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        """Returns the knob with a name.

        Raises:
            ValueError: no knob with the name is defined.
        """
        if name not in self._knobs:
            known = ", ".join(self._knobs) or "none"
            raise ValueError(f"a knob must be defined before it is read (defined: {known}), but got {name!r}")
        return self._knobs[name]

    def define_split(
        self,
        name: str,
        axis: Any,
        num_outputs: int = 2,
        policy: str = "factors",
        *,
        tail: str = "exact",
        max_factor: int | None = None,
        filter: Callable[[Row], bool] | None = None,
        candidate: Sequence[Sequence[int]] | None = None,
    ) -> SplitKnob:
        """Defines a split of an axis into a nest of loops.

        Args:
            name: name of the knob.
            axis: an axis of a tensor, or its extent.
            num_outputs: loops of the nest.
            policy: sizes of the inner loops: `factors` of the extent, `power2`, or `verbose`, any number.
            tail: treatment of sizes that do not divide, see `Split`.
            max_factor: greatest size of an inner loop.
            filter: test for rows of sizes, the outermost first, that are kept.
            candidate: the inner sizes of each row, in place of a policy.

        Raises:
            ValueError: an unknown policy or tail, no row of sizes or too many, or an extent that is not known.
        """
        extent = axis if isinstance(axis, int) else int(axis.extent)
        if extent < 1:
            raise ValueError(f"`axis` of {name} must have an extent that is known, but got {axis.name}")
        if num_outputs < 1:
            raise ValueError(f"`num_outputs` of {name} must be at least 1, but got num_outputs={num_outputs}")
        if policy not in POLICIES:
            raise ValueError(f"`policy` of {name} must be one of {', '.join(POLICIES)}, but got policy={policy!r}")
        if tail not in TAILS:
            raise ValueError(f"`tail` of {name} must be one of {', '.join(TAILS)}, but got tail={tail!r}")
        if candidate is None:
            rows = split_rows(name, extent, num_outputs, policy, tail, max_factor, filter)
        else:
            rows = [tuple(int(size) for size in row) for row in candidate]
            wrong = [r for r in rows if len(r) != num_outputs - 1 or any(size < 1 for size in r)]
            if wrong or not rows:
                got = wrong[0] if wrong else "none"
                raise ValueError(f"`candidate` of {name} must be rows of {num_outputs - 1} inner sizes, but got {got}")
        return self._define(SplitKnob(self, name, extent, rows, tail))

    def define_reorder(
        self, name: str, axes: Sequence[Any], policy: str = "all", *, candidate: Sequence[Sequence[Any]] | None = None
    ) -> OrderKnob:
        """Defines the order of loops: every one (`all`), the given one (`identity`), or one of the candidates.

        Raises:
            ValueError: an unknown policy, or a candidate that is no order of the loops.
        """
        return self._define(OrderKnob(self, name, list_orders(name, axes, policy, candidate)))

    def define_annotate(
        self, name: str, axes: Sequence[Any], policy: str, *, candidate: Sequence[Sequence[str]] | None = None
    ) -> AnnotateKnob:
        """Defines the kinds of loops, outermost first.

        Args:
            name: name of the knob.
            axes: the loops.
            policy: `none`, `unroll` (all), `vec` (the last); or a choice: `try_unroll` (any number of the innermost
                ones), `try_vec` (the last or not), `try_unroll_vec` (both).
            candidate: kinds of the loops for each choice, "" for a plain loop, in place of a policy.

        Raises:
            ValueError: an unknown policy or kind.
        """
        if candidate is None:
            return self._define(AnnotateKnob(self, name, loop_kinds(name, len(axes), policy)))
        known = ("", "unroll", "vectorize", "parallel")
        for row in candidate:
            if len(row) != len(axes) or any(kind not in known for kind in row):
                raise ValueError(
                    f"`candidate` of {name} must be rows of {len(axes)} kinds among unroll, vectorize, parallel "
                    f"and '', but got {list(row)}"
                )
        return self._define(AnnotateKnob(self, name, [tuple(row) for row in candidate]))

    def define_knob(self, name: str, candidate: Sequence[Any]) -> Knob:
        """Defines a value from a list: `cfg[name].val` is a choice, `cfg[name].var` a number in the schedule.

        Raises:
            ValueError: no candidate.
        """
        if not len(candidate):
            raise ValueError(f"`candidate` of {name} must have at least one value, but got none")
        return self._define(Knob(self, name, candidate))

    def require(self, name: str, left: Expr | int, right: Expr | int) -> None:
        """Adds the limit left <= right on candidates; reports show it as `name`."""
        self.constraints.append(Constraint(name, lift(left), lift(right)))

    # ------------------------------------------------------------------ for the knobs
    def choose(self, name: str, labels: Sequence[str]) -> int:
        """Returns the index of a choice's value in this run.

        Raises:
            ValueError: the knob was read as a number before.
        """
        for known, _, index, _ in self.choices:
            if known == name:
                return index
        if any(group.name == name for group in self.groups):
            raise ValueError(f"a knob must be read as a choice first (`val`), then as a number, but got {name!r}")
        index = self._path[len(self.choices)] if len(self.choices) < len(self._path) else 0
        self.choices.append((name, labels[index], index, len(labels)))
        return index

    def is_choice(self, name: str) -> bool:
        """Tells whether the knob was read as a choice."""
        return any(known == name for known, _, _, _ in self.choices)

    def decide(self, group: DecisionGroup) -> tuple[Expr | int, ...]:
        """Returns the variables of a decision group, which is added once; a column with only one value is a number."""
        varies = [bool((column != column[0]).any()) for column in group.table.T]
        if any(varies) and all(known.name != group.name for known in self.groups):
            columns = tuple(column for column, varied in zip(group.columns, varies, strict=True) if varied)
            self.groups.append(DecisionGroup(group.name, columns, group.table[:, varies]))
        return tuple(
            var(column) if varied else int(value)
            for column, varied, value in zip(group.columns, varies, group.table[0], strict=True)
        )

    def _define(self, knob: KnobType) -> KnobType:
        if knob.name in self._knobs:
            raise ValueError(f"a knob must have a name of its own, but got {knob.name!r} twice")
        self._knobs[knob.name] = knob
        return knob

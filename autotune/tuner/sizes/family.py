"""Operators of the library with one argument open: what `tune_for_sizes` takes in place of a function of the size."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from autotune.tuner.sizes.opening import Define
from search_space import te
from search_space.ir.expr import Expr
from search_space.operators import find
from search_space.operators.checks import nearest
from search_space.workloads import Workload


@dataclass(frozen=True)
class Family:
    """The workloads of an operator that differ in one argument.

    Records are those of the named workloads, which other runs have, too.

    Attributes:
        operator: of `search_space.workloads`.
        argument: a size that is a number, such as `batch` of `dense`.
        others: all other arguments that are not left at their defaults.

    Raises:
        ValueError: an unknown operator or argument, or one that is given twice.
    """

    operator: str
    argument: str
    others: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        known = find(self.operator).parameters
        if self.argument not in known:
            hint = nearest(self.argument, known)
            raise ValueError(
                f"`argument` must be one of {', '.join(known)} of {self.operator}, but got {self.argument!r}{hint}"
            )
        if self.argument in self.others:
            raise ValueError(
                f"`{self.argument}` must not be given, as it is open, but got {self.others[self.argument]!r}"
            )

    def workload(self, n: int) -> Workload:
        """The workload of a size.

        Raises:
            ValueError: arguments that do not go together.
        """
        return Workload(self.operator, {**self.others, self.argument: n})

    def __call__(self, n: int | Expr) -> list[te.Tensor]:
        """The plainest definition at a size, or with that open."""
        if not isinstance(n, Expr):
            workload = self.workload(n)
            return workload.tensors(workload.algorithms[0])
        low = self.workload(n.args[1])
        return find(self.operator).definitions[low.algorithms[0]]({**low.args, self.argument: n})


def workload_at(define: Define, n: int) -> Workload:
    """What records call the definition at a size, known in every process."""
    return define.workload(n) if isinstance(define, Family) else Workload.of(define(n)).portable

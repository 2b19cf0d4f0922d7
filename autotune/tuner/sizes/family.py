"""Operators of the library with one argument open, for `tune_for_sizes` in place of a function of the size."""

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
    """Workloads of an operator that differ in one argument.

    Records have the names of these workloads, which other runs use, too.

    Attributes:
        operator: name of an operator of `search_space.workloads`.
        argument: name of a size that is a number, such as `batch` of `dense`.
        others: all other arguments that differ from their defaults.

    Raises:
        ValueError: an operator or argument is unknown, or an argument is given twice.
    """

    operator: str
    argument: str
    others: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        parameters = find(self.operator).parameters
        if self.argument not in parameters:
            hint = nearest(self.argument, parameters)
            raise ValueError(
                f"`argument` must be one of {', '.join(parameters)} of {self.operator}, but got {self.argument!r}{hint}"
            )
        if self.argument in self.others:
            raise ValueError(
                f"`{self.argument}` must not be given, as it is open, but got {self.others[self.argument]!r}"
            )

    def workload(self, n: int) -> Workload:
        """Makes the workload of a size.

        Raises:
            ValueError: the arguments exclude each other.
        """
        return Workload(self.operator, {**self.others, self.argument: n})

    def __call__(self, n: int | Expr) -> list[te.Tensor]:
        """Defines the computation of the first algorithm at a size, or with the size open."""
        if not isinstance(n, Expr):
            workload = self.workload(n)
            return workload.tensors(workload.algorithms[0])
        low = self.workload(n.args[1])
        return find(self.operator).definitions[low.algorithms[0]]({**low.args, self.argument: n})


def workload_at(define: Define, n: int) -> Workload:
    """Returns the workload that records name for the definition at a size, the same in every process."""
    return define.workload(n) if isinstance(define, Family) else Workload.of(define(n)).portable

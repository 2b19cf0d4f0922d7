"""The search interface: candidates by ask and tell, with any number of results outstanding."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from search_space.operators.checks import nearest

if TYPE_CHECKING:
    from search_space.decisions import Space

Options = TypeVar("Options")
Bounds = Mapping[str, tuple[float, float]]
"""Smallest and largest value by option."""
Scorer = Callable[[int, NDArray[np.int32]], NDArray[np.float64]]
"""Function (sketch, choices (n, groups)) -> (n,), higher is better: the estimate before measuring."""


@dataclass(frozen=True)
class Candidate:
    """Point of a search space: a sketch, and an index into the table of each of its decision groups."""

    sketch: int
    choices: tuple[int, ...]


class NoLegalSchedule(ValueError):
    """A search space without a candidate that keeps every limit.

    Attributes:
        candidate_count: number of candidates drawn.
        violations: limit -> number of candidates that broke it; one candidate may break several.
        refusals: sketches without candidates -> reason.
        task: name of the task, if there are several.
    """

    task = ""

    def __init__(
        self,
        workload: str,
        candidate_count: int,
        violations: Mapping[str, int],
        refusals: Mapping[str, str] | None = None,
    ) -> None:
        self.candidate_count = candidate_count
        self.violations, self.refusals = dict(violations), dict(refusals or {})
        broken = sorted(self.violations.items(), key=lambda item: -item[1])
        reason = ", ".join(f"{name} failed for {count}" for name, count in broken)
        if not reason and self.refusals:
            name, reason = next(iter(self.refusals.items()))
            reason = f"none of its {len(self.refusals)} sketches can be applied, such as {name}: {reason}"
        reason = reason or "there is no sketch for it on this target"
        super().__init__(
            f"a workload must have at least one legal schedule, but got none among {candidate_count} candidates "
            f"of {workload}: {reason}"
        )


class SearchStrategy(ABC):
    """Strategy that proposes candidates. Every random draw comes from its generator.

    Args:
        space: space to search.
        scorer: estimate before measuring.
        rng: source of all draws.
        options: fields of the class's `Options`, a frozen dataclass. It may have `BOUNDS`, option -> smallest and
            largest value, besides those of its base classes.
    """

    Options: ClassVar[type[Any]]

    def __init__(self, space: Space, scorer: Scorer, rng: np.random.Generator, **options: Any) -> None:
        self.options = make_options(self.Options, options, type(self).__name__.lower())
        self.space, self.scorer, self.rng = space, scorer, rng

    @abstractmethod
    def ask(self, n: int) -> list[Candidate]:
        """Proposes candidates, none of which was proposed or measured before; results may be outstanding.

        Returns:
            A list of at most `n`; fewer, or none, if the space has no more.

        Raises:
            NoLegalSchedule: the space has no legal candidate at all.
        """

    def ask_greedy(self, n: int) -> list[Candidate]:
        """Proposes candidates like `ask`, without random exploration; the caller adds random candidates itself."""
        return self.ask(n)

    @abstractmethod
    def tell(self, candidates: Sequence[Candidate], seconds: NDArray[np.float64]) -> None:
        """Processes measurements of any proposed candidates, or of candidates from elsewhere.

        Args:
            candidates: candidates that were measured.
            seconds: their latencies `(candidates,)`; NaN for a failure.
        """


MOST_COUNT = 1 << 20
"""Largest number of candidates, chains or rounds in an option of a strategy; arrays have a row each."""


def make_options(kind: type[Options], values: Mapping[str, Any], owner: str) -> Options:
    """Makes the options of a strategy from keywords.

    Raises:
        ValueError: a key is unknown (names the nearest), or a value has another type or is out of the `BOUNDS` of
            `kind`.
    """
    by_name = {item.name: item for item in fields(kind)}  # type: ignore[arg-type]
    for name, value in values.items():
        if name not in by_name:
            hint = nearest(name, by_name)
            options = ", ".join(by_name) or "none"
            raise ValueError(f"`{owner}` must have options among {options}, but got {name!r}{hint}")
        _check_type(owner, name, value, type(by_name[name].default))
        _check_bounds(owner, name, value, kind)
    return kind(**values)


def check_seconds(candidates: Sequence[Candidate], seconds: NDArray[np.float64]) -> NDArray[np.float64]:
    """Converts `seconds` to an array.

    Raises:
        ValueError: `seconds` has not one entry per candidate.
    """
    seconds = np.asarray(seconds, np.float64)
    if seconds.shape != (len(candidates),):
        raise ValueError(
            f"`seconds` must have one entry a candidate, but got shape={seconds.shape}, candidates={len(candidates)}"
        )
    return seconds


def _check_type(owner: str, name: str, value: object, kind: type) -> None:
    allowed = (int, float) if kind is float else (kind,)
    if not isinstance(value, allowed) or (isinstance(value, bool) and kind is not bool):
        raise ValueError(f"`{name}` of {owner} must be of type {kind.__name__}, but got {name}={value!r}")


def _check_bounds(owner: str, name: str, value: Any, kind: type) -> None:
    found = (vars(part).get("BOUNDS", {}).get(name) for part in kind.__mro__)
    least, most = next((bounds for bounds in found if bounds is not None), (-math.inf, math.inf))
    if isinstance(value, int) and value > MOST_COUNT and math.isinf(most) and not math.isinf(least):
        most = MOST_COUNT
    if not isinstance(value, str) and not least <= value <= most:
        rule = f"at least {least:.15g}" if math.isinf(most) else f"from {least:.15g} to {most:.15g}"
        raise ValueError(f"`{name}` of {owner} must be {rule}, but got {name}={value}")

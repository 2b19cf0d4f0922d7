"""Values over which a search of hyper-parameters may vary an option of a model."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`, both included; integers if both ends are.

    Attributes:
        low, high: ends of the range.
        log: whether the search is uniform in the logarithm.
    """

    low: float
    high: float
    log: bool = False

    @property
    def is_integer(self) -> bool:
        """Tells whether the option is an integer."""
        return isinstance(self.low, int) and isinstance(self.high, int)


@dataclass(frozen=True)
class Choice:
    """One of some values."""

    values: tuple[str | int | float | bool, ...]


Tunable = Range | Choice

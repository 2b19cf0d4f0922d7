"""Over what a search of hyper-parameters may vary an option of a model."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`, both included; whole ones where both ends are.

    Attributes:
        low, high: ends.
        log: whether it is drawn by its logarithm.
    """

    low: float
    high: float
    log: bool = False

    @property
    def whole(self) -> bool:
        """Whether the option is an integer."""
        return isinstance(self.low, int) and isinstance(self.high, int)


@dataclass(frozen=True)
class Choice:
    """One of some values."""

    values: tuple[str | int | float | bool, ...]


Tunable = Range | Choice

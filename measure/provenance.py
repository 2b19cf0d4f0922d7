"""Provenance of a record: the origin of its trial, and the time of its result."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any

from measure.errors import OutcomeError
from measure.outcome import MOST_TEXT

_LATEST = 1e11  # Unix seconds; no calendar goes further


class Kind(StrEnum):
    """Reason why a trial was measured."""

    search = "search"
    """A strategy proposed it."""
    final = "final"
    """One of the fastest candidates of a search, timed again at its end."""
    retimed = "retimed"
    """A known candidate, timed again in interleaved rounds."""
    other = ""
    """Unknown, or explained by `note`."""


@dataclass(frozen=True)
class Provenance:
    """Origin of a trial, and the time of its result.

    Attributes:
        kind: reason why it was measured.
        strategy: name of the search strategy.
        round: round of the search, from 0; -1: unknown.
        score: score that the search predicted for the trial: higher is better, within a round; NaN: unknown.
        choices: index of the candidate's value in each decision group of its sketch; None: unknown.
        transferred: whether the candidate was chosen by a model of other tasks, see `costmodel.transfer`.
        sketch: name of the sketch that the trace came from.
        order: position of the trial in its task's run, from 0.
        time: Unix seconds at which the result arrived.
        note: free text.

    Raises:
        OutcomeError: a field is out of its range.
    """

    kind: Kind = Kind.other
    strategy: str = ""
    round: int = -1
    score: float = math.nan
    choices: tuple[int, ...] | None = None
    transferred: bool = False
    sketch: str = ""
    order: int = 0
    time: float = 0.0
    note: str = ""

    def __post_init__(self) -> None:
        if self.order < 0:
            raise OutcomeError(f"`order` must be at least 0, but got order={self.order}")
        if not 0 <= self.time < _LATEST:
            raise OutcomeError(f"`time` must be Unix seconds, but got time={self.time}")
        for name in ("strategy", "note"):
            check_length(name, getattr(self, name))
        for choice in self.choices or ():
            if not 0 <= choice < 1 << 31:
                raise OutcomeError(f"`choices` must be indices into decision groups, but got choice={choice}")

    def again(self, kind: Kind, time: float) -> Provenance:
        """Makes the provenance of a record that times the same candidate again."""
        return Provenance(kind, sketch=self.sketch, order=self.order, time=time)

    def to_json(self) -> dict[str, Any]:
        """Returns the plain form, without fields that have their default or NaN."""
        return {
            item.name: value
            for item in fields(self)
            if (value := getattr(self, item.name)) != item.default and value == value
        }


def check_length(name: str, text: str) -> None:
    """Refuses a text that is too long for a record.

    Raises:
        OutcomeError: the text is too long; names it as `name`.
    """
    if len(text) > MOST_TEXT:
        raise OutcomeError(f"`{name}` must have at most {MOST_TEXT} characters, but got {len(text)}")

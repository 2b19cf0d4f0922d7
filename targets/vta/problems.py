"""Problems of a stream, and the exceptions that report them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """One broken rule.

    Attributes:
        index: number of the instruction; -1 for the stream as a whole.
        message: the rule and the value.
        endless: whether all that is wrong is that a module waits for ever.
    """

    index: int
    message: str
    endless: bool = False

    def __str__(self) -> str:
        """Formats the message, with the instruction in front."""
        return f"instruction {self.index}: {self.message}" if self.index >= 0 else self.message


class IllegalStream(ValueError):
    """A stream that breaks rules; `problems` has all of them."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = list(problems)
        shown = [str(problem) for problem in problems[:10]]
        more = [f"and {len(problems) - 10} more"] if len(problems) > 10 else []
        super().__init__("; ".join(shown + more))


class Deadlock(IllegalStream):
    """A stream whose modules wait for tokens that never come."""


def refusal(problems: Sequence[Problem]) -> IllegalStream:
    """Makes the exception for problems: a `Deadlock` if all of them are endless waits."""
    return (Deadlock if all(problem.endless for problem in problems) else IllegalStream)(problems)

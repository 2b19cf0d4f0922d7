"""The interface of a space to searches: decision groups, and the legality of choices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from search_space.sketch.tables import DecisionGroup

Choices = NDArray[np.int32]  # (candidates, groups)
BLOCK = 1 << 16
"""Candidates that are listed at a time."""


class Decisions(Protocol):
    """A part of a space with one set of decisions; a candidate is a row of indices into their tables.

    Attributes:
        name: name in reports.
        algorithm: name of the algorithm that its candidates implement.
        groups: decision groups, each with a table of its choices.
        size: candidates, legal or not.
        columns: names of the decision variables, in the order of `expand`'s rows.
    """

    @property
    def name(self) -> str: ...

    @property
    def algorithm(self) -> str: ...

    @property
    def groups(self) -> tuple[DecisionGroup, ...]: ...

    @property
    def size(self) -> int: ...

    @property
    def columns(self) -> tuple[str, ...]: ...

    def expand(self, choices: Choices) -> NDArray[np.float64]:
        """Computes the values of the decision variables: choices (n, groups) → (columns, n)."""
        ...

    def legal(self, choices: Choices) -> NDArray[np.bool_]:
        """Tells for each candidate whether it satisfies every limit: (n, groups) → (n,)."""
        ...

    def violations(self, choices: Choices) -> dict[str, int]:
        """Counts the candidates that violate each limit; a limit without violations is left out."""
        ...

    def workspace(self, choices: Choices, threads: int) -> NDArray[np.float64]:
        """Computes the bytes that each candidate needs besides inputs and output: (n, groups) → (n,)."""
        ...


class Space(Protocol):
    """A search space, as strategies see it.

    Attributes:
        sketches: its parts.
        workload: workload to schedule, with a `key`, or its text.
        cores: number of cores of the machine.
        refusals: parts without a candidate, and why.
    """

    @property
    def sketches(self) -> Sequence[Decisions]: ...

    @property
    def workload(self) -> Any: ...

    @property
    def cores(self) -> int: ...

    @property
    def refusals(self) -> Mapping[str, str]: ...


def every_choice(part: Decisions) -> Iterator[Choices]:
    """Lists all candidates, legal or not, in the order of the tables, in blocks: each (n, groups)."""
    lengths = tuple(len(group.table) for group in part.groups)
    for first in range(0, part.size, BLOCK):
        places = np.arange(first, min(first + BLOCK, part.size))
        rows = np.stack(np.unravel_index(places, lengths), axis=1) if lengths else np.empty((1, 0))
        yield rows.astype(np.int32)

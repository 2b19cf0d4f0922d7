"""How a workload of a network is computed."""

from __future__ import annotations

from dataclasses import dataclass

from search_space.schedule.trace import Trace


@dataclass(frozen=True)
class Schedule:
    """How a workload is computed: the algorithm and the concrete trace."""

    algorithm: str
    trace: Trace

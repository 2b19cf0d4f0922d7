"""How a workload of a network is computed, and the kernel that is built of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from search_space.ir.stmt import with_pitches
from search_space.schedule.trace import Trace
from search_space.space import program_of
from search_space.workloads import Workload
from targets.base import Module, Target


@dataclass(frozen=True)
class Schedule:
    """How a workload is computed: the algorithm and the concrete trace."""

    algorithm: str
    trace: Trace


@dataclass(frozen=True)
class Kernel:
    """All that a kernel is built of, besides the target.

    Attributes:
        workload, schedule: what is computed, and how.
        pitches: strides of those of its arrays that are not dense, by name.
        name: of its symbol.
    """

    workload: Workload
    schedule: Schedule
    pitches: Mapping[str, tuple[int, ...]]
    name: str

    def to_json(self) -> dict[str, Any]:
        """The same as plain data, which `from_json` reads."""
        return {
            "workload": self.workload.to_json(),
            "algorithm": self.schedule.algorithm,
            "trace": self.schedule.trace.to_json(),
            "pitches": {name: list(strides) for name, strides in self.pitches.items()},
            "name": self.name,
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Kernel:
        """The kernel that `to_json` wrote."""
        return Kernel(
            Workload.from_json(data["workload"]),
            Schedule(data["algorithm"], Trace.from_json(data["trace"])),
            {name: tuple(strides) for name, strides in data["pitches"].items()},
            data["name"],
        )


def module_of(kernel: Kernel, target: Target) -> Module:
    """Builds a kernel.

    Raises:
        BuildError: it cannot be built.
        ScheduleError: its schedule is not one of the workload.
    """
    program = program_of(kernel.workload, kernel.schedule.algorithm, kernel.schedule.trace)
    return target.build(with_pitches(program, kernel.pitches), kernel.name)

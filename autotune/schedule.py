"""Schedules of workloads, and the kernels built of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from search_space import te_json
from search_space.ir.stmt import LoopProgram, with_pitches
from search_space.lower import cleanup, lower
from search_space.schedule.state import initial_state
from search_space.schedule.trace import Trace
from search_space.space import make_program
from search_space.workloads import Workload
from targets.base import Module, Target


@dataclass(frozen=True)
class Schedule:
    """Schedule of a workload: the algorithm and the concrete trace."""

    algorithm: str
    trace: Trace


@dataclass(frozen=True)
class KernelSpec:
    """Complete description of a kernel, without the target.

    Attributes:
        workload, schedule: the computation and its schedule.
        pitches: strides of the arrays that are not dense, by name.
        name: name of the kernel's symbol.
    """

    workload: Workload
    schedule: Schedule
    pitches: Mapping[str, tuple[int, ...]]
    name: str

    @property
    def key(self) -> object:
        """Value that is equal for kernels of the same code, whatever their names."""
        schedule = self.schedule
        return self.workload.key, schedule.algorithm, schedule.trace.key, tuple(sorted(self.pitches.items()))

    @property
    def program(self) -> LoopProgram:
        """Loops of the kernel.

        Raises:
            ScheduleError: the schedule does not fit the workload.
        """
        program = make_program(self.workload, self.schedule.algorithm, self.schedule.trace)
        return with_pitches(program, self.pitches)

    def to_json(self) -> dict[str, Any]:
        """Returns the kernel as plain data, which `kernel_from_json` reads."""
        return {
            "workload": self.workload.to_json(),
            "algorithm": self.schedule.algorithm,
            "trace": self.schedule.trace.to_json(),
            "pitches": {name: list(strides) for name, strides in self.pitches.items()},
            "name": self.name,
        }


@dataclass(frozen=True)
class OpenKernel:
    """Complete description of a kernel of open sizes, without the target.

    Attributes:
        definition: the computation with open sizes, in the format of `te_json`.
        trace: trace of its schedule.
        pitches: strides of the arrays that are not dense, by name: extents of `te_json`.
        name: name of the kernel's symbol.
    """

    definition: Mapping[str, Any]
    trace: Trace
    pitches: Mapping[str, tuple[Any, ...]]
    name: str

    @property
    def key(self) -> object:
        """Value that tells kernels apart; the name of a kernel that has one contains it."""
        return self.name or te_json.text(self.to_json())

    @property
    def program(self) -> LoopProgram:
        """Loops of the kernel.

        Raises:
            ScheduleError: the trace does not fit the definition.
        """
        *inputs, output = te_json.from_json(self.definition, open_sizes=True)
        state = initial_state([output], inputs=inputs)
        pitches = {name: tuple(map(te_json.read_extent, strides)) for name, strides in self.pitches.items()}
        return with_pitches(cleanup(lower(self.trace.apply(state))), pitches)

    def to_json(self) -> dict[str, Any]:
        """Returns the kernel as plain data, which `kernel_from_json` reads."""
        return {
            "definition": self.definition,
            "trace": self.trace.to_json(),
            "pitches": {name: list(strides) for name, strides in self.pitches.items()},
            "name": self.name,
        }


def kernel_from_json(data: Mapping[str, Any]) -> KernelSpec | OpenKernel:
    """Reads the kernel that `to_json` wrote."""
    trace = Trace.from_json(data["trace"])
    pitches = {name: tuple(strides) for name, strides in data["pitches"].items()}
    if "definition" in data:
        return OpenKernel(data["definition"], trace, pitches, data["name"])
    return KernelSpec(Workload.from_json(data["workload"]), Schedule(data["algorithm"], trace), pitches, data["name"])


def build_module(kernel: KernelSpec | OpenKernel, target: Target) -> Module:
    """Builds a kernel.

    Raises:
        BuildError: it cannot be built.
        ScheduleError: the schedule does not fit the workload.
    """
    return target.build(kernel.program, kernel.name)

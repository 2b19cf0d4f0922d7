"""Hand-written schedules: their loops, and a callable of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from search_space.ir.stmt import LoopProgram
from search_space.lower import cleanup
from search_space.lower import lower as lower_state
from search_space.schedule.facade import Schedule
from search_space.te import Tensor
from targets import registry
from targets.base import Kernel


def lower(schedule: Schedule, tensors: Sequence[Tensor], simple_mode: bool = True) -> LoopProgram:
    """The loops of a schedule, which print as text.

    Args:
        schedule: made by `te.create_schedule`.
        tensors: inputs, then outputs, in the order in which the kernel shall take them.
        simple_mode: False leaves loops of one iteration and dead conditions in.

    Raises:
        ScheduleError: a region that cannot be inferred.
        ValueError: `tensors` are not those that the schedule reads and makes.
    """
    program = lower_state(schedule.state)
    wanted = [schedule.name_of(tensor) for tensor in tensors]
    sources = {prologue.outputs[0]: prologue.params[0].name for prologue in program.prologues}
    taken = [sources.get(parameter.name, parameter.name) for parameter in program.params]
    if sorted(wanted) != sorted(taken):
        raise ValueError(f"`tensors` must be {', '.join(taken)}, but got {', '.join(wanted)}")
    if wanted != taken:
        order = sorted(range(len(taken)), key=lambda place: wanted.index(taken[place]))
        program = LoopProgram(
            program.name,
            tuple(program.params[place] for place in order),
            program.body,
            program.outputs,
            program.constraints,
            program.prologues,
        )
    return cleanup(program) if simple_mode else program


def build(schedule: Schedule, tensors: Sequence[Tensor], target: str = "cpu", name: str = "kernel") -> Kernel:
    """A callable of a schedule: it takes the arrays of `tensors` and writes into the outputs.

    Args:
        schedule: made by `te.create_schedule`.
        tensors: inputs, then outputs.
        target: a name of `targets.registry`.
        name: of the kernel.

    Raises:
        BuildError: the target has no code for the program.
    """
    on: Any = registry.get(target)
    kernel: Kernel = on.load(on.build(lower(schedule, tensors), name))
    return kernel

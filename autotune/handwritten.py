"""Hand-written schedules: lowering them to loops, and building callables of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from search_space import te
from search_space.ir.stmt import Buffer, LoopProgram
from search_space.lower import cleanup
from search_space.lower import lower as lower_state
from search_space.schedule.facade import Schedule
from search_space.te import Tensor
from targets import registry
from targets.base import Kernel
from targets.dispatch import Dispatch


def lower(schedule: Schedule, tensors: Sequence[Tensor], simple_mode: bool = True) -> LoopProgram:
    """Lowers a schedule to loops, which print as text.

    Args:
        schedule: schedule made by `te.create_schedule`.
        tensors: inputs, then outputs, in the order of the kernel's arguments.
        simple_mode: False leaves loops of one iteration and dead conditions in.

    Raises:
        ScheduleError: a region cannot be inferred.
        ValueError: `tensors` are not the inputs and outputs of the schedule.
    """
    program = lower_state(schedule.state)
    wanted = [schedule.stage_name(tensor) for tensor in tensors]
    taken = [*(buffer.name for buffer in program.inputs), *program.outputs]
    if sorted(wanted) != sorted(taken):
        raise ValueError(f"`tensors` must be {', '.join(taken)}, but got {', '.join(wanted)}")
    if wanted != taken:
        program = _in_order(program, wanted)
    return cleanup(program) if simple_mode else program


def _in_order(program: LoopProgram, names: Sequence[str]) -> LoopProgram:
    """Sorts the parameters and prologues of a program by the order of `names`."""
    first = {p.outputs[0]: min(names.index(source.name) for source in p.inputs) for p in program.prologues}

    def order(buffer: Buffer) -> int:
        return first[buffer.name] if buffer.name in first else names.index(buffer.name)

    return replace(
        program,
        params=tuple(sorted(program.params, key=order)),
        prologues=tuple(sorted(program.prologues, key=lambda p: first[p.outputs[0]])),
        sources=tuple(sorted(program.sources, key=order)),
    )


def build(schedule: Schedule, tensors: Sequence[Tensor], target: str = "cpu", name: str = "kernel") -> Kernel:
    """Builds a callable of a schedule: it takes the arrays of `tensors` and writes into the outputs.

    Open sizes (`te.var`) are taken from the arrays of a call; only target `cpu` supports them.

    Args:
        schedule: schedule made by `te.create_schedule`.
        tensors: inputs, then outputs.
        target: a name of `targets.registry`.
        name: name of the kernel.

    Raises:
        BuildError: the target has no code for the program.
        VerifyError: sizes are open, and the target takes fixed sizes alone.
    """
    on: Any = registry.get(target)
    kernel: Kernel = on.load(on.build(lower(schedule, tensors), name))
    return kernel


def build_for_sizes(
    make: Callable[[Any], tuple[Schedule, Sequence[Tensor]]],
    ranges: Sequence[tuple[int, int]],
    target: str = "cpu",
    name: str = "kernel",
    size: str = "n",
) -> Dispatch:
    """Builds a callable of schedules for ranges of one size: a call runs the one in whose range its arrays are.

    Args:
        make: function size → a schedule, and its inputs and outputs, as `build` takes them. The size is a number if a
            range has only one, so that nothing is open, and otherwise a variable that knows its range.
        ranges: smallest and largest value, both inclusive; where ranges overlap, the first is taken.
        target: target of the kernels, as for `build`.
        name: name of the kernels, as for `build`.
        size: name of the size.

    Raises:
        BuildError: the target has no code for a program.
        ValueError: a range is empty, or the schedules differ in their inputs and outputs.
    """
    kernels = []
    for low, high in ranges:
        schedule, tensors = make(low if low == high else te.var(size, low, high))
        kernels.append(build(schedule, tensors, target, name))
    return Dispatch(kernels)

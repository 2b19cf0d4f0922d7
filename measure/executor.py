"""The executor of real kernels: trace to loop program to machine code, then a kernel bound to random inputs.

Only workers import this module: it pulls in the schedules and the targets.
"""

from __future__ import annotations

import numpy as np

from measure.errors import ErrorClass, TrialFailure
from measure.interface import Task
from measure.pool import Trial
from search_space.schedule.errors import ScheduleError
from search_space.schedule.trace import Trace
from search_space.space import make_program
from search_space.workloads import Workload
from targets import registry
from targets.base import Bound, BuildError, Module, RunError
from targets.fences import copy_between_fences


class KernelExecutor:
    """An executor that builds and runs trials through `search_space` and `targets`."""

    def build(self, trial: Trial) -> bytes:
        """Replays the trace, lowers it and compiles the program."""
        workload = _read_workload(trial)
        try:
            program = make_program(workload, trial.algorithm, Trace.from_json([dict(step) for step in trial.trace]))
        except ScheduleError as error:
            raise TrialFailure(ErrorClass.instantiation, str(error)) from error
        try:
            return registry.get(trial.target).build(program).to_bytes()
        except BuildError as error:
            raise TrialFailure(ErrorClass.compile, str(error)) from error

    def prepare(self, trial: Trial, reference: bool = True) -> Task:
        """Makes two sets of random inputs from the trial's seed and, if wanted, the reference outputs of both."""
        workload = _read_workload(trial)
        inputs = [
            copy_between_fences(array) if spec.constant else array  # prologues read constants in place
            for array, spec in zip(workload.make_inputs(trial.seed), workload.inputs, strict=True)
        ]
        others = workload.other_inputs(inputs, trial.seed)
        with np.errstate(all="ignore"):
            expected, others_expected = (
                workload.reference(*arrays) if reference else None for arrays in (inputs, others)
            )
        rtol, atol = workload.get_tolerance(trial.algorithm)
        constant_bytes = sum(array.nbytes for array, spec in zip(inputs, workload.inputs, strict=True) if spec.constant)
        cache_bytes = registry.get(trial.target).cache_bytes
        return Task(inputs, expected, rtol, atol, constant_bytes, cache_bytes, others, others_expected)

    def bind(self, trial: Trial, module: bytes, task: Task, copies: int) -> Bound:
        """Loads the machine code and packs the constants, all of it between fences.

        Refuses a kernel that its target considers not worth timing, once another candidate of the task has been timed.
        """
        target, built = registry.get(trial.target), Module.from_bytes(module)
        refusal = "" if trial.best_seconds is None else target.refusal(built)
        if refusal:
            raise TrialFailure(ErrorClass.compile, refusal)
        try:
            return target.load(built).bind(task.inputs, copies, fenced=True)
        except RunError as error:
            if error.fatal:
                raise
            short = isinstance(error, MemoryError)
            raise TrialFailure(ErrorClass.out_of_memory if short else ErrorClass.crash, str(error)) from error


def _read_workload(trial: Trial) -> Workload:
    try:
        return Workload.from_json(dict(trial.workload))
    except (ValueError, TypeError) as error:
        raise TrialFailure(ErrorClass.instantiation, str(error)) from error

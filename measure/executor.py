"""The executor of real kernels: trace to loop program to machine code, then a kernel bound to random inputs.

Only workers import this module: it pulls in the schedules and the targets.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from measure.errors import ErrorClass, TrialFailure
from measure.inputs import POSITIVE, SIGNED, random_array
from measure.interface import Bound, Task
from measure.pool import Trial
from search_space.ir.interp import numpy_dtype
from search_space.schedule.errors import ScheduleError
from search_space.schedule.trace import Trace
from search_space.space import program_of
from search_space.workloads import Workload
from targets import registry
from targets.base import BuildError, Module, RunError


class KernelExecutor:
    """Builds and runs trials through `search_space` and `targets`."""

    def build(self, trial: Trial) -> bytes:
        """Replays the trace, lowers it and compiles the program."""
        try:
            workload = Workload.from_json(dict(trial.workload))
            program = program_of(workload, trial.algorithm, Trace.from_json([dict(step) for step in trial.trace]))
        except ScheduleError as error:
            raise TrialFailure(ErrorClass.instantiation, str(error)) from error
        try:
            return registry.get(trial.target).build(program).to_bytes()
        except BuildError as error:
            raise TrialFailure(ErrorClass.compile, str(error)) from error

    def prepare(self, trial: Trial) -> Task:
        """Random inputs of the trial's seed, and the reference's answer to them.

        Workloads that are not defined on negative numbers (logarithm, root) get positive inputs.
        """
        workload = Workload.from_json(dict(trial.workload))
        inputs, expected = _answered(workload, trial.seed)
        rtol, atol = workload.tolerance
        constant_bytes = sum(array.nbytes for array, spec in zip(inputs, workload.inputs, strict=True) if spec.constant)
        return Task(inputs, expected, rtol, atol, constant_bytes, registry.get(trial.target).hardware.l3_bytes)

    def bind(self, trial: Trial, module: bytes, task: Task, copies: int) -> Bound:
        """Loads the machine code and packs the constants."""
        try:
            return registry.get(trial.target).load(Module.from_bytes(module)).bind(task.inputs, copies)
        except RunError as error:
            raise TrialFailure(ErrorClass.crash, str(error)) from error


def _answered(workload: Workload, seed: int) -> tuple[list[NDArray[Any]], NDArray[Any]]:
    for bounds in (SIGNED, POSITIVE):
        rng = np.random.default_rng(seed)
        inputs = [random_array(spec.shape, numpy_dtype(spec.dtype), rng, bounds) for spec in workload.inputs]
        with np.errstate(invalid="ignore", divide="ignore"):
            expected = np.asarray(workload.reference(*inputs))
        if not np.isnan(expected).any():
            break
    return inputs, expected

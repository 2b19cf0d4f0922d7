"""Lower bound on a network's time on a machine, for any schedules: products at peak, weights from memory."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from autotune.compiler.selection import Limits, extra_bytes
from autotune.tuner.result import compute_peak
from autotune.tuner.task import Task
from search_space.hardware import Hardware
from search_space.ir.expr import dtype_bytes
from search_space.workloads import Workload


def bound_seconds(tasks: Sequence[Task], hardware: Hardware, threads: int, limits: Limits | None = None) -> float:
    """Computes the seconds of a network in floats at the machine's peak, each task by its fastest algorithm.

    Weights are read from memory once for each place of a task; in a loop they stay in the last-level cache if they fit.

    Transforms and additions of Winograd's algorithms are not counted, so that the bound cannot be reached where they
    are fastest.

    Args:
        tasks: tasks of the network.
        hardware: the machine's limits.
        threads: number of threads that kernels run on.
        limits: limits of the algorithms; all by default.
    """
    limits = limits or Limits()

    def seconds(task: Task, algorithm: str) -> float:
        workload, nbytes = task.workload, _constant_bytes(task.workload, algorithm)
        reads = task.occurrences or task.weight if nbytes <= hardware.l3_bytes else task.weight
        products = workload.count_flops(algorithm) / compute_peak(workload, algorithm, hardware, threads)
        return max(task.weight * products, reads * nbytes / hardware.bandwidth)

    return sum((min(seconds(task, name) for name in limits.list_algorithms(task.workload)) for task in tasks), 0.0)


def _constant_bytes(workload: Workload, algorithm: str) -> int:
    given = sum(prod(spec.shape) * dtype_bytes(spec.dtype) for spec in workload.inputs if spec.constant)
    return given + extra_bytes(workload, algorithm)

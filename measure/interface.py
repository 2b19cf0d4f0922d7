"""Interface between a worker and the code that builds and runs kernels, injected by import path."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol, cast

from numpy.typing import NDArray

from measure.pool import Trial
from measure.timing import rotation_copies
from targets.base import Bound


@dataclass(frozen=True)
class Task:
    """Data that all trials of one workload and seed share.

    Attributes:
        inputs: the input arrays.
        expected: the reference output; None if it was not asked for.
        rtol, atol: tolerance of the comparison.
        constant_bytes: bytes of the inputs that are constants.
        cache_bytes: size of the target's last-level cache.
        others: other inputs with the same constants, on which kernels are timed and checked again; empty: the same.
        others_expected: the reference output for `others`; None if it was not asked for.
    """

    inputs: Sequence[NDArray[Any]]
    expected: NDArray[Any] | None
    rtol: float
    atol: float
    constant_bytes: int = 0
    cache_bytes: int = 32 << 20
    others: Sequence[NDArray[Any]] = ()
    others_expected: NDArray[Any] | None = None


class Executor(Protocol):
    """Code that builds in one process and runs in another; a trial fails by a `TrialFailure` with its class."""

    def build(self, trial: Trial) -> bytes:
        """Compiles a trial to a self-contained module."""

    def prepare(self, trial: Trial, reference: bool = True) -> Task:
        """Makes inputs and, if wanted, the reference of the trial's task; the worker keeps it for the next trials."""

    def bind(self, trial: Trial, module: bytes, task: Task, copies: int) -> Bound:
        """Loads a module and binds it to the inputs, with guards around arrays if the target supports them.

        With more than one of `copies` the constants are cold in each run.
        """


def load_executor(path: str) -> Executor:
    """Makes the executor named by `path`, "module:Class"."""
    module, _, name = path.partition(":")
    if not module or not name:
        raise ValueError(f"`executor` must be 'module:Class', but got executor={path!r}")
    return cast(Executor, getattr(import_module(module), name)())


def bind_rotated(executor: Executor, trial: Trial, module: bytes, task: Task, most_bytes: int) -> tuple[Bound, int]:
    """Binds a built trial to its inputs, with as many copies of the constants as its cache state requires.

    Returns:
        The kernel, and the bytes of the copies, at most `most_bytes`; 0 if nothing rotates.
    """
    copies = 1
    if trial.cache == "network" and task.constant_bytes:
        copies = max(2, rotation_copies(task.constant_bytes, task.cache_bytes, most_bytes))
    bound = executor.bind(trial, module, task, copies)
    return bound, bound.copies * task.constant_bytes if bound.copies > 1 else 0

"""Measured pools: programs to learn from and to validate with, and apart from these programs to test with.

Programs of test networks are in a folder of their own, which is read on request only; one command requests it, see
`autotune.lab.test`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from autotune.lab.protocol.registered import PoolTask, Registration, Role
from costmodel.dataset import Dataset, TaskData, TaskPrograms
from costmodel.dataset.build import merge
from costmodel.dataset.dataset import Program, TaskMeasurements
from costmodel.dataset.errors import DatasetError
from costmodel.dataset.split import working

POOLS = "shipped"
"""Name of the pools in the package, given in place of a folder."""
SHIPPED_POOLS = Path(__file__).parent / "measured"
TRAINING, TEST, EXTRA = "known", "test", "chosen"
"""Folders of the datasets."""
_FILE = "registered.json"
_DIGITS = 13
"""Bits of a latency's mantissa that are kept: to 1/8,000, far below the noise, and a third of the bytes."""


class Pools:
    """Programs drawn at random of registered tasks, checked against the registration.

    Args:
        registration: registration of the pools.
        training: programs of tasks to learn from and to validate with.
        test: test programs; None: not to be looked at.
        extra: programs that a model has drawn of training tasks, see `collect.pools_by`; for learning alone.

    Raises:
        DatasetError: the measurements differ from the registration.
    """

    def __init__(
        self, registration: Registration, training: Dataset, test: Dataset | None = None, extra: Dataset | None = None
    ) -> None:
        self.registration, self.training, self._test, self.extra = registration, training, test, extra
        _check(registration, training, ("train", "validation"))
        if test is not None:
            _check(registration, test, ("test",))
        if extra is not None:
            _check_tasks(registration, extra, ("train",))

    @staticmethod
    def open(folder: str | Path = POOLS, test: bool = False) -> Pools:
        """Reads pools; test programs only if `test` is true.

        Raises:
            DatasetError: there are no pools, or they differ from the registration.
        """
        root = SHIPPED_POOLS if str(folder) == POOLS else Path(folder)
        known, chosen = Dataset.open(root / TRAINING), root / EXTRA
        return Pools(
            Registration.read(root / _FILE),
            known,
            Dataset.open(root / TEST) if test else None,
            Dataset.open(chosen) if chosen.is_dir() else None,
        )

    @staticmethod
    def of(registration: Registration, measurements: Dataset) -> Pools:
        """Makes pools of a collection's measurements; the label of each collection is its fastest burst.

        Programs that a later collection has not measured right are left out. If it has not measured all programs of a
        task yet, the task has the labels of the earlier ones.

        Raises:
            DatasetError: the measurements differ from the registration.
        """
        labelled = label_programs(registration, measurements)
        of_role = {task: registration.by_workload[task.workload.key].role for task in labelled.tasks}
        parts = [
            labelled.select([task for task, role in of_role.items() if (role == "test") == test])
            for test in (False, True)
        ]
        return Pools(registration, *parts)

    @staticmethod
    def write(folder: Path, registration: Registration, measurements: Dataset) -> None:
        """Writes the pools of a collection's measurements, see `of`.

        Raises:
            DatasetError: it was not measured as registered.
        """
        pools = Pools.of(registration, measurements)
        pools.training.write(folder / TRAINING)
        pools.data("test").write(folder / TEST)
        registration.write(folder / _FILE)

    def data(self, role: Role) -> Dataset:
        """Returns the dataset with the programs of a role.

        Raises:
            DatasetError: test programs, which were not requested when the pools were opened.
        """
        if role != "test":
            return self.training
        if self._test is None:
            raise DatasetError("programs to test with must be asked for when pools are opened, but they were not")
        return self._test

    def parts(self, role: Role) -> list[TaskPrograms]:
        """Lists the valid programs of a role: failures have no order."""
        return [part for part in working(self.data(role)) if self.task(part.task).role == role]

    def to_learn_from(self) -> tuple[Dataset, list[TaskPrograms]]:
        """Lists the valid programs to learn from: those drawn at random, and those that a model has chosen."""
        parts = self.parts("train")
        if self.extra is None:
            return self.training, parts
        data = merge([self.training.select(part.task for part in parts), self.extra])
        return data, working(data)

    def task(self, task: TaskData) -> PoolTask:
        """Returns the registration of a task."""
        return self.registration.by_workload[task.workload.key]

    def labels(self, role: Role, part: TaskPrograms) -> NDArray[np.float64]:
        """Returns seconds of each collection that measured all of a task: (collections, programs)."""
        programs = self.data(role).programs(part.task)
        return np.array([programs[row].latencies for row in part.rows.tolist()], np.float64).T

    def missing(self, role: Role) -> tuple[str, ...]:
        """Lists registered tasks of a role without a correctly measured program."""
        there = {part.task.workload.key for part in self.parts(role)}
        return tuple(t.name for t in self.registration.tasks if t.role == role and t.workload.key not in there)


def label_programs(registration: Registration, measurements: Dataset) -> Dataset:
    """Labels the programs of registered tasks: one latency per collection in place of all bursts.

    Raises:
        DatasetError: a task that is not registered.
    """
    return Dataset({task: _label_task(measurements, task, registration) for task in measurements.tasks})


def _check_tasks(registration: Registration, data: Dataset, roles: Sequence[Role]) -> None:
    for task in data.tasks:
        known = registration.by_workload.get(task.workload.key)
        if known is None or known.role not in roles:
            raise DatasetError(f"tasks of pools must be registered for {' or '.join(roles)}, but {task.name} is not")


def _check(registration: Registration, data: Dataset, roles: Sequence[Role]) -> None:
    _check_tasks(registration, data, roles)
    for task in data.tasks:
        known = registration.by_workload[task.workload.key]
        programs = data.programs(task)
        if len(programs) > known.programs:
            raise DatasetError(f"{task.name} must have at most {known.programs} programs, but has {len(programs)}")
        if any(program.origin != "random" for program in programs):
            raise DatasetError(f"programs of pools must be drawn at random, but some of {task.name} are not")
        if len({len(program.latencies) for program in programs if program.ok}) > 1:
            raise DatasetError(f"programs of a task must have equally many samples, but those of {task.name} differ")


def _label_task(data: Dataset, task: TaskData, registration: Registration) -> TaskMeasurements:
    if task.workload.key not in registration.by_workload:
        raise DatasetError(f"tasks of pools must be registered, but {task.name} is not")
    measured = data.copy_measurements(task)
    bursts = registration.rounds
    times = [len(program.latencies) // bursts for program in measured.programs if program.ok]
    # a later collection counts once it has come to all programs, but for the odd one that failed there
    whole = [n for n in range(1, max(times, default=0) + 1) if np.mean([t >= n for t in times]) > 0.95]
    collections = max(whole, default=1)
    programs: list[Program] = []
    for program in measured.programs:
        if not program.ok:
            programs.append(program)
        elif len(program.latencies) >= collections * bursts:
            fastest = program.latencies[: collections * bursts].reshape(collections, bursts).min(axis=1)
            programs.append(dataclasses.replace(program, latencies=_round(fastest)))
    return TaskMeasurements(measured.sketches, programs)


def _round(seconds: NDArray[np.float32]) -> NDArray[np.float32]:
    """Rounds to fewer binary digits, so that files compress better."""
    mantissa, exponent = np.frexp(seconds)
    found: NDArray[np.float32] = np.ldexp(np.round(mantissa * 2**_DIGITS) / 2**_DIGITS, exponent).astype(np.float32)
    return found

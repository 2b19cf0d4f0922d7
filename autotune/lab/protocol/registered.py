"""The registration of pools before they are measured: tasks, roles of networks, samples."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from costmodel.dataset.errors import DatasetError
from search_space import strict_json
from search_space.files import replace_file
from search_space.former_names import former_attributes
from search_space.workloads import Workload

FORMAT = "autotune.pools/1"
REGISTRATION_FILE = Path(__file__).parent / "measured" / "registered.json"
"""The registration of the pools that come with the package."""
Role = Literal["train", "validation", "test"]
ROLES: tuple[Role, ...] = get_args(Role)


@dataclass(frozen=True)
class PoolTask:
    """A task whose programs are drawn at random, every sketch equally often.

    Attributes:
        name: readable, unique.
        workload: computation of the task.
        role: purpose of the programs: training, validation or test.
        programs: number of programs to draw; all of a smaller space.
        collections: collections of each program: built, checked and timed anew, at another time.
        networks: network → how often the layer occurs in it; empty for a random program.
    """

    name: str
    workload: Workload
    role: Role
    programs: int
    collections: int = 1
    networks: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Registration:
    """All tasks of some pools.

    Attributes:
        tasks: tasks in the order in which they are measured.
        rounds: bursts of each program in a collection, the same for all.
    """

    tasks: tuple[PoolTask, ...]
    rounds: int

    def __post_init__(self) -> None:
        """Checks the rules for all tasks together.

        Raises:
            DatasetError: a name, a workload or a network's role is there twice, or a number is out of range.
        """
        names, workloads = set[str](), set[str]()
        networks: dict[str, str] = {}
        if not self.tasks or self.rounds < 1:
            raise DatasetError(
                f"pools must have at least 1 task and 1 round, but got {len(self.tasks)} tasks, rounds={self.rounds}"
            )
        for task in self.tasks:
            for what, value, known in (("name", task.name, names), ("workload", task.workload.key, workloads)):
                if value in known:
                    raise DatasetError(f"`{what}` of a registered task must be unique, but {value!r} is there twice")
                known.add(value)
            if task.role not in ROLES:
                raise DatasetError(f"`role` must be one of {', '.join(ROLES)}, but got role={task.role!r}")
            for name in ("programs", "collections"):
                if getattr(task, name) < 1:
                    raise DatasetError(f"`{name}` must be at least 1, but got {name}={getattr(task, name)}")
            if task.role != "train" and not task.networks:
                raise DatasetError(f"a task to validate or test with must be of a network, but {task.name} is of none")
            for network in task.networks:
                if networks.setdefault(network, task.role) != task.role:
                    raise DatasetError(f"a network must have one role, but {network} is for {networks[network]} too")

    @cached_property
    def networks(self) -> Mapping[str, Role]:
        """Network → role of its tasks."""
        return {network: task.role for task in self.tasks for network in task.networks}

    @cached_property
    def by_workload(self) -> Mapping[str, PoolTask]:
        """Key of the workload → the task."""
        return {task.workload.key: task for task in self.tasks}

    @cached_property
    def fingerprint(self) -> str:
        """Twelve hexadecimal digits that say which registration this is; results name it."""
        return hashlib.sha256(self._text().encode()).hexdigest()[:12]

    def shorten(self, programs: int | None, roles: Sequence[Role] = ("train", "validation")) -> Registration:
        """Limits the tasks to some roles, each collected once, with at most `programs` programs (None: all registered).

        Raises:
            DatasetError: no task has these roles.
        """
        kept = (task for task in self.tasks if task.role in roles)
        return Registration(
            tuple(
                replace(task, programs=min(task.programs, programs or task.programs), collections=1) for task in kept
            ),
            self.rounds,
        )

    def write(self, path: Path) -> None:
        """Writes the file."""
        replace_file(path, self._text().encode())

    @staticmethod
    def read(path: Path) -> Registration:
        """Reads a registration from a file.

        Raises:
            DatasetError: no such file, another format, or something in it that must not be.
        """
        data = strict_json.read(path, "registered pools", "format", FORMAT, DatasetError)
        try:
            tasks = [PoolTask(**{**task, "workload": Workload.from_json(task["workload"])}) for task in data["tasks"]]
            return Registration(tuple(tasks), int(data["rounds"]))
        except DatasetError as error:
            raise DatasetError(f"{path}: {error}") from None
        except (TypeError, KeyError, ValueError) as error:
            raise DatasetError(f"{path}: registered pools must be whole, but {error!r}") from None

    def _text(self) -> str:
        lines = ",\n".join(json.dumps(_to_json(task), separators=(",", ":")) for task in self.tasks)
        return f'{{"format":{json.dumps(FORMAT)},"rounds":{self.rounds},"tasks":[\n{lines}\n]}}\n'


def _to_json(task: PoolTask) -> dict[str, Any]:
    plain = {name: getattr(task, name) for name in ("name", "role", "programs", "collections")}
    return {**plain, "networks": dict(sorted(task.networks.items())), "workload": task.workload.to_json()}


if not TYPE_CHECKING:
    __getattr__ = former_attributes(__name__, {"Registered": "Registration"})

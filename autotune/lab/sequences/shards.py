"""Datasets of sequences in shards: archives of any size are read file by file, and learned from task by task."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from autotune.lab.sequences.ansor import read_log
from autotune.lab.sequences.encoding import LENGTH, WIDTH, encode, own_steps
from costmodel.dataset import Dataset, TaskPrograms
from costmodel.dataset.errors import DatasetError
from search_space import strict_json
from search_space.files import replace_file, replacing

FORMAT = "autotune.sequences/1"
SHARD = 65536
"""Programs of a shard at most; one is in memory at a time."""
_INDEX = "index.json"


@dataclass(frozen=True)
class Task:
    """Programs of one workload on one target.

    Attributes:
        name: workload and target.
        sequences: float16 (programs, `LENGTH`, `WIDTH`).
        seconds: (programs,), all finite.
    """

    name: str
    sequences: NDArray[np.float16]
    seconds: NDArray[np.float64]


class Sequences:
    """A folder of shards.

    Args:
        folder: folder that `write_shards` wrote.

    Attributes:
        names: names of the tasks, in order.
        counts: programs of each task.

    Raises:
        DatasetError: no folder of that format.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        try:
            index = strict_json.loads((folder / _INDEX).read_text())
            if index["format"] != FORMAT or index["shape"] != [LENGTH, WIDTH]:
                raise ValueError(f"`format` must be {FORMAT!r} of {LENGTH}x{WIDTH}")
            self._spans: dict[str, list[tuple[str, int, int]]] = {
                name: [(str(file), int(first), int(end)) for file, first, end in spans]
                for name, spans in index["tasks"].items()
            }
        except OSError as error:
            raise DatasetError(f"{folder}: sequences must be a readable folder, but: {error.strerror}") from None
        except (ValueError, KeyError, TypeError) as error:
            raise DatasetError(
                f"{folder}: sequences must be as `autotune dataset sequences` writes them, but {error}"
            ) from None
        self.names = tuple(self._spans)
        self.counts = {n: sum(end - first for _, first, end in spans) for n, spans in self._spans.items()}

    def task(self, name: str) -> Task:
        """Reads a task's programs from all shards that have some.

        Raises:
            DatasetError: no such task.
        """
        if name not in self._spans:
            raise DatasetError(f"`task` must be one of the sequences, but got {name!r}")
        parts = []
        for file, first, end in self._spans[name]:
            with np.load(self._folder / file, allow_pickle=False) as shard:
                parts.append((shard["sequences"][first:end], shard["seconds"][first:end]))
        return Task(name, np.concatenate([s for s, _ in parts]), np.concatenate([t for _, t in parts]))


def write_shards(
    logs: Iterable[Path], folder: Path, say: Callable[[str], None] = lambda text: None, most: int = SHARD
) -> Sequences:
    """Encodes records files of auto_scheduler; failures are left out, as TenSet does.

    Args:
        logs: files, read one after the other.
        folder: folder to write.
        say: called with a sentence for each file.
        most: programs of a shard.

    Raises:
        DatasetError: a file that holds something else, or no program in all of them.
    """
    writer = _Writer(folder, most)
    for path in logs:
        before = writer.programs
        for logged in read_log(path):
            if logged.seconds == logged.seconds:
                writer.add(f"{logged.workload} on {logged.target}", encode(logged.steps), logged.seconds)
        say(f"{path.name}: {writer.programs - before:,} programs")
    return writer.end()


def of_dataset(data: Dataset, part: TaskPrograms) -> Task:
    """Encodes the schedules of a part of a dataset of this project."""
    seconds = data.seconds(part.task)[part.rows]
    found = [encode(own_steps(data.trace(part.task, row)[1].to_json())) for row in part.rows.tolist()]
    return Task(part.task.key, np.array(found), seconds)


class _Writer:
    def __init__(self, folder: Path, most: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._most = folder, most
        self._tasks: dict[str, list[tuple[str, int, int]]] = {}
        self._pending: dict[str, list[tuple[NDArray[np.float16], float]]] = {}
        self._count = self._shards = self.programs = 0

    def add(self, task: str, sequence: NDArray[np.float16], seconds: float) -> None:
        """Takes a program in; a full shard is written."""
        self._pending.setdefault(task, []).append((sequence, seconds))
        self._count += 1
        self.programs += 1
        if self._count == self._most:
            self._write()

    def end(self) -> Sequences:
        """Writes the rest and the index."""
        if not self.programs:
            raise DatasetError("`logs` must hold at least one program that was measured, but got none")
        if self._count:
            self._write()
        document = {"format": FORMAT, "shape": [LENGTH, WIDTH], "tasks": self._tasks}
        replace_file(self._folder / _INDEX, (json.dumps(document) + "\n").encode())
        return Sequences(self._folder)

    def _write(self) -> None:
        name, first = f"{self._shards:05}.npz", 0
        sequences: list[NDArray[np.float16]] = []
        seconds: list[float] = []
        for task, programs in self._pending.items():
            self._tasks.setdefault(task, []).append((name, first, first + len(programs)))
            first += len(programs)
            sequences += [sequence for sequence, _ in programs]
            seconds += [taken for _, taken in programs]
        with replacing(self._folder / name) as partial, partial.open("wb") as file:
            np.savez_compressed(file, sequences=np.array(sequences), seconds=np.array(seconds))
        self._pending, self._count, self._shards = {}, 0, self._shards + 1


def held_out(names: Sequence[str], share: float, seed: int) -> tuple[list[str], list[str]]:
    """Draws the tasks to learn from and the tasks to be scored on.

    Raises:
        DatasetError: a share by which one of them would be empty.
    """
    count = round(share * len(names))
    if not 0 < count < len(names):
        raise DatasetError(f"`share` must leave tasks on both sides of {len(names)}, but got share={share}")
    chosen = set(np.random.default_rng(seed).permutation(len(names))[:count].tolist())
    return (
        [name for place, name in enumerate(names) if place not in chosen],
        [name for place, name in enumerate(names) if place in chosen],
    )

"""Models that learn from a bounded sample of the measured programs, which bounds the cost of a refit."""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from costmodel.models import text
from costmodel.models.base import CostModel, check_lengths, need_fit
from search_space.former_names import FormerAttribute

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Programs:
    """Training data, at least one program.

    Attributes:
        features, throughput, groups: see `CostModel.fit_tasks`.
        many: whether they are of many tasks.
    """

    features: list[NDArray[np.float32]]
    throughput: NDArray[np.float64]
    groups: NDArray[np.int64]
    many: bool


class Learner(CostModel):
    """A base of models that learn one task from the faster half of at most `programs` and a sample of the rest.

    The learned state is a dictionary of numbers, texts and arrays, which `save` writes unchanged; `train` sets it.

    Attributes:
        name: kind of model, as named in its file.
        required_keys: keys that its file must have.
        seed: seed of the samples.
        programs: most programs of one task.
        tasks_programs: most programs of many tasks: a sample, equally many of each.
    """

    name: ClassVar[str]
    required_keys: ClassVar[Collection[str]] = ()
    seed: int
    programs: int
    tasks_programs: int = sys.maxsize
    _state: dict[str, Any] | None = None

    learned = FormerAttribute("state")

    @property
    def state(self) -> dict[str, Any]:
        """The learned state.

        Raises:
            ValueError: the model was neither fitted nor loaded.
        """
        return need_fit(self._state)

    def fit(self, features: Sequence[NDArray[np.float32]], throughput: NDArray[np.float64]) -> None:
        check_lengths(features, throughput)
        target, groups = np.asarray(throughput, np.float64), np.zeros(len(features), np.int64)
        self._train(features, target, groups, faster_half(target, self.programs, self.seed), False)

    def fit_tasks(
        self, features: Sequence[NDArray[np.float32]], throughput: NDArray[np.float64], groups: NDArray[np.int64]
    ) -> None:
        check_lengths(features, throughput)
        chosen = spread(groups, self.tasks_programs, self.seed)
        self._train(features, np.asarray(throughput, np.float64), groups, chosen, True)

    def save(self, path: Path) -> None:
        text.write(path, self.name, self.state)

    def load(self, path: Path) -> None:
        self._state = text.read(path, self.name, self.required_keys)
        self.prepare(self._state)

    @abstractmethod
    def train(self, programs: Programs) -> None:
        """Learns from programs, and forgets earlier ones."""

    def prepare(self, state: dict[str, Any]) -> None:
        """Derives values that are not saved from the learned state, after fitting and after loading."""

    def _train(
        self,
        features: Sequence[NDArray[np.float32]],
        target: NDArray[np.float64],
        groups: NDArray[np.int64],
        indices: Rows,
        many: bool,
    ) -> None:
        if len(indices):
            self.train(Programs([features[i] for i in indices], target[indices], groups[indices], many))


def faster_half(throughput: NDArray[np.float64], count: int, seed: int) -> Rows:
    """Chooses at most `count` programs, half of them the fastest and the others at random: indices, ascending."""
    if len(throughput) <= count:
        return np.arange(len(throughput))
    order = np.argsort(-throughput, kind="stable")
    fast, rest = order[: count // 2], order[count // 2 :]
    drawn = np.random.default_rng(seed).choice(rest, count - len(fast), replace=False)
    return np.sort(np.concatenate([fast, drawn]))


def spread(groups: NDArray[np.int64], count: int, seed: int) -> Rows:
    """Draws at most `count` programs, as near to equally many of each task as possible: indices, ascending."""
    if len(groups) <= count:
        return np.arange(len(groups))
    mixed = np.random.default_rng(seed).permutation(len(groups))
    turn = np.empty(len(groups), np.int64)  # rank of each within its task, in the mixed order
    order = mixed[np.argsort(groups[mixed], kind="stable")]
    starts = np.flatnonzero(np.diff(groups[order], prepend=groups[order[0]] - 1))
    sizes = np.diff(np.append(starts, len(groups)))
    turn[order] = np.arange(len(groups)) - np.repeat(starts, sizes)
    return np.sort(mixed[np.argsort(turn[mixed], kind="stable")][:count])

"""The adapter of models of boosted trees: their options, their trees, and their file."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from costmodel.models.base import Scores, need_fit
from costmodel.models.booster import check_text, make_options, trees_for
from costmodel.models.forest import Forest
from costmodel.models.learner import Learner, Programs
from search_space.files import replace_file


@dataclass(eq=False, kw_only=True)
class BoostedModel(Learner):
    """Base of models made of LightGBM's trees; the same measurements in the same order give the same trees.

    Attributes:
        head: start of the last line of its file, which holds the model's own state besides trees.
        seed: seed of all draws.
        trees: most trees; half as many as programs, and at least 8, for few programs.
        leaves, learning_rate, feature_share, bins: options of the boosting, see `booster.make_options`.
        programs: most programs of one task to learn from: the faster half, and a sample of the rest.
        tasks_trees: most trees for programs of many tasks, all of which are learned from.
    """

    head: ClassVar[str]

    seed: int = field(default=0, kw_only=False)
    trees: int = 100
    leaves: int = 16
    learning_rate: float = 0.1
    feature_share: float = 0.25
    bins: int = 63
    programs: int = 2048
    tasks_trees: int = 400

    def __post_init__(self) -> None:
        self._text: str | None = None
        self._forest: Forest | None = None
        self._parameters = make_options(self.seed, self.leaves, self.learning_rate, self.feature_share, self.bins)

    def save(self, path: Path) -> None:
        """Writes LightGBM's own text format, and a last line with the model's other state."""
        replace_file(path, (f"{need_fit(self._text)}\n{self.head}{self.own()}\n").encode())

    def load(self, path: Path) -> None:
        text, _, own = path.read_text(encoding="utf-8").partition(f"\n{self.head}")
        check_text(text, self.read_own(own.strip(), path), path)
        self.keep(text)

    @abstractmethod
    def own(self) -> str:
        """Returns the state besides trees as one line of text."""

    @abstractmethod
    def read_own(self, own: str, path: Path) -> int:
        """Reads the line that `own` returned, and returns the number of the trees' features.

        Raises:
            CostModelError: the line is of another model.
        """

    def keep(self, text: str) -> None:
        """Replaces the model's trees by those of a text."""
        self._text, self._forest = text, Forest.from_lightgbm(text)

    @property
    def forest(self) -> Forest:
        """The trees."""
        return need_fit(self._forest)

    def with_forest(self, forest: Forest) -> Self:
        """Copies the model, with other trees to predict with."""
        other = copy(self)
        other._forest = forest
        return other

    def rows(self, features: Sequence[NDArray[np.float32]]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Makes the trees' input: (rows, columns), and the program of each row, whose scores add up."""
        return np.concatenate(features), np.repeat(np.arange(len(features)), [len(of) for of in features])

    def count_trees(self, programs: Programs) -> int:
        """Chooses the number of trees to learn from programs."""
        return trees_for(len(programs.features), self.tasks_trees if programs.many else self.trees)


def sum_scores(forest: Forest, features: NDArray[np.float32]) -> Scores:
    """Adds the forest's scores of a program's statements: (n, statements, features) -> (n,)."""
    found = np.zeros(len(features))
    for rows in features.transpose(1, 2, 0):
        found += forest.predict(rows)
    return found

"""What models of boosted trees have in common: their trees, and the file that these are kept in."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from copy import copy
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from costmodel.features import SECONDS
from costmodel.models.base import Scores, need_fit
from costmodel.models.booster import check_text
from costmodel.models.forest import Forest
from costmodel.models.learner import Learner
from search_space.files import replace_file


class BoostedModel(Learner):
    """Base of models made of LightGBM's trees.

    Attributes:
        head: of the last line of its file, which has what is the model's own besides trees.
    """

    head: ClassVar[str]
    _text: str | None = None
    _forest: Forest | None = None

    def save(self, path: Path) -> None:
        """Writes LightGBM's own text format, and a last line with what is the model's own."""
        replace_file(path, (f"{need_fit(self._text)}\n{self.head}{self.own()}\n").encode())

    def load(self, path: Path) -> None:
        """See `CostModel.load`."""
        text, _, own = path.read_text(encoding="utf-8").partition(f"\n{self.head}")
        check_text(text, self.read_own(own.strip(), path), path)
        self.keep(text)

    @abstractmethod
    def own(self) -> str:
        """What is saved besides trees."""

    @abstractmethod
    def read_own(self, own: str, path: Path) -> int:
        """Reads what `own` gave, and returns the number of the trees' features.

        Raises:
            ModelError: it is none of this model's.
        """

    def keep(self, text: str) -> None:
        """Predicts with the trees of a text from now on."""
        self._text, self._forest = text, Forest.from_lightgbm(text)

    @property
    def forest(self) -> Forest:
        """The trees."""
        return need_fit(self._forest)

    def with_forest(self, forest: Forest) -> Self:
        """The same model with other trees, to predict with."""
        other = copy(self)
        other._forest = forest
        return other

    def rows(self, features: Sequence[NDArray[np.float32]]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """What the trees see of programs: (rows, columns), and the program of each row, whose scores add up."""
        return np.concatenate(features), np.repeat(np.arange(len(features)), [len(of) for of in features])


def summed(forest: Forest, features: NDArray[np.float32]) -> Scores:
    """The forest's score of each program, a sum over statements: (n, statements, features) -> (n,)."""
    found = np.zeros(len(features))
    for rows in features.transpose(1, 2, 0):
        found += forest.predict(rows)
    return found


def estimated(features: Sequence[NDArray[np.float32]] | NDArray[np.float32]) -> Scores:
    """The roofline's time of each program, as it stands among its features: log2(1 + nanoseconds)."""
    return np.array([of[0, SECONDS] for of in features], np.float64)

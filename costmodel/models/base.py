"""The interface of cost models, which rank candidates of one task by the features of their statements."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from costmodel.models import text
from costmodel.models.errors import ModelError
from costmodel.models.tunable import Tunable

Learned = TypeVar("Learned")
Scores = NDArray[np.float64]  # (candidates,)


def _checked(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method that predicts, whose answers are refused unless they are finite numbers, one a candidate."""

    @wraps(method)
    def predict(self: CostModel, features: NDArray[np.float32], *arguments: Any) -> Any:
        found = method(self, features, *arguments)
        if isinstance(found, tuple):
            return tuple(_finite(self, part, len(features)) for part in found)
        return _finite(self, found, len(features))

    return predict


def _finite(model: CostModel, found: Any, count: int) -> Scores:
    name = type(model).__name__
    try:
        scores = np.asarray(found, np.float64)
    except (TypeError, ValueError):
        raise ModelError(f"{name}: `predict` must return numbers, but got {type(found).__name__}") from None
    if scores.shape != (count,):
        raise ModelError(f"{name}: `predict` must return one score a candidate, ({count},), but got {scores.shape}")
    if not np.isfinite(scores).all():
        wrong = int(np.flatnonzero(~np.isfinite(scores))[0])
        raise ModelError(
            f"{name}: `predict` must return finite scores, but got {scores[wrong]} for candidate {wrong} of {count}"
        )
    return scores


class CostModel(ABC):
    """Predicts a score that orders candidates by throughput, higher is better.

    A model sees features alone, never the machine or the schedule. What it draws, it draws from a seed of its own.
    Whoever asks it, what `predict` and `predict_with_deviation` of any subclass return is held against their shapes.

    Attributes:
        saved: names of the attributes that hold what was learned, None before: numbers, texts and arrays, which `save`
            and `load` write and read, unless a model has its own.
        tunable: options of the constructor that a search of hyper-parameters may vary, and over what.
    """

    saved: ClassVar[tuple[str, ...]] = ()
    tunable: ClassVar[Mapping[str, Tunable]] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for method in ("predict", "predict_with_deviation"):
            if method in cls.__dict__:
                setattr(cls, method, _checked(cls.__dict__[method]))

    @abstractmethod
    def fit(self, features: Sequence[NDArray[np.float32]], throughput: NDArray[np.float64]) -> None:
        """Learns from measured candidates, in place of what it learned before.

        Args:
            features: per candidate (statements, features); the number of statements may differ.
            throughput: (candidates,) in [0, 1], best seconds / seconds; 0 for a failure.
        """

    def fit_tasks(
        self, features: Sequence[NDArray[np.float32]], throughput: NDArray[np.float64], groups: NDArray[np.int64]
    ) -> None:
        """Learns from measured candidates of many tasks, in place of what it learned before.

        Unless a model says otherwise it learns them as though they were of one task, for throughput is relative.

        Args:
            features: as in `fit`.
            throughput: as in `fit`, by the best of the candidate's own task.
            groups: (candidates,) number of the task of each; only candidates of one task are ever to be ranked.
        """
        self.fit(features, throughput)

    @abstractmethod
    def predict(self, features: NDArray[np.float32]) -> Scores:
        """Scores: (candidates, statements, features) → (candidates,).

        Raises:
            ValueError: a model that learns, and has not.
            ModelError: the scores are not one finite number a candidate.
        """

    def save(self, path: Path) -> None:
        """Writes what was learned, as text.

        Raises:
            ValueError: a model that learns, and has not.
        """
        text.write(path, type(self).__name__, {name: need_fit(getattr(self, name)) for name in self.saved})

    def load(self, path: Path) -> None:
        """Reads what `save` wrote.

        Raises:
            ModelError: it is none of this model's files.
        """
        for name, value in text.read(path, type(self).__name__, self.saved).items():
            setattr(self, name, value)


class UncertainModel(CostModel):
    """A cost model that knows how sure it is of each score, by which a search may explore."""

    def predict(self, features: NDArray[np.float32]) -> Scores:
        return self.predict_with_deviation(features)[0]

    @abstractmethod
    def predict_with_deviation(self, features: NDArray[np.float32]) -> tuple[Scores, Scores]:
        """Scores and their standard deviations, in the scores' unit: (candidates, statements, features) → (candidates,)

        Raises:
            ValueError: it has learned nothing.
            ModelError: the scores or deviations are not one finite number a candidate.
        """


def need_fit(learned: Learned | None) -> Learned:
    """Returns the learned state.

    Raises:
        ValueError: nothing yet.
    """
    if learned is None:
        raise ValueError("a model must be fitted or loaded before it is used, but neither was done")
    return learned


def check_lengths(features: Sequence[NDArray[np.float32]], throughput: NDArray[np.float64]) -> None:
    """Refuses features and throughputs of different number.

    Raises:
        ValueError: they differ.
    """
    if len(features) != len(throughput):
        raise ValueError(
            f"`throughput` must have one entry a program, but got programs={len(features)}, "
            f"throughput={len(throughput)}"
        )

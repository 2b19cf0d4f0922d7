"""The interface of cost models, which rank candidates of one task by the features of their statements."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from costmodel.models import text
from costmodel.models.errors import CostModelError
from costmodel.models.tunable import Tunable

State = TypeVar("State")
Scores = NDArray[np.float64]  # (candidates,)


def _check_predictions(method: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a method that predicts, so that it raises unless it returns one finite number per candidate."""

    @wraps(method)
    def predict(self: CostModel, features: NDArray[np.float32], *arguments: Any) -> Any:
        found = method(self, features, *arguments)
        if isinstance(found, tuple):
            return tuple(_finite(self, part, len(features)) for part in found)
        return _finite(self, found, len(features))

    return predict


def _finite(model: CostModel, values: Any, count: int) -> Scores:
    name = type(model).__name__
    try:
        scores = np.asarray(values, np.float64)
    except (TypeError, ValueError):
        raise CostModelError(f"{name}: `predict` must return numbers, but got {type(values).__name__}") from None
    if scores.shape != (count,):
        raise CostModelError(f"{name}: `predict` must return one score a candidate, ({count},), but got {scores.shape}")
    if not np.isfinite(scores).all():
        wrong = int(np.flatnonzero(~np.isfinite(scores))[0])
        raise CostModelError(
            f"{name}: `predict` must return finite scores, but got {scores[wrong]} for candidate {wrong} of {count}"
        )
    return scores


class CostModel(ABC):
    """A model that predicts scores, which order candidates by throughput; higher is better.

    A model sees features alone, never the machine or the schedule. It draws random numbers from a seed of its own.
    The base class checks the shapes of the results of `predict` and `predict_with_deviation` of all subclasses.

    Attributes:
        state_attributes: names of the attributes that hold the learned state, None before fitting: numbers, texts and
            arrays. `save` and `load` write and read them, unless a model overrides these.
        tunable: options of the constructor that a search of hyper-parameters may vary, with their values.
    """

    state_attributes: ClassVar[tuple[str, ...]] = ()
    tunable: ClassVar[Mapping[str, Tunable]] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "saved" in cls.__dict__:
            warnings.warn(f"{cls.__name__}.saved is now state_attributes", DeprecationWarning, stacklevel=3)
            cls.state_attributes = cls.__dict__["saved"]
        for method in ("predict", "predict_with_deviation"):
            if method in cls.__dict__:
                setattr(cls, method, _check_predictions(cls.__dict__[method]))

    @abstractmethod
    def fit(self, features: Sequence[NDArray[np.float32]], throughput: NDArray[np.float64]) -> None:
        """Learns from measured candidates, and forgets earlier ones.

        Args:
            features: (statements, features) of each candidate; the number of statements may differ.
            throughput: (candidates,) in [0, 1], best seconds / seconds; 0 for a failure.
        """

    def fit_tasks(
        self, features: Sequence[NDArray[np.float32]], throughput: NDArray[np.float64], groups: NDArray[np.int64]
    ) -> None:
        """Learns from measured candidates of many tasks, and forgets earlier ones.

        Unless a model overrides it, it learns them as though they were of one task, as throughput is relative.

        Args:
            features: features of the candidates, see `fit`.
            throughput: throughput by candidate, see `fit`, relative to the best of the candidate's own task.
            groups: (candidates,) number of the task of each; only candidates of one task are ever ranked.
        """
        self.fit(features, throughput)

    @abstractmethod
    def predict(self, features: NDArray[np.float32]) -> Scores:
        """Predicts scores: (candidates, statements, features) → (candidates,).

        Raises:
            ValueError: the model learns, and has not learned yet.
            CostModelError: the scores are not one finite number per candidate.
        """

    def save(self, path: Path) -> None:
        """Writes the learned state, as text.

        Raises:
            ValueError: the model learns, and has not learned yet.
        """
        text.write(path, type(self).__name__, {name: need_fit(getattr(self, name)) for name in self.state_attributes})

    def load(self, path: Path) -> None:
        """Reads the state that `save` wrote.

        Raises:
            CostModelError: the file is not one of this model.
        """
        for name, value in text.read(path, type(self).__name__, self.state_attributes).items():
            setattr(self, name, value)


class UncertainModel(CostModel):
    """A cost model that also predicts the uncertainty of each score, by which a search may explore."""

    def predict(self, features: NDArray[np.float32]) -> Scores:
        return self.predict_with_deviation(features)[0]

    @abstractmethod
    def predict_with_deviation(self, features: NDArray[np.float32]) -> tuple[Scores, Scores]:
        """Predicts scores and their standard deviations: (candidates, statements, features) → (candidates,) each.

        Raises:
            ValueError: the model has not learned yet.
            CostModelError: the scores or deviations are not one finite number per candidate.
        """


def need_fit(state: State | None) -> State:
    """Returns the learned state.

    Raises:
        ValueError: there is no learned state yet.
    """
    if state is None:
        raise ValueError("a model must be fitted or loaded before it is used, but neither was done")
    return state


def check_lengths(features: Sequence[NDArray[np.float32]], throughput: NDArray[np.float64]) -> None:
    """Refuses features and throughputs of different lengths.

    Raises:
        ValueError: they differ.
    """
    if len(features) != len(throughput):
        raise ValueError(
            f"`throughput` must have one entry a program, but got programs={len(features)}, "
            f"throughput={len(throughput)}"
        )

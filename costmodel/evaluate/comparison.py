"""Several models on the same split of a dataset."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from costmodel.dataset import Dataset
from costmodel.dataset.split import Split
from costmodel.evaluate.evaluation import Evaluation, evaluate
from costmodel.evaluate.samples import Samples, samples
from costmodel.models import registry
from costmodel.models.base import CostModel
from costmodel.models.errors import ModelError


@dataclass(frozen=True)
class Comparison:
    """A row of the table.

    Attributes:
        name: of the model.
        options: that it was made with, besides the seed.
        model: trained.
        fit_seconds: that training took.
        evaluation: its metrics.
    """

    name: str
    options: Mapping[str, Any]
    model: CostModel
    fit_seconds: float
    evaluation: Evaluation

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        found = {"name": self.name, **self.evaluation.to_json(), "fit_seconds": self.fit_seconds}
        return {**found, "options": dict(self.options)}


def fitted(name: str, options: Mapping[str, Any], seed: int, of: Samples) -> CostModel:
    """A model trained on some samples.

    Raises:
        ModelError: no such model or option, or no sample.
    """
    if not of.features:
        raise ModelError("a model must have measured programs to learn from, but got none")
    model = registry.make(name, options, seed)
    model.fit_tasks(of.features, of.throughput, of.groups)
    return model


def compare(
    data: Dataset,
    split: Split,
    models: Sequence[str],
    seed: int = 0,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    progress: Callable[[str], None] = lambda text: None,
    speed: bool = True,
) -> Iterator[Comparison]:
    """Each model, trained on the split's training part and evaluated on its test part.

    Args:
        data: measured programs.
        split: of the data.
        models: names, see `costmodel.models.registry`.
        seed: of the models that take one.
        options: model → options of its constructor.
        progress: called with a sentence on what is next.
        speed: whether to take the speed of prediction, see `evaluate`.
    """
    of, held_back = samples(data, split.train(data), progress), split.test(data)
    networks = split.held_out if split.kind == "network" else ()
    for name in models:
        progress(f"learning and evaluating {name}")
        own = dict((options or {}).get(name, {}))
        start = time.perf_counter()
        model = fitted(name, own, seed, of)
        seconds = time.perf_counter() - start
        yield Comparison(name, own, model, seconds, evaluate(model, data, held_back, networks, speed))

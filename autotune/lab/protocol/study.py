"""Models on pools: each learned from several seeds, scored on networks that it has not seen, with intervals."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.lab.evaluate.evaluation import predictions, statements_per_second
from autotune.lab.evaluate.samples import Samples, samples, timed_fit
from autotune.lab.evaluate.scores import (
    METRICS,
    Difference,
    Estimate,
    Rankings,
    Tasks,
    by_chance,
    plain,
    plain_figures,
    score_rankings,
)
from autotune.lab.protocol.pools import Pools
from autotune.lab.protocol.registered import Role
from costmodel.dataset import TaskData, TaskPrograms
from costmodel.models import registry
from costmodel.models.base import CostModel
from costmodel.models.errors import CostModelError
from search_space.former_names import FormerAttribute

SEEDS = 5
RANDOM = "random"
CEILING = "ceiling"


@dataclass(frozen=True)
class HeldOut:
    """Programs to score models on.

    Attributes:
        role: `validation` or `test`.
        parts: correctly measured programs of each task.
        seconds: labels of each task's last collection, (programs,).
        earlier: labels of the collection before; None where a task has only one.
        tasks: tasks that scores are averaged over.
    """

    role: Role
    parts: Sequence[TaskPrograms]
    seconds: Sequence[NDArray[np.float64]]
    earlier: Sequence[NDArray[np.float64]] | None
    tasks: Tasks

    @staticmethod
    def of(pools: Pools, role: Role, seed: int = 0) -> HeldOut:
        """Collects the programs of a role.

        Raises:
            CostModelError: tasks of it are missing, so that no network would be whole; or it has none.
        """
        parts, missing = pools.parts(role), pools.missing(role)
        if missing or not parts:
            raise CostModelError(
                f"networks must be whole to be scored on, but of those for {role} {len(missing)} tasks were not "
                f"measured: {', '.join(missing[:3]) or 'all'}"
            )
        labels = [pools.labels(role, part) for part in parts]
        seconds = [of[-1] for of in labels]
        earlier = [of[-2] for of in labels] if all(len(of) > 1 for of in labels) else None
        registered = [pools.task(part.task) for part in parts]
        networks = sorted({name for task in registered for name in task.networks})
        weights = {n: np.array([task.networks.get(n, 0) for task in registered], np.float64) for n in networks}
        best = np.array([of.min() for of in seconds])
        return HeldOut(role, parts, seconds, earlier, Tasks(weights, best, by_chance(seconds), seed))

    def score(self, rankings: Sequence[Sequence[NDArray[np.float64]]]) -> Rankings:
        """Scores rankings of these programs."""
        return score_rankings(rankings, self.seconds)

    def ceiling(self) -> Rankings | None:
        """Scores an oracle that has measured every program once before; None without an earlier measurement."""
        return None if self.earlier is None else self.score([[-of for of in self.earlier]])


@dataclass(frozen=True)
class LearnedModel:
    """A model, learned once for each seed.

    Attributes:
        name, options: name and options of the model.
        rankings: its scores, a ranking for each seed.
        fit_seconds: mean seconds of one fit.
        programs_per_second: scored by one core, features given; NaN where it was not taken.
        model: model of the first seed.
    """

    name: str
    options: Mapping[str, Any]
    rankings: Rankings
    fit_seconds: float
    programs_per_second: float
    model: CostModel | None = None

    ranked = FormerAttribute("rankings")


@dataclass(frozen=True)
class Study:
    """Models on the same programs.

    Attributes:
        held_out: programs that models were scored on.
        fingerprint: fingerprint of the registration.
        models: name → model; choice at random and the ceiling, where it is known, are among them.
        programs: number of training programs.
    """

    held_out: HeldOut
    fingerprint: str
    models: Mapping[str, LearnedModel]
    programs: int
    seeds: int = SEEDS

    learned = FormerAttribute("models")

    @property
    def names(self) -> list[str]:
        """Readable names of the tasks."""
        return [part.task.name for part in self.held_out.parts]

    @cached_property
    def figures(self) -> Mapping[str, Mapping[str, Estimate]]:
        """Model → metric → figure and interval."""
        return {name: self.held_out.tasks.estimates(one.rankings) for name, one in self.models.items()}

    @cached_property
    def behind_first(self) -> Mapping[str, Mapping[str, Difference]]:
        """Model → metric → by how much the first model is better; of all models but the first."""
        (_, first), *others = self.models.items()
        difference = self.held_out.tasks.difference
        return {name: {m: difference(m, first.rankings, one.rankings) for m in METRICS} for name, one in others}

    def to_json(self) -> dict[str, Any]:
        """Returns figures with intervals, differences to the first model, scores of every task; None for NaN."""
        tasks, rows = self.held_out.tasks, {}
        for name, one in self.models.items():
            row: dict[str, Any] = plain_figures(self.figures[name])
            row["fit_seconds"] = round(one.fit_seconds, 2)
            (row["programs_per_second"],) = plain([one.programs_per_second])
            row["options"] = dict(one.options)
            if name in self.behind_first:
                row["behind_first"] = plain_figures(self.behind_first[name])
            rows[name] = row
        per_task = {
            name: {m: [round(float(x), 5) for x in of.mean(axis=0)] for m, of in one.rankings.metrics.items()}
            for name, one in self.models.items()
        }
        return {
            "role": self.held_out.role,
            "registered": self.fingerprint,
            "seeds": self.seeds,
            "learned_from": self.programs,
            "networks": {name: int((of > 0).sum()) for name, of in tasks.weights.items()},
            "models": rows,
            "tasks": {"names": self.names, "programs": [len(of) for of in self.held_out.seconds], "scores": per_task},
        }


def study(
    pools: Pools,
    role: Role,
    models: Sequence[str],
    seeds: int = SEEDS,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    progress: Callable[[str], None] = lambda text: None,
    parts: Sequence[TaskPrograms] | None = None,
    speed: bool = True,
) -> Study:
    """Trains every model, once for each seed, and scores it on the programs of a role.

    Args:
        pools: measured pools, opened with test programs if `role` is `test`.
        role: `validation` or `test`.
        models: names, see `costmodel.models.registry`; the first is the reference of comparisons.
        seeds: number of seeds of each model that takes one; other models are learned once.
        options: model → options of its constructor.
        progress: called with a sentence.
        parts: parts of the random programs to learn from in place of all.
        speed: whether to measure the speed of prediction.

    Raises:
        CostModelError: no such model, or networks that are not whole.
        DatasetError: programs to test with, which were not opened.
    """
    scored_on = HeldOut.of(pools, role)
    learn = samples(*(pools.to_learn_from() if parts is None else (pools.training, parts)))
    by_name: dict[str, LearnedModel] = {}
    for name in models:
        by_name[name] = learn_model(pools, scored_on, learn, name, dict((options or {}).get(name, {})), seeds, speed)
        value = scored_on.tasks.value("top1", by_name[name].rankings)
        progress(f"{name}: top-1 {value:.3f}, learned in {by_name[name].fit_seconds:.1f} s")
    by_name[RANDOM] = LearnedModel(RANDOM, {}, scored_on.tasks.chance, 0.0, float("nan"))
    if (ceiling := scored_on.ceiling()) is not None:
        by_name[CEILING] = LearnedModel(CEILING, {}, ceiling, 0.0, float("nan"))
    return Study(scored_on, pools.registration.fingerprint, by_name, len(learn.features), seeds)


def learn_model(
    pools: Pools,
    held_out: HeldOut,
    learn: Samples,
    name: str,
    options: Mapping[str, Any],
    seeds: int,
    speed: bool = False,
) -> LearnedModel:
    """Trains a model for each seed on some programs, and scores it."""
    data = pools.data(held_out.role)
    rankings, seconds, first = [], [], None
    for seed in range(seeds if registry.takes_seed(name) else 1):
        model, spent = timed_fit(name, options, seed, learn)
        seconds.append(spent)
        first = first or model
        rankings.append([predictions(model, data, part.task)[part.rows] for part in held_out.parts])
    assert first is not None
    rate = statements_per_second(first, data, held_out.parts)[1] if speed else float("nan")
    return LearnedModel(name, options, held_out.score(rankings), float(np.mean(seconds)), rate, first)


def predict_scores(model: CostModel, pools: Pools, role: Role, task: TaskData) -> NDArray[np.float64]:
    """Predicts scores of a task's correctly measured programs, (programs,)."""
    (part,) = [part for part in pools.parts(role) if part.task == task]
    return predictions(model, pools.data(role), task)[part.rows]

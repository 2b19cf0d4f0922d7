"""A model of sequences learned from most tasks of a folder of shards, and scored on the rest, with intervals."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.lab.evaluate.scores import Estimate, Tasks, by_chance, plain_figures, score_rankings
from autotune.lab.sequences.model import Options, SequenceModel
from autotune.lab.sequences.shards import Sequences, held_out
from costmodel.dataset.errors import DatasetError
from search_space import strict_json

_MOST_CACHED = 64
"""Tasks that are in memory at a time."""


@dataclass(frozen=True)
class SequenceScores:
    """Result of `scored_sequences`.

    Attributes:
        names: names of the scored tasks.
        learned_tasks, learned_programs: tasks and programs of the training.
        scores: `primitives` and `random` → metric → figure and interval.
    """

    names: Sequence[str]
    learned_tasks: int
    learned_programs: int
    scores: Mapping[str, Mapping[str, Estimate]]

    def to_json(self) -> dict[str, Any]:
        scores = {name: plain_figures(row) for name, row in self.scores.items()}
        learned = {"tasks": self.learned_tasks, "programs": self.learned_programs}
        return {"models": scores, "learned_from": learned, "tasks": list(self.names)}


def scored_sequences(
    folder: Path,
    share: float = 0.1,
    split_seed: int = 0,
    weights: Path | None = None,
    seeds: int = 1,
    options: Options | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> SequenceScores:
    """Trains a model on most tasks of a folder, and scores it on the others.

    Args:
        folder: folder of shards.
        share: share of the scored tasks, where `weights` does not list them.
        split_seed: seed that draws the scored tasks.
        weights: JSON file, network → workload key → how often it occurs; tasks of these workloads are scored on.
        seeds: number of seeds of the model; intervals are over them, too.
        options: options of the model.
        say: called with a sentence.

    Raises:
        DatasetError: no such folder, or no task on one of the two sides.
        MissingExtra: PyTorch is not installed.
    """
    data = Sequences(folder)
    if weights is None:
        learn, test = held_out(data.names, share, split_seed)
        by_network = {"all": np.ones(len(test))}
    else:
        learn, test, by_network = _of_networks(data, weights)
    task = lru_cache(_MOST_CACHED)(data.task)
    seconds = [task(name).seconds for name in test]
    rankings: list[list[NDArray[np.float64]]] = []
    for seed in range(seeds):
        model = SequenceModel(replace(options or Options(), seed=seed))
        model.fit(len(learn), lambda place: (task(learn[place]).sequences, task(learn[place]).seconds), say)
        rankings.append([model.predict(task(name).sequences) for name in test])
    chance = by_chance(seconds)
    tasks = Tasks(by_network, np.array([of.min() for of in seconds]), chance)
    found = {"primitives": score_rankings(rankings, seconds), "random": chance}
    scores = {name: tasks.estimates(of) for name, of in found.items()}
    return SequenceScores(test, len(learn), sum(data.counts[name] for name in learn), scores)


def _of_networks(data: Sequences, path: Path) -> tuple[list[str], list[str], dict[str, NDArray[np.float64]]]:
    try:
        networks = strict_json.loads(path.read_text(encoding="utf-8"))
        times = {str(n): {str(key): float(count) for key, count in of.items()} for n, of in networks.items()}
    except OSError as error:
        raise DatasetError(f"{path}: weights must be a readable file, but: {error.strerror}") from None
    except (ValueError, TypeError, AttributeError) as error:
        raise DatasetError(f"{path}: weights must be network → workload key → times, but {error}") from None
    workloads = {name: name.rpartition(" on ")[0] for name in data.names}
    wanted = {key for of in times.values() for key in of}
    test = [name for name in data.names if workloads[name] in wanted]
    learn = [name for name in data.names if workloads[name] not in wanted]
    if not test or not learn:
        raise DatasetError(f"{path}: weights must leave tasks on both sides, but got {len(learn)} and {len(test)}")
    found = {n: np.array([of.get(workloads[name], 0.0) for name in test]) for n, of in times.items()}
    return learn, test, {n: of for n, of in found.items() if of.any()}

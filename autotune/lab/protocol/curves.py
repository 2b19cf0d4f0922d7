"""Learning curves: scores by the number of programs of each task, or of tasks, to learn from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from autotune.lab.evaluate.samples import samples
from autotune.lab.evaluate.scores import Estimate, plain_figures
from autotune.lab.protocol.pools import Pools
from autotune.lab.protocol.study import HeldOut, learn_model
from costmodel.dataset import TaskPrograms

SHARES = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)


@dataclass(frozen=True)
class CurvePoint:
    """A point on a learning curve.

    Attributes:
        tasks, programs: tasks and programs that the model learned from.
        scores: metric → figure and interval.
    """

    tasks: int
    programs: int
    scores: Mapping[str, Estimate]

    def to_json(self) -> dict[str, Any]:
        """Returns plain data, None for NaN."""
        return {"tasks": self.tasks, "programs": self.programs, "scores": plain_figures(self.scores)}


def curve(
    pools: Pools,
    name: str,
    by: str,
    shares: Sequence[float] = SHARES,
    seeds: int = 5,
    options: Mapping[str, Any] | None = None,
    parts: Sequence[TaskPrograms] | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> list[CurvePoint]:
    """Scores models that learned a share of the programs, on the validation networks.

    Args:
        pools: measured pools.
        name: name of the model.
        by: `programs`: a share of each task; `tasks`: a share of the tasks, each whole. Smaller shares are part of
            larger ones.
        shares: shares of the training data.
        seeds: number of seeds of the model.
        options: options of the model's constructor.
        parts: parts of the pools that shares are taken of; all training data by default.
        progress: called with a sentence.

    Raises:
        ValueError: `by` is neither.
    """
    if by not in ("programs", "tasks"):
        raise ValueError(f"`by` must be programs or tasks, but got by={by!r}")
    everything = list(pools.parts("train") if parts is None else parts)
    validation, points = HeldOut.of(pools, "validation"), []
    rng = np.random.default_rng(0)
    order = rng.permutation(len(everything)).tolist()
    rows = [rng.permutation(part.rows) for part in everything]
    for share in shares:
        if by == "tasks":
            chosen = [everything[place] for place in sorted(order[: max(1, round(share * len(order)))])]
        else:
            counts = [max(2, round(share * len(of))) for of in rows]
            chosen = [TaskPrograms(p.task, np.sort(of[:n])) for p, of, n in zip(everything, rows, counts, strict=True)]
        learn = samples(pools.training, chosen)
        one = learn_model(pools, validation, learn, name, dict(options or {}), seeds)
        scores = validation.tasks.estimates(one.rankings)
        points.append(CurvePoint(len(chosen), len(learn.features), scores))
        progress(f"{len(chosen)} tasks, {len(learn.features)} programs: top-1 {scores['top1'].value:.3f}")
    return points

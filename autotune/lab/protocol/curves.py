"""Learning curves: scores by the number of programs of each task, or of tasks, to learn from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from autotune.lab.evaluate.samples import samples
from autotune.lab.evaluate.scores import Estimate, plain_of
from autotune.lab.protocol.pools import Pools
from autotune.lab.protocol.study import Held, learned
from costmodel.dataset import Part

SHARES = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)


@dataclass(frozen=True)
class Point:
    """A place on a curve.

    Attributes:
        tasks, programs: that were learned from.
        scores: metric → figure and interval.
    """

    tasks: int
    programs: int
    scores: Mapping[str, Estimate]

    def to_json(self) -> dict[str, Any]:
        """Returns plain data, None for NaN."""
        return {"tasks": self.tasks, "programs": self.programs, "scores": plain_of(self.scores)}


def curve(
    pools: Pools,
    name: str,
    by: str,
    shares: Sequence[float] = SHARES,
    seeds: int = 5,
    options: Mapping[str, Any] | None = None,
    parts: Sequence[Part] | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> list[Point]:
    """Scores on the networks to validate with, of a model that has learned a share of what there is.

    Args:
        pools: measured.
        name: of the model.
        by: `programs`, of every task a share; or `tasks`, a share of them whole. Smaller shares are part of larger.
        shares: of what there is to learn from.
        seeds: of the model.
        options: of the model's constructor.
        parts: of the pools, that shares are taken of; all that there is to learn from by default.
        progress: called with a sentence.

    Raises:
        ValueError: `by` is neither.
    """
    if by not in ("programs", "tasks"):
        raise ValueError(f"`by` must be programs or tasks, but got by={by!r}")
    everything = list(pools.parts("train") if parts is None else parts)
    held, found = Held.of(pools, "validation"), []
    rng = np.random.default_rng(0)
    order = rng.permutation(len(everything)).tolist()
    rows = [rng.permutation(part.rows) for part in everything]
    for share in shares:
        if by == "tasks":
            chosen = [everything[place] for place in sorted(order[: max(1, round(share * len(order)))])]
        else:
            counts = [max(2, round(share * len(of))) for of in rows]
            chosen = [Part(p.task, np.sort(of[:n])) for p, of, n in zip(everything, rows, counts, strict=True)]
        learn = samples(pools.known, chosen)
        one = learned(pools, held, learn, name, dict(options or {}), seeds)
        scores = held.tasks.estimates(one.ranked)
        found.append(Point(len(chosen), len(learn.features), scores))
        progress(f"{len(chosen)} tasks, {len(learn.features)} programs: top-1 {scores['top1'].value:.3f}")
    return found

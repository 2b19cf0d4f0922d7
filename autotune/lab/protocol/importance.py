"""Importance of features: a model's loss when one of them is shuffled (Breiman, Random Forests, 2001)."""

from __future__ import annotations

import numpy as np

from autotune.lab.protocol.pools import Pools
from autotune.lab.protocol.registered import Role
from costmodel import metrics
from costmodel.features import NAMES
from costmodel.models.base import CostModel


def importance(
    model: CostModel, pools: Pools, role: Role = "validation", seed: int = 0, programs: int = 256
) -> dict[str, float]:
    """Computes each feature's importance: the mean loss of pairwise accuracy over tasks when the feature is shuffled.

    Values are exchanged between programs of one sketch, so programs stay realistic. The greatest loss is first.

    Args:
        model: trained model.
        pools: measured pools.
        role: role of the tasks to evaluate on.
        seed: seed of the exchange, and of the selection of programs.
        programs: most programs of a task.
    """
    data, rng = pools.data(role), np.random.default_rng(seed)
    losses = np.zeros(len(NAMES))
    parts = pools.parts(role)
    for part in parts:
        chosen = set(rng.permutation(part.rows)[:programs].tolist())
        seconds = data.seconds(part.task)
        blocks = []
        for block in data.features(part.task):
            keep = [place for place, row in enumerate(block.rows.tolist()) if row in chosen]
            if keep:
                blocks.append((seconds[block.rows[keep]], np.ascontiguousarray(block.features[keep])))
        truth = metrics.relative(np.concatenate([of for of, _ in blocks]))
        orders = [rng.permutation(len(of)) for of, _ in blocks]
        accuracy = metrics.pairwise_accuracy(np.concatenate([model.predict(of) for _, of in blocks]), truth)
        for feature in range(len(NAMES)):
            scores = []
            for (_, features), order in zip(blocks, orders, strict=True):
                column = features[:, :, feature].copy()
                features[:, :, feature] = column[order]
                scores.append(model.predict(features))
                features[:, :, feature] = column
            losses[feature] += accuracy - metrics.pairwise_accuracy(np.concatenate(scores), truth)
    found = dict(zip(NAMES, (losses / len(parts)).tolist(), strict=True))
    return dict(sorted(found.items(), key=lambda item: -item[1]))

"""Boosted trees that continue from earlier predictions, and forests whose leaves are learned anew."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from costmodel.models.booster import boost, make_options, trees_for
from costmodel.models.forest import MAX_LEAVES, Forest
from costmodel.models.lightgbm_model import SumLoss
from costmodel.transfer.tasks import Features

Column = NDArray[np.float64]  # (programs,)
BINS = 63  # as in `BoostedModel`


@dataclass(frozen=True)
class Growth:
    """Settings for growing trees.

    Attributes:
        seed: seed of the sampling of features.
        trees: most trees; for few programs half as many as programs, from 8 on.
        leaves, learning_rate, feature_share: options of the boosting.
    """

    seed: int = 0
    trees: int = 100
    leaves: int = 16
    learning_rate: float = 0.1
    feature_share: float = 0.25

    def grow(self, features: Sequence[Features], missing: Column, weight: Column) -> Forest:
        """Grows trees whose sum over a program's statements approximates `missing`.

        Args:
            features: features of each program.
            missing: throughput less its known part.
            weight: weight of each program in the squared error.
        """
        loss = SumLoss(np.array([len(of) for of in features]), missing, weight)
        parameters = make_options(self.seed, self.leaves, self.learning_rate, self.feature_share, BINS)
        text = boost(np.concatenate(list(features)), loss, parameters, trees_for(len(features), self.trees))
        return Forest.from_lightgbm(text)


def by_length(features: Sequence[Features]) -> list[tuple[NDArray[np.int64], NDArray[np.float32]]]:
    """Groups programs by their number of statements: lists indices, and features (n, statements, features)."""
    lengths = np.array([len(of) for of in features])
    groups = []
    for length in np.unique(lengths):
        places = np.flatnonzero(lengths == length)
        groups.append((places, np.stack([features[place] for place in places.tolist()])))
    return groups


def find_leaves(forest: Forest, rows: Features) -> NDArray[np.int64]:
    """Finds the leaf of each row in each tree: (rows, features) -> (trees, rows), columns of `Forest.leaves`."""
    out = np.empty((len(forest.ends), len(rows)), np.int64)
    begin = 0
    for tree, end in enumerate(forest.ends.tolist()):
        left = np.full(len(rows), 0xFFFFFFFF, np.uint32)
        for node in range(begin, end):
            failed = rows[:, forest.features[node]] > forest.thresholds[node]
            left[failed] &= forest.masks[node].view(np.uint32)
        # The first leaf left is the highest bit; columns have the leaves from the last one on.
        out[tree] = np.floor(np.log2(left.astype(np.float64))).astype(np.int64)
        begin = end
    return out


def refit_leaves(
    forest: Forest,
    rows: Features,
    program: NDArray[np.int64],
    missing: Column,
    weight: Column,
    penalty: float,
    passes: int,
) -> Forest:
    """Changes the leaves of trees to fit new programs better, but close to their old values.

    A pass goes from tree to tree and moves each one's leaves by a penalised Newton step on the squared error of the
    programs' sums. Leaves that no new program reaches do not change.

    Args:
        forest: trees to change.
        rows: statements of the new programs, (rows, features).
        program: (rows,) index of the program of each.
        missing: (programs,) wanted sums of the trees.
        weight: (programs,) weights in the loss.
        penalty: weight of a leaf's old value, in programs.
        passes: number of passes over all trees.
    """
    reached = find_leaves(forest, rows)
    leaves = forest.leaves.copy()
    scores = np.zeros(len(rows))
    for tree, of in enumerate(reached):
        scores += leaves[tree, of]
    counts = np.bincount(program, minlength=len(missing))
    hessian = (weight * counts)[program]  # as in `SumLoss`: a program's statements step together
    for _ in range(passes):
        for tree, of in enumerate(reached):
            sums = np.bincount(program, scores, minlength=len(missing))
            gradient = (weight * (sums - missing))[program]
            descent = -np.bincount(of, gradient, minlength=MAX_LEAVES).astype(np.float64)
            # Trees overlap: all of them together must not overshoot.
            step = descent / (np.bincount(of, hessian, minlength=MAX_LEAVES) + penalty) / max(1.0, len(reached) / 4.0)
            leaves[tree] += step
            scores += step[of]
    return replace(forest, leaves=leaves)


NOISES = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
"""Variances of the noise, relative to that of the targets, of which the likelihood selects one."""


def krige_leaves(
    forest: Forest, rows: Features, program: NDArray[np.int64], missing: Column, weight: Column
) -> tuple[Forest, float]:
    """Moves the leaves of trees to the posterior mean of a Gaussian process.

    Two programs are similar by the trees that put them into the same leaf, each weighted by the variance of its leaves.
    This is the kernel of a forest (Davies and Ghahramani, 2014). A posterior mean is a sum over the same leaves, so
    that only their values change, and the cost of predictions stays.

    Args:
        forest: trees to change.
        rows: statements of the new programs, (rows, features).
        program: (rows,) index of the program of each.
        missing: (programs,) wanted increase of the trees' sum.
        weight: (programs,) inverse variance of the noise, relative to each other.

    Returns:
        The trees, and the noise that the likelihood prefers of `NOISES`.
    """
    reached = find_leaves(forest, rows)
    spread = np.array([of[of != 0.0].var() if of.any() else 0.0 for of in forest.leaves])  # padding of a tree is 0
    if not spread.sum() > 0.0:
        return forest, NOISES[-1]
    spread /= spread.sum()
    members = np.zeros((len(reached), MAX_LEAVES, len(missing)))  # programs of each leaf
    for tree, of in enumerate(reached):
        np.add.at(members[tree], (of, program), np.sqrt(spread[tree]))
    flat = members.reshape(-1, len(missing))
    root = np.sqrt(weight / weight.mean())
    values, vectors = np.linalg.eigh(root[:, None] * (flat.T @ flat) * root)
    turned = vectors.T @ (root * missing)
    # Negative logarithms of the likelihood, each at the best common scale of both variances.
    totals = [np.maximum(values, 0.0) + noise for noise in NOISES]
    costs = [len(turned) * np.log((turned**2 / total).sum()) + np.log(total).sum() for total in totals]
    best = int(np.argmin(costs))
    dual = root * (vectors @ (turned / totals[best]))
    moved = (members @ dual) * np.sqrt(spread)[:, None]
    return replace(forest, leaves=forest.leaves + moved), NOISES[best]

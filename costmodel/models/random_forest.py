"""A random forest (Breiman, 2001) on the features of programs, uncertain if its trees disagree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from costmodel.models.base import Scores
from costmodel.models.program_model import Rows, UncertainProgramModel
from costmodel.models.tunable import Range, Tunable


@dataclass(eq=False, kw_only=True)
class RandomForestModel(UncertainProgramModel):
    """A mean over trees, each grown on a sample of the programs and, at each split, of the features.

    Attributes:
        trees: number of trees.
        least_leaf: fewest programs in a leaf.
        feature_share: share of the features that a split chooses from.
        sample: most programs that a tree is grown on.
    """

    name = "random_forest"
    tunable: ClassVar[Mapping[str, Tunable]] = {
        "trees": Range(16, 128, log=True),
        "least_leaf": Range(1, 16, log=True),
        "feature_share": Range(0.05, 0.6),
    }

    trees: int = 48
    least_leaf: int = 2
    feature_share: float = 0.2
    sample: int = 8192

    def learn(self, rows: Rows, target: Scores, weight: Scores) -> dict[str, Any]:
        """Grows the trees; lists their nodes one tree after another, each node's left subtree before its right."""
        from sklearn.ensemble import RandomForestRegressor

        regressor = RandomForestRegressor(
            self.trees,
            min_samples_leaf=self.least_leaf,
            max_features=self.feature_share,
            max_samples=min(len(rows), self.sample),
            random_state=self.seed,
            n_jobs=1,
        ).fit(rows, target, weight)
        trees = [of.tree_ for of in regressor.estimators_]
        return {
            "sizes": np.array([tree.node_count for tree in trees]),
            "split_features": np.concatenate([np.maximum(tree.feature, 0) for tree in trees]),
            "thresholds": np.concatenate([tree.threshold for tree in trees]),
            "lefts": np.concatenate([_own_leaf(tree.children_left) for tree in trees]),
            "rights": np.concatenate([_own_leaf(tree.children_right) for tree in trees]),
            "values": np.concatenate([tree.value[:, 0, 0] for tree in trees]),
        }

    def prepare(self, state: dict[str, Any]) -> None:
        """Turns children into indices among all nodes, and computes the greatest depth."""
        ends = np.cumsum(state["sizes"])
        self._roots = ends - state["sizes"]
        first = np.repeat(self._roots, state["sizes"])
        lefts, rights = state["lefts"] + first, state["rights"] + first
        self._lefts, self._rights = lefts, rights
        node, self._depth = self._roots, 0
        while (inner := node[lefts[node] != node]).size:
            node, self._depth = np.concatenate([lefts[inner], rights[inner]]), self._depth + 1

    def score(self, rows: Rows) -> Scores:
        return _mean(self._by_tree(rows))

    def score_with_deviation(self, rows: Rows) -> NDArray[np.float64]:
        """Predicts the mean and the standard deviation over the trees."""
        by_tree = self._by_tree(rows)
        mean = _mean(by_tree)
        return np.stack([mean, np.sqrt(_mean((by_tree - mean) ** 2))])

    def _by_tree(self, rows: Rows) -> NDArray[np.float64]:
        """Predicts by each tree: (trees, rows). All rows go down all trees at once; a leaf is its own child."""
        at = self.state
        rows = rows.astype(np.float32).astype(np.float64)  # as scikit-learn compares them
        node = np.repeat(self._roots[:, None], len(rows), axis=1)
        row = np.arange(len(rows))
        for _ in range(self._depth):
            right = rows[row, at["split_features"][node]] > at["thresholds"][node]
            node = np.where(right, self._rights[node], self._lefts[node])
        found: NDArray[np.float64] = at["values"][node]
        return found


def _own_leaf(children: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.where(children < 0, np.arange(len(children)), children)


def _mean(by_tree: NDArray[np.float64]) -> Scores:
    total = np.zeros(by_tree.shape[1])
    for of in by_tree:
        total += of
    return total / len(by_tree)

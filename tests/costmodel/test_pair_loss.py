"""Losses on pairs: their gradient is that of what they say, and they compare within tasks alone."""

from __future__ import annotations

import numpy as np
import pytest

from costmodel.models.lightgbm_rank import LambdaRankModel, PairwiseModel
from costmodel.models.pair_loss import GAIN, PairLoss, torch_pair_loss
from tests.costmodel.data import population


def loss(throughput, groups=None, counts=None, lambdarank=False, pairs=6, seed=3):
    count = len(throughput)
    groups = np.zeros(count, np.int64) if groups is None else groups
    counts = np.ones(count, np.int64) if counts is None else counts
    return PairLoss(counts, np.asarray(throughput), groups, np.zeros(count), pairs, lambdarank, seed)


@pytest.mark.parametrize("lambdarank", [False, True])
def test_gradient_and_curvature_are_those_of_the_logistic_loss(lambdarank):
    rng = np.random.default_rng(0)
    throughput, scores, groups = rng.random(12), rng.normal(size=12), np.repeat([4, 9], 6)
    first, second, weight = loss(throughput, groups, lambdarank=lambdarank)._pairs(scores)

    def value(total):
        return (weight * np.log1p(np.exp(total[second] - total[first]))).sum() / 6

    gradient, curvature = loss(throughput, groups, lambdarank=lambdarank).of_programs(scores)
    steps = np.eye(12) * 1e-5
    np.testing.assert_allclose(gradient, [(value(scores + s) - value(scores - s)) / 2e-5 for s in steps], atol=1e-7)
    assert (curvature >= 0).all() and gradient.sum() == pytest.approx(0.0, abs=1e-12)


def test_pairs_are_of_one_task_and_the_faster_is_first():
    rng = np.random.default_rng(1)
    groups, throughput = rng.integers(0, 5, 200), rng.random(200).round(1)
    first, second, weight = loss(throughput, groups, pairs=20)._pairs(rng.normal(size=200))
    assert (groups[first] == groups[second]).all() and (throughput[first] >= throughput[second]).all()
    np.testing.assert_allclose(weight, throughput[first] - throughput[second])
    assert len(set(zip(first.tolist(), second.tolist(), strict=True))) > 1500


def test_lambdarank_weighs_the_top_more():
    throughput = np.linspace(1.0, 0.0, 50)
    first, second, weight = loss(throughput, lambdarank=True, pairs=200)._pairs(throughput)
    top = weight[(first < 3) & (second < 10) & (first != second)].mean()
    assert top > 20 * weight[(first > 30) & (first != second)].mean()


def test_the_rows_of_a_program_share_its_gradient():
    throughput, counts = np.array([1.0, 0.2, 0.5]), np.array([2, 1, 3])
    scores = np.array([0.1, 0.2, 0.0, 0.3, -0.1, 0.4])
    gradient, curvature = loss(throughput, counts=counts)(scores)
    expected, bend = loss(throughput).of_programs(np.array([0.3, 0.0, 0.6]))
    np.testing.assert_allclose(gradient, np.repeat(expected, counts))
    np.testing.assert_allclose(curvature, np.repeat(np.maximum(bend * counts, 1e-4), counts))


def test_the_slope_is_as_much_as_the_values_agree():
    rng = np.random.default_rng(2)
    throughput = rng.random(300)
    noisy = throughput * 4 + rng.normal(size=300)
    found = loss(throughput).slope(noisy)
    assert 0.3 < found < 3
    assert loss(throughput).slope(-noisy) == 0.0
    assert loss(throughput).slope(throughput) == 8.0  # perfect: as much as there is
    assert loss(throughput).slope(np.zeros(300)) == 0.0
    groups = np.repeat(np.arange(3), 100)
    shifted = noisy + groups * 50.0  # what all programs of a task share says nothing
    assert loss(throughput, groups).slope(shifted) == pytest.approx(loss(throughput, groups).slope(noisy))


@pytest.mark.parametrize("kind", [PairwiseModel, LambdaRankModel])
def test_scopes_and_what_cannot_be(kind):
    features, throughput = population(200)
    for scope in ("program", "statements"):
        model = kind(scope=scope, trees=40)
        model.fit(list(features), throughput)
        new, truth = population(200, seed=1)
        assert np.corrcoef(np.argsort(np.argsort(model.predict(new))), np.argsort(np.argsort(truth)))[0, 1] > 0.7
    with pytest.raises(ValueError, match="`scope` must be one of program, statements, but got scope='loop'"):
        kind(scope="loop")
    with pytest.raises(ValueError, match="`pairs` must be at least 1"):
        kind(pairs=0)


def test_the_loss_for_pytorch_is_that_of_sorted_programs():
    torch = pytest.importorskip("torch", reason="needs the package torch")
    rng = np.random.default_rng(3)
    throughput, scores = rng.random(40), rng.normal(size=40)
    throughput[5], scores[7] = throughput[9], scores[3]  # of equal ones the first comes first
    place = np.empty(40)
    place[np.argsort(-scores, kind="stable")] = np.arange(40)
    gain = 2.0 ** (GAIN * throughput) - 1
    ideal = (np.sort(gain)[::-1] / np.log2(np.arange(40) + 2)).sum()
    discount = 1 / np.log2(place + 2)
    weight = abs(gain[:, None] - gain) * abs(discount[:, None] - discount) / ideal
    better = throughput[:, None] > throughput
    losses = np.log1p(np.exp(scores - scores[:, None])) * better
    wanted = (weight * losses).sum() + losses.sum() / better.sum()
    assert torch_pair_loss(*map(torch.from_numpy, (scores, throughput))).item() == pytest.approx(wanted)

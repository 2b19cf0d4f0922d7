"""Methods: what a source's model and a task's own records say together."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from costmodel.features import NAMES
from costmodel.metrics import spearman
from costmodel.models.boosted import sum_scores
from costmodel.models.forest import Forest
from costmodel.transfer import methods
from costmodel.transfer.base import Base, PriorKnowledge
from costmodel.transfer.errors import TransferError
from costmodel.transfer.methods import Calibration, Method
from costmodel.transfer.trees import Growth, by_length, find_leaves, krige_leaves, refit_leaves
from tests.costmodel.data import population
from tests.costmodel.transfer.fakes import task

OPTIONS = {"tasks_trees": 24}
SOURCE = [task(seed, count=60) for seed in range(3)]
BASES = {name: Base.learn(SOURCE, name, OPTIONS) for name in ("lightgbm", "lightgbm_pairwise")}
NEW = task(8, count=160)
LIKE = NEW.throughput / np.exp2(np.stack(NEW.features)[:, :, 11].sum(axis=1) / 8)
OTHER = LIKE / LIKE.max()
"""A truth that is like the source's, and has a part of its own."""


def make_method(name: str, base: str = "lightgbm", reversed_scores: bool = False) -> Method:
    known = PriorKnowledge(BASES[base], NEW, SOURCE)
    return methods.get(name)(ReversedKnowledge(known) if reversed_scores else known, 1)


class ReversedKnowledge(PriorKnowledge):
    """A source that says the contrary."""

    def __init__(self, prior: PriorKnowledge) -> None:
        super().__init__(prior.base, NEW, prior.source)

    def __call__(self, features: np.ndarray) -> np.ndarray:
        return -super().__call__(features)


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("name", methods.METHODS)
class TestEveryMethod:
    """The contract of methods, whatever the source's model."""

    def test_it_knows_the_task_before_it_is_measured(self, name: str, base: str) -> None:
        method, features = make_method(name, base), np.stack(NEW.features)
        np.testing.assert_array_equal(method.predict(features), PriorKnowledge(BASES[base], NEW)(features))
        assert spearman(method.predict(features), NEW.throughput) > 0.5
        assert method.weight == 1.0

    def test_records_make_it_better(self, name: str, base: str) -> None:
        """New programs are predicted better, too, but by methods whose trees cannot split what the source never did."""
        method, features = make_method(name, base), np.stack(NEW.features)
        before = method.predict(features)
        method.fit(list(features[:100]), OTHER[:100])
        after = method.predict(features)
        judged = slice(0, 100) if name in ("fine_tune", "kriging") else slice(100, None)
        assert spearman(after[judged], OTHER[judged]) > spearman(before[judged], OTHER[judged])
        assert 0.0 <= method.weight <= 1.0

    def test_the_same_records_teach_the_same(self, name: str, base: str) -> None:
        found = []
        for _ in range(2):
            method = make_method(name, base)
            method.fit(list(NEW.features[:10]), NEW.throughput[:10])
            method.fit(list(NEW.features[:50]), NEW.throughput[:50])
            found.append(method.predict(np.stack(NEW.features)))
        np.testing.assert_array_equal(*found)

    def test_programs_may_differ_in_statements_and_may_all_fail(self, name: str, base: str) -> None:
        method = make_method(name, base)
        mixed = [*population(12, statements=1)[0], *population(12, statements=4)[0]]
        method.fit(mixed, np.zeros(24))
        found = method.predict(population(9, statements=3)[0])
        assert found.shape == (9,) and np.isfinite(found).all()
        assert method.predict(np.empty((0, 2, len(NAMES)), np.float32)).shape == (0,)


def test_the_weight_of_a_residual_halves_with_the_records() -> None:
    method = methods.Residual(PriorKnowledge(BASES["lightgbm"], NEW), half_life=50)
    method.fit(list(NEW.features[:100]), NEW.throughput[:100])
    assert method.weight == 0.25
    never = methods.ContinuedBoosting(PriorKnowledge(BASES["lightgbm"], NEW))
    never.fit(list(NEW.features[:100]), NEW.throughput[:100])
    assert never.weight == 1.0


@pytest.mark.parametrize("name", ["residual", "continued"])
def test_records_overrule_a_source_that_says_the_contrary(name: str) -> None:
    """Its calibration has no slope then, and what is learned is the task's own."""
    method, features = make_method(name, reversed_scores=True), np.stack(NEW.features)
    assert spearman(method.predict(features), NEW.throughput) < -0.5
    method.fit(list(features[:60]), NEW.throughput[:60])
    assert spearman(method.predict(features[60:]), NEW.throughput[60:]) > 0.3


def test_calibration_is_the_least_squares_line_and_never_falls() -> None:
    rng = np.random.default_rng(0)
    scores, weight = rng.standard_normal(50), rng.random(50) + 0.1
    throughput = 0.3 * scores + 0.5 + 0.1 * rng.standard_normal(50)
    wanted = np.polyfit(scores, throughput, 1, w=np.sqrt(weight))
    found = Calibration.of(scores, throughput, weight)
    np.testing.assert_allclose((found.slope, found.shift), wanted)
    against = Calibration.of(-scores, throughput, weight)
    assert against.slope == 0.0 and against.shift == pytest.approx(np.average(throughput, weights=weight))
    assert Calibration.of(np.ones(3), np.array([0.0, 0.5, 1.0]), np.ones(3)) == Calibration(0.0, 0.5)


def grow_forest() -> tuple[Forest, list[np.ndarray], np.ndarray]:
    features, throughput = population(150)
    return Growth(trees=20).grow(list(features), throughput, np.ones(150)), list(features), throughput


def test_leaves_of_rows_are_those_that_the_forest_adds_up() -> None:
    forest, features, _ = grow_forest()
    rows = np.concatenate(features)
    places = find_leaves(forest, rows)
    found = sum(forest.leaves[tree, of] for tree, of in enumerate(places))
    np.testing.assert_allclose(found, forest.predict(np.ascontiguousarray(rows.T)), rtol=1e-12)


def test_refitted_leaves_fit_better_and_those_without_rows_stay() -> None:
    forest, _, _ = grow_forest()
    features, throughput = population(30, seed=9)
    rows, program = np.concatenate(list(features)), np.repeat(np.arange(30), 2)

    def error(of: Forest) -> float:
        return float(((sum_scores(of, features) - throughput) ** 2).sum())

    errors = [error(forest)]
    for passes in (1, 4, 16):
        after = refit_leaves(forest, rows, program, throughput, np.ones(30), 1.0, passes)
        errors.append(error(after))
        untouched = np.ones(forest.leaves.shape, np.bool_)
        for tree, of in enumerate(find_leaves(forest, rows)):
            untouched[tree, of] = False
        np.testing.assert_array_equal(after.leaves[untouched], forest.leaves[untouched])
    assert errors == sorted(errors, reverse=True) and errors[-1] < 0.5 * errors[0]


def test_kriged_leaves_say_what_the_gaussian_process_says() -> None:
    forest, _, _ = grow_forest()
    learned, throughput = population(30, seed=9)
    asked, _ = population(40, seed=10)
    rng = np.random.default_rng(0)
    missing, weight = throughput + 0.05 * rng.standard_normal(30) - sum_scores(forest, learned), rng.random(30) + 0.5
    rows, program = np.concatenate(list(learned)), np.repeat(np.arange(30), 2)
    after, noise = krige_leaves(forest, rows, program, missing, weight)

    shares = np.array([of[of != 0].var() for of in forest.leaves])
    shares /= shares.sum()

    def kernel(one: np.ndarray, other: np.ndarray) -> np.ndarray:
        alike = np.zeros((len(one), len(other)))
        places = [
            find_leaves(forest, np.concatenate(list(of))).reshape(len(shares), len(of), -1) for of in (one, other)
        ]
        for share, a, b in zip(shares, *places, strict=True):
            alike += share * (a[:, None, :, None] == b[None, :, None, :]).sum(axis=(2, 3))
        return alike

    spread = np.diag(noise * weight.mean() / weight)
    posterior = kernel(asked, learned) @ np.linalg.solve(kernel(learned, learned) + spread, missing)
    np.testing.assert_allclose(sum_scores(after, asked) - sum_scores(forest, asked), posterior, rtol=1e-6, atol=1e-9)
    untouched = np.ones(forest.leaves.shape, np.bool_)
    for tree, of in enumerate(find_leaves(forest, rows)):
        untouched[tree, of] = False
    np.testing.assert_array_equal(after.leaves[untouched], forest.leaves[untouched])


@pytest.mark.parametrize("noise", [0.03, 1.0])
def test_the_likelihood_takes_much_noise_for_much(noise: float) -> None:
    """Little is learned from what a forest cannot explain."""
    forest, features, _ = grow_forest()
    rows, program = np.concatenate(features), np.repeat(np.arange(150), 2)
    rng = np.random.default_rng(1)
    twin = replace(forest, leaves=np.where(forest.leaves != 0, rng.standard_normal(forest.leaves.shape), 0.0))
    truth = sum_scores(twin, np.stack(features))
    missing = truth / truth.std() + noise * rng.standard_normal(150)
    _, found = krige_leaves(forest, rows, program, missing, np.ones(150))
    assert (found <= 0.1) if noise < 0.1 else (found >= 0.3)


def test_the_method_suits_the_source_s_model() -> None:
    assert methods.resolve_method("auto", BASES["lightgbm"].model) == "kriging"
    assert methods.resolve_method("auto", Base.learn(SOURCE, "roofline").model) == "residual"
    assert methods.resolve_method("joint", BASES["lightgbm"].model) == "joint"


def test_methods_refuse_what_makes_no_sense(tmp_path: Path) -> None:
    known = PriorKnowledge(BASES["lightgbm"], NEW, SOURCE)
    with pytest.raises(TransferError, match="`method` must be one of residual, .* but got method='jiont'; did you"):
        methods.get("jiont")
    with pytest.raises(ValueError, match="`half_life` must not be negative, but got half_life=-1"):
        methods.Residual(known, half_life=-1)
    with pytest.raises(ValueError, match="must be positive, but got penalty=0"):
        methods.FineTuning(known, penalty=0)
    with pytest.raises(ValueError, match="must be positive, but got half_life=64"):
        methods.Joint(known, share=0)
    with pytest.raises(TransferError, match="`source` must hold programs for the method joint"):
        methods.Joint(PriorKnowledge(BASES["lightgbm"], NEW))
    roofline = Base.learn(SOURCE, "roofline")
    with pytest.raises(TransferError, match="must be made of boosted trees for the methods fine_tune"):
        methods.FineTuning(PriorKnowledge(roofline, NEW))


@pytest.mark.parametrize("name", ["lightgbm", "lightgbm_pairwise", "roofline"])
@pytest.mark.parametrize("align", ["none", "quantile"])
def test_saved_bases_say_the_same(name: str, align: str, tmp_path: Path) -> None:
    base = Base.learn(SOURCE, name, OPTIONS if name != "roofline" else {}, align)
    base.save(tmp_path / "base.json")
    again, features = Base.load(tmp_path / "base.json"), np.stack(NEW.features)
    np.testing.assert_array_equal(PriorKnowledge(again, NEW)(features), PriorKnowledge(base, NEW)(features))
    assert (again.tasks, again.programs) == (3, 180)
    again.save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "base.json").read_bytes()


def test_bases_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "base.json"
    with pytest.raises(TransferError, match="must be a readable file, but: No such file"):
        Base.load(path)
    path.write_text("{")
    with pytest.raises(TransferError, match="must be JSON, but"):
        Base.load(path)
    path.write_text('{"schema": "autotune.transfer/9"}')
    with pytest.raises(TransferError, match="`schema` must be 'autotune.transfer/1', but got schema='autotune"):
        Base.load(path)
    (tmp_path / "evil.py").write_text("raise SystemExit('was run')\n")
    document = {"schema": "autotune.transfer/1", "model": f"{tmp_path}/evil.py:Mine", "options": {}, "text": ""}
    path.write_text(json.dumps(document))
    with pytest.raises(TransferError, match="must be asked for by its name before its file is read"):
        Base.load(path)
    path.write_text('{"schema": "autotune.transfer/1", "model": "roofline"}')
    with pytest.raises(TransferError, match="a saved model must be whole, but 'options'"):
        Base.load(path)


def test_programs_of_one_length_are_put_together() -> None:
    features = [np.full((length, 2), place, np.float32) for place, length in enumerate((2, 1, 2, 3))]
    found = by_length(features)
    assert [places.tolist() for places, _ in found] == [[1], [0, 2], [3]]
    assert [block.shape for _, block in found] == [(1, 1, 2), (2, 2, 2), (1, 3, 2)]

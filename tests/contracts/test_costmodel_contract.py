"""The contract of cost models: those of the registry, those of the page on adding one, and one of your own.

AUTOTUNE_COST_MODEL=mine.py:Mine adds a model to them.
"""

from __future__ import annotations

import json
import os
import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from costmodel import metrics
from costmodel.features import NAMES
from costmodel.models import registry
from costmodel.models.base import CostModel, UncertainModel
from costmodel.models.tunable import Choice, Range
from tests.costmodel.data import population

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "adding_a_cost_model.md"
OF_PAGE = {f"{name} of its page": name for name in ("Linear", "Sparse", "Perceptron")}
OWN = [name for name in (os.environ.get("AUTOTUNE_COST_MODEL"),) if name]
BLIND = ("random",)  # learn nothing, and see no roofline
QUICK = {"AttentionModel": {"steps": 200}, "SklearnModel": {"n_estimators": 25}}
"""Options with which slow models learn as well as they must in less time; loaded are objects without options."""
EXACT = tuple(registry.MODELS)  # scores do not depend on company to the last bit, rather than nearly


@pytest.fixture(scope="session")
def files_of_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a file for each model of the page."""
    folder = tmp_path_factory.mktemp("page")
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    for block, name in zip(blocks, OF_PAGE.values(), strict=True):
        assert f"class {name}(CostModel):" in block
        (folder / f"{name}.py").write_text(block)
    return folder


@pytest.fixture(
    params=[pytest.param(n, marks=pytest.mark.xdist_group(n)) for n in (*sorted(registry.MODELS), *OF_PAGE, *OWN)]
)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def kind(name: str, files_of_page: Path) -> type[CostModel]:
    return registry.get(f"{files_of_page / OF_PAGE[name]}.py:{OF_PAGE[name]}" if name in OF_PAGE else name)


def new_model(kind: type[CostModel]) -> CostModel:
    return kind(**QUICK.get(kind.__name__, {}))


@cache
def train_once(kind: type[CostModel], count: int = 40) -> CostModel:
    """A model that several tests share and none changes; it leaves what it learns from unchanged."""
    model = new_model(kind)
    features, throughput = population(count)
    before = features.copy(), throughput.copy()
    model.fit(list(features), throughput)
    np.testing.assert_array_equal(features, before[0])
    np.testing.assert_array_equal(throughput, before[1])
    return model


def same(name: str, actual: np.ndarray, expected: np.ndarray) -> None:
    if name in EXACT:
        np.testing.assert_array_equal(actual, expected)
    else:
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)


def test_one_finite_score_a_candidate(kind: type[CostModel]) -> None:
    model = train_once(kind)
    for statements in (1, 2, 5):
        scores = model.predict(population(130, seed=1, statements=statements)[0])
        assert scores.shape == (130,) and scores.dtype == np.float64 and np.isfinite(scores).all()


def test_no_candidates_no_scores(kind: type[CostModel]) -> None:
    assert train_once(kind).predict(np.empty((0, 2, len(NAMES)), np.float32)).shape == (0,)


def test_scores_do_not_depend_on_company_or_layout(name: str, kind: type[CostModel]) -> None:
    model, features = train_once(kind), population(100, seed=1)[0]
    before, scores = features.copy(), model.predict(features)
    np.testing.assert_array_equal(features, before)
    assert len(np.unique(scores)) > 10
    same(name, model.predict(features[37:38]), scores[37:38])
    same(name, model.predict(features[::-3]), scores[::-3])
    same(name, model.predict(np.concatenate([features] * 6)), np.concatenate([scores] * 6))
    columnwise = np.ascontiguousarray(features.transpose(2, 1, 0)).transpose(2, 1, 0)
    same(name, model.predict(columnwise), scores)


def test_the_same_measurements_teach_the_same_whatever_was_learned_before(kind: type[CostModel]) -> None:
    model, (features, throughput), new = new_model(kind), population(40), population(100, seed=1)[0]
    model.fit(list(features[:20]), throughput[:20])
    model.fit(list(features), throughput)
    np.testing.assert_array_equal(model.predict(new), train_once(kind).predict(new))


def test_saved_and_loaded_models_agree(kind: type[CostModel], tmp_path: Path) -> None:
    features = population(100, seed=1)[0]
    for count in (40, 300):
        model, loaded = train_once(kind, count), kind()
        model.save(tmp_path / "model.txt")
        loaded.load(tmp_path / "model.txt")
        np.testing.assert_array_equal(loaded.predict(features), model.predict(features))
        loaded.save(tmp_path / "again.txt")
        assert (tmp_path / "again.txt").read_text() == (tmp_path / "model.txt").read_text()


def test_what_is_saved_is_text_and_another_models_file_is_refused(kind: type[CostModel], tmp_path: Path) -> None:
    train_once(kind).save(tmp_path / "model.txt")
    text = (tmp_path / "model.txt").read_text(encoding="ascii")
    assert text.isprintable() or set(text) - set(filter(str.isprintable, text)) <= {"\n"}
    for wrong in ("", "{}", '{"model": "another", "features": "1:0"}', text[: len(text) // 3]):
        (tmp_path / "wrong.txt").write_text(wrong)
        with pytest.raises(ValueError, match=r"wrong\.txt: a saved (model|ensemble) must"):
            kind().load(tmp_path / "wrong.txt")


def test_learns_an_order(name: str, kind: type[CostModel]) -> None:
    if name in BLIND:
        return
    model, (new, truth) = train_once(kind, 300), population(300, seed=1)
    ordered = metrics.pairwise_accuracy(model.predict(new), truth)
    assert ordered > 0.75, (
        f"a model taught 300 made-up programs must order 75 % of new pairs, but {ordered:.0%} are right"
    )
    assert metrics.pairwise_accuracy(-model.predict(new), truth) < 0.25


def test_learns_from_many_tasks_whose_throughputs_do_not_compare(name: str, kind: type[CostModel]) -> None:
    if name in BLIND:
        return
    parts = [population(80, seed=seed) for seed in range(4)]
    features = [of for part in parts for of in part[0]]
    throughput = np.concatenate([part[1] for part in parts])
    groups = np.repeat(np.arange(4), 80)
    model, (new, truth) = new_model(kind), population(300, seed=9)
    model.fit_tasks(features, throughput, groups)
    ordered = metrics.pairwise_accuracy(model.predict(new), truth)
    assert ordered > 0.75, f"a model taught 4 tasks of 80 must order 75 % of new pairs, but {ordered:.0%} are right"


def test_numbers_of_tasks_are_names_and_options_are_attributes(kind: type[CostModel]) -> None:
    (features, throughput), new = population(24), population(30, seed=9)[0]
    groups, (model, again) = np.repeat([0, 2], 12), (new_model(kind), new_model(kind))
    model.fit_tasks(list(features), throughput, groups)
    again.fit_tasks(list(features), throughput, groups + 7)
    np.testing.assert_array_equal(again.predict(new), model.predict(new))
    assert registry.read_options(again) == QUICK.get(kind.__name__, {})


def test_its_deviations_are_finite_and_its_scores_the_same(kind: type[CostModel], tmp_path: Path) -> None:
    if not issubclass(kind, UncertainModel):
        return
    model, features = train_once(kind), population(130, seed=1)[0]
    features[::2] += (population(65)[0] - features[::2]) * np.linspace(0, 1, 65, dtype=np.float32)[:, None, None]
    assert isinstance(model, UncertainModel)  # of programs ever nearer to those that it knows
    scores, deviations = model.predict_with_deviation(features)
    np.testing.assert_array_equal(scores, model.predict(features))
    assert deviations.shape == scores.shape and np.isfinite(deviations).all() and (deviations >= 0).all()
    assert len(np.unique(deviations)) > 10
    np.testing.assert_array_equal(model.predict_with_deviation(features[5:8])[1], deviations[5:8])
    model.save(tmp_path / "model.txt")
    loaded = kind()
    loaded.load(tmp_path / "model.txt")
    assert isinstance(loaded, UncertainModel)
    np.testing.assert_array_equal(loaded.predict_with_deviation(features)[1], deviations)


def test_it_can_be_made_with_what_it_says_may_be_varied(name: str, kind: type[CostModel]) -> None:
    assert name not in OF_PAGE or not kind.tunable
    for option, over in kind.tunable.items():
        values = over.values if isinstance(over, Choice) else (over.low, over.high)
        assert isinstance(over, Choice) or over.low < over.high
        assert not (isinstance(over, Range) and over.log) or over.low > 0
        for value in values:
            registry.make(name, {option: value}, seed=1)


def test_programs_may_differ_in_statements_and_may_all_fail(kind: type[CostModel]) -> None:
    model = new_model(kind)
    mixed = [*population(12, statements=1)[0], *population(12, statements=4)[0]]
    model.fit(mixed, np.zeros(24))
    assert np.isfinite(model.predict(population(9, statements=3)[0])).all()
    model.fit(mixed[:1], np.ones(1))
    assert np.isfinite(model.predict(population(9)[0])).all()


@pytest.mark.parametrize("name", sorted(set(registry.MODELS) - {"roofline", "random"}))
def test_a_model_that_learns_says_so_when_it_has_not(name: str, tmp_path: Path) -> None:
    model = registry.get(name)()
    model.fit([], np.empty(0))
    with pytest.raises(ValueError, match="must be fitted or loaded before it is used"):
        model.predict(population(1)[0])
    with pytest.raises(ValueError, match="must be fitted or loaded before it is used"):
        model.save(tmp_path / "model.txt")
    with pytest.raises(ValueError, match="must have one entry a program, but got programs=2, throughput=1"):
        model.fit(list(population(2)[0]), np.ones(1))


def test_names_that_are_no_models_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("Number = 3\n")
    for wrong, said in (
        (
            "lightgmb",
            r"must be one of attention, light.*, or module:Class, but got cost_model='lightgmb'; did you mean",
        ),
        ("none.py:Mine", "must name a file that exists, but got cost_model='none.py:Mine'"),
        ("mine.py:Number", "must name a subclass of CostModel"),
        ("mine.py:Mine", "must name something that mine.py has"),
        ("no_such_module:Mine", "must name a module that can be imported"),
    ):
        with pytest.raises(ValueError, match=said):
            registry.get(wrong)


def test_options_are_checked() -> None:
    for options, said in (
        ({"tree": 3}, "must have options among seed, .*, but got 'tree'; did you mean 'trees'"),
        ({"trees": "many"}, "`trees` must be of type int, but got trees='many'"),
        ({"prior": 1}, "`prior` must be of type bool, but got prior=1"),
        ({"leaves": 99}, "`leaves` must be from 2 to 32, but got leaves=99"),
    ):
        with pytest.raises(ValueError, match=said):
            registry.make("lightgbm", options, 0)
    with pytest.raises(ValueError, match="must have options among"):
        registry.make("ensemble", {"tree": 3}, 0)
    assert registry.make("ensemble", {"trees": 30}, 5).options == {"trees": 30}  # type: ignore[attr-defined]


def test_a_file_does_not_make_its_reader_run_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "evil.py").write_text("raise SystemExit('was run')\n")
    for name in ("evil:Mine", f"{tmp_path}/evil.py:Mine"):
        with pytest.raises(ValueError, match="must be asked for by its name before its file is read"):
            registry.get_trusted(name)
        for options in ({"member": name}, {"options": {"member": name}}):
            with pytest.raises(ValueError, match="must be asked for by its name before its file is read"):
                registry.remake("ensemble", options, 0)
            saved = {"model": "ensemble", "member": "ensemble", "options": options, "members": [["{}"]]}
            (tmp_path / "saved.txt").write_text(json.dumps(saved))
            with pytest.raises(ValueError, match="must be asked for by its name before its file is read"):
                registry.make("ensemble", {}, 0).load(tmp_path / "saved.txt")
    assert registry.get_trusted("ridge") is registry.get("ridge")
    (tmp_path / "good.py").write_text("from costmodel.models.roofline import RooflineModel as Mine\n")
    assert registry.get("good:Mine") is registry.get_trusted("good:Mine") is registry.get("roofline")


def test_files_of_one_name_in_two_folders_are_two_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = []
    for folder in (tmp_path / "one", tmp_path / "two"):
        folder.mkdir()
        (folder / "mine.py").write_text("from costmodel.models.ridge import RidgeModel\nclass Mine(RidgeModel): pass\n")
        monkeypatch.chdir(folder)
        kinds.append(registry.get("mine.py:Mine"))
        assert registry.get_trusted("mine.py:Mine") is registry.get(f"{folder}/mine.py:Mine") is kinds[-1]
    assert kinds[0] is not kinds[1]

"""Measured spaces: the community's files of results, what is kept of them, and searches played on them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from autotune.cli.app import app
from autotune.lab.dataset.knob_space import of_task
from autotune.lab.dataset.measured_space import MeasuredSpace
from autotune.lab.dataset.t4 import read_t4, write_t4
from autotune.lab.replay import Method, play
from autotune.tuner.scorer import ModelScorer
from autotune.tuner.search.base import Candidate
from costmodel.dataset import Dataset
from costmodel.dataset.errors import DatasetError
from costmodel.metrics import pairwise_accuracy
from costmodel.models import registry
from costmodel.models.registry import MODELS
from tests.autotune.lab.measured_files import files, results


def test_a_file_of_results_is_read_in_seconds(tmp_path: Path) -> None:
    measured = read_t4(*files(tmp_path))
    assert len(measured) == 20 and measured.missing == 0
    place = measured.find_indices(measured.space.choices([{"block": 64, "tile": 3, "memory": "shared"}]))[0]
    np.testing.assert_allclose(measured.latencies[place], [1e-3, 1.5e-3])
    assert measured.seconds[place] == pytest.approx(1.25e-3) == measured.best
    assert measured.cost_seconds[place] == pytest.approx(0.1 + 0.0025 + 0.025)
    (failed,) = np.flatnonzero(np.isnan(measured.seconds))
    assert measured.errors[failed] == "compile"
    assert measured.values(int(failed)) == {"block": 128, "tile": 1, "memory": "shared"}


def test_without_a_space_there_are_the_values_that_occur(tmp_path: Path) -> None:
    measured = read_t4(files(tmp_path)[0])
    assert [p.values for p in measured.space.parameters] == [(32, 64, 128), (1, 2, 3, 4), ("global", "shared")]
    part = measured.searchable.sketches[0]
    assert part.size == 24 and part.legal(measured.rows).all()
    other = measured.space.choices([{"block": 128, "tile": 4, "memory": "shared"}])
    assert not part.legal(other).any()
    with pytest.raises(DatasetError, match="must be among the 20 of made_T4, but got {'block': 128"):
        measured.find_indices(other)


def test_what_is_written_reads_back(tmp_path: Path) -> None:
    measured = read_t4(*files(tmp_path))
    measured.write(tmp_path / "own")
    write_t4(measured, tmp_path / "again.json", tmp_path / "again.T1.json")
    for found in (MeasuredSpace.open(tmp_path / "own"), read_t4(tmp_path / "again.json", tmp_path / "again.T1.json")):
        assert found.space.parameters == measured.space.parameters
        assert [r.text for r in found.space.restrictions] == ["block * tile <= 256"]
        assert np.array_equal(found.rows, measured.rows)
        assert list(found.errors) == list(measured.errors)
        np.testing.assert_allclose(found.seconds, measured.seconds)
        np.testing.assert_allclose(found.cost_seconds, measured.cost_seconds)


def test_the_last_result_of_a_configuration_counts(tmp_path: Path) -> None:
    twice = [*results(), {**results()[0], "times": {"compilation": 1.0, "runtimes": [0.25]}}]
    measured = read_t4(*files(tmp_path, twice))
    assert len(measured) == 20 and measured.best == pytest.approx(0.25e-3)


def test_random_search_is_expected_to_find_what_draws_find(tmp_path: Path) -> None:
    measured = read_t4(*files(tmp_path))
    seconds = np.nan_to_num(measured.seconds, nan=np.nanmax(measured.seconds))
    rng = np.random.default_rng(0)
    for trials in (1, 3, 10, 20):
        drawn = [seconds[rng.permutation(20)[:trials]].min() for _ in range(4000)]
        assert measured.expected_best(trials) == pytest.approx(np.mean(drawn), rel=0.02)
    with pytest.raises(ValueError, match="from 1 to 20, but got trials=21"):
        measured.expected_best(21)


@pytest.mark.parametrize(("strategy", "model"), [("evolution", "lightgbm"), ("annealing", "ridge"), ("tpe", "random")])
def test_searches_ask_for_each_configuration_once(tmp_path: Path, strategy: str, model: str) -> None:
    measured = read_t4(*files(tmp_path))
    played = play(measured, Method(strategy, model, batch=3), 0, 100)
    assert sorted(played.indices) == list(range(20))
    assert played.best[-1] == measured.best and np.all(np.diff(played.elapsed_seconds) > 0)
    again = play(measured, Method(strategy, model, batch=3), 0, 100)
    assert np.array_equal(again.indices, played.indices)


@pytest.mark.parametrize("model", sorted(MODELS))
def test_every_model_learns_of_parameters(tmp_path: Path, model: str) -> None:
    measured = read_t4(*files(tmp_path))
    space = measured.searchable
    learned = registry.make(model, {}, 0)
    scorer = ModelScorer(space, learned, np.random.default_rng(0), features="knobs")
    candidates = [Candidate(0, tuple(row)) for row in measured.rows.tolist()]
    scorer.observe(candidates[:14], measured.seconds[:14].tolist())
    scorer.refit()
    scores = scorer.score(candidates)
    assert np.isfinite(scores).all()
    if model not in ("random", "roofline"):  # nothing to learn, and nothing to estimate
        worked = np.isfinite(measured.seconds[:14])
        assert pairwise_accuracy(scores[:14][worked], 1.0 / measured.seconds[:14][worked]) > 0.6


def test_a_space_of_parameters_has_no_loops(tmp_path: Path) -> None:
    measured = read_t4(*files(tmp_path))
    with pytest.raises(ValueError, match="must be knobs, but got features='loops'"):
        ModelScorer(measured.searchable, registry.make("ridge", {}, 0), np.random.default_rng(0))


def test_a_budget_ends_a_search(tmp_path: Path) -> None:
    measured = read_t4(*files(tmp_path))
    played = play(measured, Method("random", "random", batch=1), 0, 100, budget=0.5)
    assert played.elapsed_seconds[-2] < 0.5 <= played.elapsed_seconds[-1]


def correct(**changes: Any) -> list[dict[str, Any]]:
    return [{**results()[0], **changes}]


@pytest.mark.parametrize(
    ("document", "rule"),
    [
        (b"\x00", "must be JSON"),
        (b"[]", "must be a T4 file with a list of `results`"),
        (json.dumps({"results": [1]}), "must be a T4 file with a list of `results`"),
        (json.dumps({"results": [{}]}), "must have a `configuration`"),
        (json.dumps({"results": []}), "must have configurations"),
        (json.dumps({"metadata": {"timeunit": "years"}, "results": []}), "`timeunit` .* but got 'years'"),
        (json.dumps({"results": correct(configuration={"block": 33})}), "`block` must be one of"),
        (json.dumps({"results": correct(configuration={"tile": 1})}), "must have `block`"),
        (json.dumps({"results": correct(times={"runtimes": [1, -1]})}), "must have positive `runtimes`"),
        (json.dumps({"results": correct(times={}, measurements=[])}), "must have positive `runtimes`"),
    ],
)
def test_bad_files_get_one_sentence(tmp_path: Path, document: str | bytes, rule: str) -> None:
    space = files(tmp_path)[1]
    (tmp_path / "bad.json").write_bytes(document if isinstance(document, bytes) else document.encode())
    with pytest.raises(DatasetError, match=rule) as caught:
        read_t4(tmp_path / "bad.json", space)
    assert "\n" not in str(caught.value)


def test_a_damaged_archive_is_refused(tmp_path: Path) -> None:
    whole = files(tmp_path)[0].read_bytes()
    (tmp_path / "cut.json.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DatasetError, match="must be a T4 file, but got"):
        read_t4(tmp_path / "cut.json.gz")
    with pytest.raises(DatasetError, match="must be a measured space"):
        MeasuredSpace.open(tmp_path)


def test_a_task_of_a_dataset_is_a_measured_space(tmp_path: Path) -> None:
    data = Dataset.open("tests/datasets/vta")
    task = data.tasks[0]
    measured = of_task(data, task.key)
    write_t4(measured, tmp_path / "task.json.gz", tmp_path / "task.T1.json")
    found = read_t4(tmp_path / "task.json.gz", tmp_path / "task.T1.json")
    assert len(found) == len({(p.sketch, p.values) for p in data.programs(task)})
    sketches = {sketch.name for sketch in data.sketches(task)}
    assert {found.values(place)["sketch"] for place in range(len(found))} <= sketches
    wanted = np.array([np.mean(p.latencies) if p.ok else np.nan for p in data.programs(task)])
    assert np.nanmin(found.seconds) == pytest.approx(np.nanmin(wanted))
    assert np.isnan(found.seconds).sum() == np.isnan(wanted).sum()
    with pytest.raises(DatasetError, match="`task` must be one of"):
        of_task(data, "none")


def test_commands(tmp_path: Path) -> None:
    run = CliRunner()
    t4, t1 = files(tmp_path)
    made = run.invoke(app, ["dataset", "import", str(t4), "--space", str(t1), "-o", str(tmp_path / "own")])
    assert made.exit_code == 0, made.output
    assert "made: 3 parameters, 20 configurations, 1 failed, 0 not measured; the fastest takes 1.250 ms" in made.output
    command = ["dataset", "replay", str(tmp_path / "own"), "--trials", "20", "--seeds", "2", "--strategy", "random"]
    played = run.invoke(app, command)
    assert played.exit_code == 0, played.output
    assert "100.0%" in played.output.splitlines()[-2] and played.output.splitlines()[-1].startswith("score ")
    short = run.invoke(app, [*command[:3], "--trials", "1", "--seeds", "2", "--strategy", "random"]).output
    (told,) = [line for line in short.splitlines() if line.startswith("searches ended after ")]
    assert "with 1 configurations at most; for the rest, " in told and "keeps the best that it had by then" in told
    out = tmp_path / "out.json"
    written = run.invoke(app, ["dataset", "export", str(tmp_path / "own"), "-o", str(out), "--space", str(t1)])
    assert written.exit_code == 0 and len(read_t4(out, t1)) == 20
    bad = run.invoke(app, ["dataset", "import", str(t1), "-o", str(tmp_path / "no")])
    assert bad.exit_code != 0 and "must be a T4 file" in bad.output and not (tmp_path / "no").exists()


def test_the_time_of_all_runs_counts_where_the_file_has_it(tmp_path: Path) -> None:
    """Warming up, launches and observers are among it; the runs that are listed are not counted twice."""
    times = {"compilation": 70.0, "benchmark": 1000.0, "framework": 1.0, "search_algorithm": 0.0, "validation": 2.0}
    made = [
        {"configuration": {"block": 1}, "times": {**times, "runtimes": [0.3, 0.4]}, "invalidity": "correct"},
        {"configuration": {"block": 2}, "times": times, "invalidity": "runtime"},
        {"configuration": {"block": 4}, "times": times, "measurements": [{"name": "time", "value": 0.5}]},
        {"configuration": {"block": 8}, "times": {**times, "benchmark": 0, "runtimes": [500.0]}},
    ]
    measured = read_t4(*files(tmp_path, made)[:1])
    np.testing.assert_allclose(measured.cost_seconds, [1.073, 1.073, 1.073, 0.573])
    write_t4(measured, tmp_path / "again.json")
    np.testing.assert_allclose(read_t4(tmp_path / "again.json").cost_seconds, measured.cost_seconds)


@pytest.mark.parametrize(
    ("values", "rule"),
    [
        ([0, "auto"], "`values` must be numbers or texts, but block has both"),
        ([[1, 2], [2, 1]], r"must be numbers or texts, but block has \[1, 2\]"),
        ([None, 1], "must be numbers or texts, but block has None"),
        ([{"a": 1}], "must be numbers or texts, but block has {'a': 1}"),
    ],
)
def test_values_of_several_kinds_get_one_sentence(tmp_path: Path, values: list[Any], rule: str) -> None:
    made = [{"configuration": {"block": v}, "times": {"runtimes": [1.0]}, "invalidity": "correct"} for v in values]
    with pytest.raises(DatasetError, match=rule):
        read_t4(*files(tmp_path, made)[:1])


@pytest.mark.parametrize("count", [1, 12])
def test_a_space_smaller_than_the_trials_is_played(tmp_path: Path, count: int) -> None:
    made = [
        {"configuration": {"block": 2**n}, "times": {"compilation": 1.0, "runtimes": [1.0 + n]}} for n in range(count)
    ]
    run = CliRunner()
    imported = run.invoke(app, ["dataset", "import", str(files(tmp_path, made)[0]), "-o", str(tmp_path / "own")])
    assert imported.exit_code == 0, imported.output
    played = run.invoke(app, ["dataset", "replay", str(tmp_path / "own"), "--seeds", "1"])
    assert played.exit_code == 0, played.output
    assert "nan" not in played.output and (count > 1 or "score 1.000 (1.000 to 1.000)" in played.output)

"""The comparison of searches with transfer from other tasks and those without."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from benchmarks import results, tables, transfer
from benchmarks.search.replay import FOLDER, ReplayTable
from benchmarks.transfer import Plan, Spaces, compare, correlation, folds, pool_of_table
from benchmarks.transfer_figures import Row, interval, summary, table
from benchmarks.transfer_replay import Pool, replay
from costmodel.dataset import Dataset
from costmodel.features import SECONDS
from costmodel.models.registry import make
from costmodel.transfer import Options, Source
from tests.benchmarks.search import made_up
from tests.benchmarks.search.tiny import TINY
from tests.costmodel.transfer.fakes import WIDE, task

VTA = Path(__file__).parents[1] / "datasets" / "vta"
PLAN = Plan(trials=48, batch=8, seeds=2)
OPTIONS = Options("", model="lightgbm", model_options={"tasks_trees": 100})


def pool(seed: int = 9, count: int = 200) -> Pool:
    """Programs of which the roofline says little."""
    of = task(seed, count=count)
    rng = np.random.default_rng(0)
    features = [np.array(f) for f in of.features]
    seconds = np.where(np.arange(count) % 17 == 3, np.nan, 1e-3 / of.throughput)
    for own in features:
        own[:, SECONDS] = rng.uniform(0, 8)
    return Pool(of.workload, WIDE, features, seconds, np.arange(count) % 2 == 0)


def test_a_replay_measures_each_program_once_and_ends_with_the_pool() -> None:
    of = pool(count=40)
    found = replay(of, make("lightgbm", {}, 0), 0, trials=100, batch=16)
    assert sorted(found.order.tolist()) == list(range(40)) and found.report is None
    assert found.curve[-1] == np.nanmin(of.seconds) and (np.diff(found.curve) <= 0).all()
    assert found.trials_to(found.curve[-1]) == 1 + np.argmax(found.curve == found.curve[-1])
    assert found.trials_to(0.5 * found.curve[-1]) == np.inf
    again = replay(of, make("lightgbm", {}, 0), 0, trials=32, batch=16)
    np.testing.assert_array_equal(again.order, found.order[:32])


def test_a_source_of_the_same_truth_cuts_trials_and_one_of_the_contrary_costs_little() -> None:
    tasks = [task(seed, count=400) for seed in range(3)]
    row = compare(pool(), Source(tasks), OPTIONS, PLAN)
    assert row.cut > 5 and row.slower <= 1.0 and row.dropped == (None, None)
    for of in tasks:
        of.throughput = (1 - of.throughput) / (1 - of.throughput).max()  # type: ignore[misc]
    row = compare(pool(), Source(tasks), OPTIONS, PLAN)
    assert row.slower <= 1.05 and all(at is not None for at in row.dropped)


def row(name: str, plain: float, transfer_trials: float, slower: float = 1.0, correlation: float | None = None) -> Row:
    ends = (plain,) * 2, (transfer_trials,) * 2, slower, (None, 16), correlation
    return Row(name, "cpu", "residual", *ends, apart=(plain,) * 2)


def test_hard_tasks_are_chosen_by_other_searches_than_are_compared() -> None:
    easy = replace(row("a", 64, 8), apart=(4.0, 4.0))
    assert not easy.hard and replace(easy, apart=(17.0, 60.0)).hard
    found = compare(pool(), Source([task(0, count=400)]), OPTIONS, PLAN)
    assert len(found.plain) == len(found.apart) == PLAN.seeds and found.plain != found.apart


def test_a_replay_is_judged_by_the_repeat_that_it_did_not_see() -> None:
    of = pool(count=60)
    repeat = np.random.default_rng(3).permutation(np.arange(60.0))
    seen = replay(of, make("lightgbm", {}, 0), 0, trials=24)
    found = replay(replace(of, again=repeat), make("lightgbm", {}, 0), 0, trials=24)
    np.testing.assert_array_equal(found.order, seen.order)
    for count in range(8, 24):
        best = found.order[:count][np.nanargmin(of.seconds[found.order[:count]])]
        assert found.curve[count - 1] == repeat[best]


def test_a_replay_begins_in_the_order_of_a_pretrained_model() -> None:
    of = pool()
    order = np.argsort(np.nan_to_num(of.seconds, nan=1.0))
    first = np.empty(len(order))
    first[order] = -np.arange(len(order))  # knows all
    found = replay(replace(of, first=first), make("lightgbm", {}, 0), 0, trials=8)
    assert set(found.order[:7].tolist()) == set(order[:7].tolist())


def test_spaces_are_searched_with_what_is_known_of_them_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for end in ("", "_avx2", "_one"):
        made = made_up.table(name=f"tiny{end}")
        replace(made, again=1.001 * made.seconds).save(tmp_path)
    monkeypatch.setattr(transfer, "CPU", (TINY,))
    spaces = Spaces([replace(OPTIONS, method="kriging")], Plan(trials=24, batch=8, seeds=1), tmp_path)
    rows = [row for known, here in transfer.PAIRS for row in spaces.elsewhere(known, here, TINY.name)]
    assert [row.task for row in rows] == ["tiny_avx2", "tiny", "tiny", "tiny_one"]
    assert len({row.setting for row in rows}) == 4 and rows[0].setting == "two threads → AVX2"
    assert all(row.transferred <= row.plain for row in rows)  # it knows all of the 168 candidates


def test_figures_are_means_over_tasks_and_the_worst_of_them() -> None:
    rows = [row("a", 40, 10, 1.02, 0.8), row("b", 8, 16), row("c", 64, 65, 0.9)]
    found = summary(rows)
    assert found["tasks"] == 3 and found["hard_tasks"] == 2
    assert found["cut"] == pytest.approx((4 * 0.5 * 64 / 65) ** (1 / 3))
    assert found["hard_cut"] == pytest.approx((4 * 64 / 65) ** 0.5)
    assert found["worst"] == 1.02 and found["dropped"] == 0.5 and found["correlation"] == 0.8
    assert found["censored"] == pytest.approx(1 / 3)
    assert found["worst_task"] == "a" and found["slower_by_5"] == 0 and found["seeds"] == 2
    low, high = found["cut_interval"]
    assert 0.5 <= low < found["cut"] < high <= 4
    text = table(rows)
    assert f"| workloads | cpu | residual | 3 x 2 | 1.25x ({low:.2f}–{high:.2f}) | 2 | 1.98x (" in text
    assert text.endswith("| +2.0% | 0 | 50% | 0.80 |")
    assert tables.transfer({"rows": json.loads(json.dumps({row.key: row.to_json() for row in rows}))}) == text


def test_several_settings_are_also_taken_together() -> None:
    rows = [row("a", 40, 10), replace(row("b", 40, 20), setting="targets")]
    assert table(rows).splitlines()[-1].startswith("| all of these |  | residual | 2 x 2 | 2.83x (")
    assert "all of these" not in table(rows[:1])


def test_an_interval_narrows_with_more_tasks_and_holds_the_mean() -> None:
    values = np.exp(np.random.default_rng(1).standard_normal(400))
    few, many = interval(values[:20]), interval(values)
    assert few[0] < many[0] < np.exp(np.log(values).mean()) < many[1] < few[1]
    assert interval([2.0, 2.0]) == pytest.approx((2.0, 2.0))


def test_a_table_is_a_pool_of_all_its_candidates_with_the_features_that_a_search_sees() -> None:
    of = ReplayTable.load(FOLDER / "vta_odd.json")
    found = pool_of_table(of)
    assert len(found.features) == len(of.seconds) and found.drawn.sum() == transfer.SAMPLE
    np.testing.assert_array_equal(found.seconds, of.seconds)
    place = int(np.nanargmin(of.seconds))
    number = int(of.population.sketches[place])
    (candidate,) = of.frame.candidates(of.population.take(np.array([place])))
    columns = of.frame.sketches[number].expand(np.array([candidate.choices], np.int32))
    sketch = of.frame.sketches[number]
    expected = of.extractor(sketch.program, sketch.columns, of.hardware)(columns)[0]
    np.testing.assert_array_equal(found.features[place], expected)
    source = Source.of(Dataset.open(VTA))
    row = compare(found, source, OPTIONS, Plan(trials=24, batch=8, seeds=1, estimate=False))
    assert row.programs == len(of.seconds) and row.transferred <= row.plain


def test_folds_keep_what_is_of_one_workload_together() -> None:
    tasks = Dataset.open(VTA).tasks
    parts = folds(tasks, 3)
    assert sorted(t.key for part in parts for t in part) == sorted(t.key for t in tasks)
    assert max(len(part) for part in parts) == 2
    assert folds(tasks, 3) == parts


def test_a_target_goes_with_itself_and_unlike_tasks_do_not_compare() -> None:
    data = Dataset.open(VTA)
    assert correlation(data, data.tasks[0], data.tasks[0]) == pytest.approx(1.0)
    assert correlation(data, data.tasks[0], data.tasks[1]) is None


def test_the_command_prints_what_is_tried(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = Dataset.open(VTA)
    data.select(sorted(data.tasks, key=lambda task: task.workload.flops)[:2]).write(tmp_path / "data")
    given = ["--trials", "24", "--seeds", "1", "--source-model", "lightgbm", "--results", str(tmp_path / "results")]
    assert transfer.main([str(tmp_path / "data"), *given]) == 0
    assert "| workloads | vta | kriging | 2 x 1 |" in capsys.readouterr().out
    assert not (tmp_path / "results").exists()
    with pytest.raises(SystemExit):
        transfer.main([str(tmp_path / "data"), "--trials", "1000"])
    with pytest.raises(SystemExit):
        transfer.main(["--tables"])


def test_the_page_has_each_space_with_what_is_known_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for end in transfer.ENDS.values():
        made = made_up.table(name=f"tiny{end}")
        replace(made, again=1.001 * made.seconds).save(tmp_path)
    monkeypatch.setattr(transfer, "CPU", (TINY,))
    monkeypatch.setattr(transfer, "Spaces", partial(Spaces, folder=tmp_path))
    monkeypatch.setattr(transfer, "MEASURED_DATASET", VTA)
    given = ["--trials", "24", "--seeds", "1", "--source-model", "lightgbm", "--results", str(tmp_path)]
    assert transfer.main(given) == 0
    shown = capsys.readouterr().out
    saved = results.load("transfer", tmp_path)
    assert saved is not None and tables.transfer(saved) == shown.rstrip("\n")
    assert len(saved["rows"]) == 5 and "| AVX2 → two threads | " in shown
    assert "| workloads, whole spaces | vta | kriging | 1 x 1 |" in shown
    assert transfer.main([*given, "--methods", "kriging,residual"]) == 2


def test_several_ways_are_tried_on_spaces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for end in transfer.ENDS.values():
        made_up.table(name=f"tiny{end}").save(tmp_path)
    monkeypatch.setattr(transfer, "CPU", (TINY,))
    monkeypatch.setattr(transfer, "Spaces", partial(Spaces, folder=tmp_path))
    given = ["--trials", "24", "--seeds", "1", "--source-model", "lightgbm", "--methods", "kriging,residual"]
    assert transfer.main([str(VTA), "--tables", "tiny,tiny_avx2", *given]) == 0
    shown = capsys.readouterr().out
    assert shown.count(" trials, ") == 4 and "| workloads, whole spaces | vta | residual | 2 x 1 |" in shown
    assert transfer.main(["--tables", "--across", "targets", *given]) == 0
    shown = capsys.readouterr().out
    assert shown.count(" trials, ") == 8 and "| one thread → two threads | vta | kriging | 1 x 1 |" in shown

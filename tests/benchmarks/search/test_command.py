"""The command on a tiny table: results, picture and table, the same in several processes."""

from __future__ import annotations

import json

import pytest

from benchmarks import results, tables
from benchmarks.search import command, summary, tasks
from benchmarks.search.play import UNIFORM
from benchmarks.search.replay import ReplayTable
from tests.benchmarks.search import made_up
from tests.benchmarks.search.tiny import TINY


@pytest.fixture
def only_tiny(monkeypatch):
    monkeypatch.setattr(command, "select", lambda names, among=(): tasks.select(names, [TINY]))


@pytest.fixture
def run(tmp_path, only_tiny, capsys):
    made_up.table().save(tmp_path)

    def running(*arguments):
        places = {"folder": tmp_path, "results": tmp_path / "results", "picture": tmp_path / "curves.png"}
        paths = [part for name, path in places.items() for part in (f"--{name}", str(path))]
        code = command.main([*arguments, *paths])
        out = capsys.readouterr()
        return code, out.out, out.err, results.load("search", tmp_path / "results")

    return running


def test_searches_are_played_saved_drawn_and_shown(run, tmp_path):
    code, out, err, saved = run("--seeds", "3", "--random-seeds", "20", "--trials", "64", "--models", "lightgbm")
    assert code == 0 and (tmp_path / "curves.png").stat().st_size > 5000
    row = saved["rows"]["tiny"]
    assert list(row["methods"]) == [UNIFORM, "random", "evolution + lightgbm", "annealing + lightgbm"]
    assert row["candidates"] == 168 and row["failed"] == 1
    for name, found in row["methods"].items():
        runs = 20 if name in ("uniform", "random") else 3
        assert {len(trials) for trials in found["trials"].values()} == {runs}
        assert found["curve"]["mean"] == sorted(found["curve"]["mean"])
        low, mean, high = (found["curve"][name] for name in ("low", "mean", "high"))
        assert all(a <= b <= c for a, b, c in zip(low, mean, high, strict=True))
    assert "tiny: trials to 98 % of the best of 168" in err
    assert out.strip() == tables.search(saved)
    assert out.count("| VTA 1x1 4² 32→64 | tiny | 168 |") == 2


def test_a_table_that_is_whole_is_not_played_again(run, monkeypatch):
    given = ("--strategies", "random", "--random-seeds", "4")
    *_, first = run(*given)
    monkeypatch.setattr(command, "play_all", lambda *_: pytest.fail("it is played"))
    assert run(*given)[3] == first


def test_several_processes_find_the_same(run, tmp_path):
    arguments = ("--strategies", "evolution", "--models", "roofline", "--seeds", "2", "--random-seeds", "3")
    rows = []
    for jobs in ("1", "2"):
        rows.append(run(*arguments, "--jobs", jobs)[3]["rows"]["tiny"])
        (tmp_path / "results" / "search.json").unlink()
    for row in rows:
        del row["made"]
        for method in row["methods"].values():
            del method["seconds_a_search"]
    assert rows[0] == rows[1]


def row(expected, candidates, target="cpu", **trials):
    methods = {name: {"trials": {"95 %": found, "98 %": found}, "budget": 4096} for name, found in trials.items()}
    shares = {"95 %": expected, "98 %": expected}
    return {"random_trials": shares, "candidates": candidates, "methods": methods, "target": target}


def test_all_tasks_count_by_kind_and_what_was_cut_off_makes_a_lower_bound():
    rows = {
        "a": row(500.0, 5000, uniform=[400, None], search=[100, 100]),
        "b": row(600.0, 3000, uniform=[600, 600], search=[100, None]),
        "easy": row(15.0, 3000, uniform=[15, 15], search=[1, 2]),
        "simulated": row(900.0, 3000, target="vta", search=[1, 1]),
    }
    found = summary.speedups(rows)
    assert list(found) == ["CPU", "VTA"] and found["VTA"]["95 %"]["search"]["ratio"][0] == pytest.approx(900)
    measured = found["CPU"]["98 %"]["search"]
    assert measured["tasks"] == 3 and measured["cut_off"] == 1 and "uniform" not in found["CPU"]["98 %"]
    expected = (500 / 100 * 600 / ((100 + 3000) / 2) * 15 / 1.5) ** (1 / 3)
    assert measured["ratio"][0] == pytest.approx(expected)


def test_the_table_says_what_is_a_bound():
    rows = {"a": row(500.0, 5000, uniform=[400, None], search=[100, None])}
    rows["a"] |= {"title": "A", "class": "x", "good": {"95 %": 3, "98 %": 2}}
    shown = tables.search({"rows": rows})
    assert "| A | x | 5,000 | 2 | 500 | over 2,248 (1 of 2 cut off) | over 2,098 (1 of 2 cut off) |" in shown
    assert "| search | at least 0.2x |" in shown and "**Measured on the processor**:" in shown


def test_tables_are_collected_and_tasks_listed(tmp_path, only_tiny, capsys):
    arguments = ["collect", "--task", "tiny", "--folder", str(tmp_path), "--parts", str(tmp_path / "parts")]
    assert command.main([*arguments, "--limit", "10"]) == 0
    assert "tiny: not finished; the same command goes on" in capsys.readouterr().out
    assert command.main(["tasks", "--folder", str(tmp_path)]) == 0
    assert "168 candidates of" in (out := capsys.readouterr().out) and out.endswith("table missing\n")


def test_the_facts_of_a_table():
    table = made_up.table()
    assert isinstance(table, ReplayTable)
    assert summary.facts(table).startswith("tiny: 168 candidates, 1 failed, ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--seeds", "0"], "`seeds` must be at least 1, but got seeds=0"),
        ([], "`folder` must hold tables, which `collect` makes, but got "),
        (["collect", "--task", "tiny", "--limit", "0"], "`limit` must be at least 1, but got limit=0"),
    ],
)
def test_bad_options(arguments, message, tmp_path, only_tiny, capsys):
    extra = [] if arguments[:1] == ["collect"] else ["--results", str(tmp_path)]
    assert command.main([*arguments, "--folder", str(tmp_path), *extra]) == 2
    assert message in capsys.readouterr().err


def test_the_tasks_of_the_benchmark_have_names_of_their_own_and_can_be_restricted():
    names = [task.name for task in tasks.TASKS]
    assert len(set(names)) == len(names)
    for task in tasks.TASKS[:2]:
        whole = task.make_space()
        assert json.loads(json.dumps(task.restriction(whole).to_json()))["pruned"] == task.pruned
    with pytest.raises(ValueError, match="`sketches` must be ends of .*, but got 'nowhere'"):
        tasks.SearchTask("x", "x", "x", TINY.make, "vta", sketches=("nowhere",)).restriction(TINY.make_space())

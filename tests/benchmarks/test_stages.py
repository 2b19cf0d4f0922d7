"""All stages by one command: one at a time, what is finished passed over, what is left gone on with."""

from __future__ import annotations

import importlib
import importlib.util
import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import __main__ as command
from benchmarks import readme_table
from benchmarks import stages as known
from benchmarks.__main__ import run
from benchmarks.stages import STAGES, Stage
from benchmarks.tables import TABLES
from measure.host import describe_host
from tests.without_lab import PROGRAMS

PROGRAM = """
import json, pathlib, sys
said, state, word, *more = sys.argv[1:]
pathlib.Path(said).open("a").write(" ".join([word, *more]) + "|")
if len(word) == 1:
    folder = more[more.index("--results") + 1]
    pathlib.Path(folder, f"{word}.json").write_text(json.dumps({"state": json.loads(state), "rows": {}}))
sys.exit(word == "fail")
"""

LAB_STAGES = [stage for stage in STAGES if f"{stage.arguments[0].replace('.', '/')}.py" in PROGRAMS]
CORE_STAGES = [stage for stage in STAGES if stage not in LAB_STAGES]


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stages are lines in a file; one whose first word is `fail` fails, one whose first is a table writes it."""
    (tmp_path / "stage_of_a_test.py").write_text(PROGRAM)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    for module in (command, known):
        monkeypatch.setattr(module, "read_commit", lambda: "0123456789ab")
    return tmp_path / "said"


def stage(table: str, notes: Path, word: str) -> Stage:
    state = {"commit": "0123456789ab", "cpu": describe_host()["cpu"]}
    return Stage(table, ("stage_of_a_test", str(notes), json.dumps(state), word), 60.0)


def words(notes: Path) -> str:
    """Returns the arguments of every program, without the folder of its results, which belongs to the test."""
    return notes.read_text().replace(f" --results {notes.parent}", "")


def test_what_is_finished_is_passed_over_until_the_code_changes(programs: Path, monkeypatch: Any, capfd: Any) -> None:
    folder = programs.parent
    stages = [stage("a", programs, "a"), stage("b", programs, "fail"), stage("c", programs, "c")]
    assert run(stages, math.inf, folder) == 1
    assert words(programs) == "a|fail|c|"
    assert "b failed with code 1; the others go on" in capfd.readouterr().err
    assert run(stages, math.inf, folder) == 1
    assert words(programs) == "a|fail|c|fail|"
    assert run([stages[0], stages[2]], math.inf, folder) == 0
    monkeypatch.setattr(known, "read_commit", lambda: "another")
    assert run(stages[:1], math.inf, folder) == 1, "what it writes is of the commit before"
    assert words(programs) == "a|fail|c|fail|a|"


def test_long_tables_are_finished_on_any_processor(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for table, state, finished in (
        ("tvm", {"commit": "0123456789ab"}, True),
        ("tvm", {"commit": "another"}, False),
        ("sizes", {"commit": "0123456789ab"}, False),
        ("sizes", {"commit": "0123456789ab", "cpu": describe_host()["cpu"]}, True),
        ("sizes", {"commit": "0123456789ab", "cpu": "another"}, False),
    ):
        (programs.parent / f"{table}.json").write_text(json.dumps({"state": state, "rows": {}}))
        assert Stage(table, (), 1.0).is_finished(programs.parent) is finished


def test_a_stage_is_told_how_long_it_has(programs: Path) -> None:
    assert run([stage("x", programs, "rows wait")], 5.0, programs.parent) == 1
    assert words(programs) == "rows wait --minutes 5.0|"
    assert run([stage("x", programs, "rows wait")], 0.0, programs.parent) == 1
    assert words(programs) == "rows wait --minutes 5.0|"


def test_a_table_of_readme_is_measured_in_one_day() -> None:
    claimed = {line.table for line in readme_table.LINES}
    daily = [one for one in STAGES if not one.is_long]
    assert claimed - {"gpu"} <= {one.table for one in daily}
    assert sum(one.minutes for one in daily) <= 500
    assert sum(one.minutes for one in STAGES if one.is_long) <= 600


def test_every_stage_is_a_program_of_its_own_table() -> None:
    assert len({s.table for s in STAGES}) == len(STAGES) and {s.table for s in STAGES} <= set(TABLES)
    for one in STAGES:
        assert importlib.util.find_spec(one.arguments[0]) is not None


@pytest.mark.parametrize("stage", CORE_STAGES, ids=lambda stage: stage.table)
def test_every_stage_ends_when_it_is_told_to(stage: Stage, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check_end(stage, tmp_path, capsys)


def check_end(stage: Stage, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Runs a stage for no time at all, and expects no result."""
    name, *words = stage.arguments
    if stage.table in ("pytorch", "training"):
        pytest.importorskip("torch", reason="needs the package torch")
    name = f"{name}.__main__" if hasattr(importlib.import_module(name), "__path__") else name
    assert importlib.import_module(name).main([*words, "--minutes", "0", "--results", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "no row is measured yet\n" and not list(tmp_path.iterdir())


def test_the_list_and_what_is_refused(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert command.main(["--list", "--only", "networks"]) == 0
    assert capsys.readouterr().out.count("  networks_") == 4
    shown = []
    for more in ([], ["--long"]):
        assert command.main(["--list", *more]) == 0
        shown.append([line.split()[-1] for line in capsys.readouterr().out.splitlines()])
    assert sorted(shown[0] + shown[1]) == sorted(one.table for one in STAGES)
    assert "networks_0_2" in shown[0] and "networks_1000_2" in shown[1]
    with pytest.raises(SystemExit):
        command.main(["--only", "speed"])
    assert "`--only` must be among operators" in capsys.readouterr().err
    monkeypatch.setattr(command, "read_commit", lambda: "0123456789ab+")
    assert command.main([]) == 2
    assert "must be a commit" in capsys.readouterr().err


def test_interpreter_is_this_one() -> None:
    assert STAGES[0].command(math.inf) == [sys.executable, "-m", *STAGES[0].arguments]


def test_a_second_processor_has_a_folder(programs: Path, tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    second = tmp_path / "second"
    second.mkdir()
    monkeypatch.setattr(command, "STAGES", (stage("a", programs, "a"),))
    monkeypatch.setattr(command, "PAGES", ())
    assert command.main(["--results", str(second)]) == 0
    assert programs.read_text() == f"a --results {second}|" and not (tmp_path / "a.json").exists()
    assert command.main(["--results", str(second), "--list"]) == 0
    assert command.main(["--results", str(tmp_path), "--list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["finished", "60"]

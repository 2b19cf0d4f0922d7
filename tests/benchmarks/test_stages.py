"""All stages by one command: one at a time, what is finished passed over, what is left gone on with."""

from __future__ import annotations

import importlib.util
import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import __main__ as command
from benchmarks.__main__ import STAGES, Finished, Stage, run
from measure.host import describe_host

SAY = "import sys, pathlib; pathlib.Path(sys.argv[1]).open('a').write(' '.join(sys.argv[2:]) + '|')"


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stages are lines in a file; one whose first word is `fail` fails."""
    (tmp_path / "stage_of_a_test.py").write_text(f"{SAY}\nsys.exit(sys.argv[2] == 'fail')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(command, "commit_of", lambda: "0123456789ab")
    return tmp_path / "said"


def stage(name: str, said: Path, word: str, minutes: float = 1.0, table: str = "") -> Stage:
    return Stage(name, ("stage_of_a_test", str(said), word), minutes, table)


def test_what_is_finished_is_passed_over_until_the_code_changes(programs: Path, monkeypatch: Any, capfd: Any) -> None:
    stages = [stage("a", programs, "one"), stage("b", programs, "fail"), stage("c", programs, "three")]
    folder = programs.parent
    assert run(stages, math.inf, Finished(folder)) == 1
    assert programs.read_text() == "one|fail|three|"
    assert "b failed with code 1; the others go on" in capfd.readouterr().err
    assert run(stages, math.inf, Finished(folder)) == 1
    assert programs.read_text() == "one|fail|three|fail|"
    monkeypatch.setattr(command, "commit_of", lambda: "another")
    assert run(stages[:1], math.inf, Finished(folder)) == 0
    assert programs.read_text() == "one|fail|three|fail|one|"


def test_no_stage_is_begun_that_does_not_fit(programs: Path, capfd: Any) -> None:
    stages = [stage("long", programs, "one", 60.0), stage("bounded", programs, "two", 60.0, table="x")]
    assert run(stages, 5.0, Finished(programs.parent), programs.parent) == 1
    assert programs.read_text() == "two --minutes 5.0|"
    assert "long takes about 60 minutes, 5 are left" in capfd.readouterr().err


def test_a_stage_whose_rows_wait_is_not_finished(programs: Path) -> None:
    folder = programs.parent
    collecting, finished = stage("x", programs, "one", table="x"), Finished(folder)
    assert run([collecting], math.inf, finished, folder) == 1 and collecting not in finished
    state = {"commit": "another", "cpu": describe_host()["cpu"]}
    for commit, code in (("another", 1), ("0123456789ab", 0)):
        (folder / "x.json").write_text(json.dumps({"state": {**state, "commit": commit}, "rows": {}}))
        assert run([collecting], math.inf, finished, folder) == code
    assert collecting in finished and programs.read_text() == "one|one|one|"


def test_every_stage_is_a_program_of_its_own_name() -> None:
    assert len({s.name for s in STAGES}) == len(STAGES)
    for one in STAGES:
        assert importlib.util.find_spec(one.arguments[0]) is not None


def test_the_list_and_what_is_refused(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert command.main(["--list", "--only", "networks"]) == 0
    assert capsys.readouterr().out.count("min  networks") == 4
    with pytest.raises(SystemExit):
        command.main(["--only", "speed"])
    assert "`--only` must be among operators" in capsys.readouterr().err
    monkeypatch.setattr(command, "commit_of", lambda: "0123456789ab+")
    assert command.main([]) == 2
    assert "must be a commit" in capsys.readouterr().err


def test_interpreter_is_this_one() -> None:
    assert command.command(STAGES[0], math.inf) == [sys.executable, "-m", *STAGES[0].arguments]

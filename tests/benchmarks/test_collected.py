"""Tables of one state: rows wait until all are there, and what is of another state is not mixed in."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import provenance, results, table
from benchmarks.collected import (
    OF_ANY_PROCESSOR,
    MixedTable,
    RowCollection,
    add_options,
    add_picture,
    check,
    collect,
    describe_source,
    find_picture,
)
from benchmarks.provenance import is_whole, read_commit
from tests.benchmarks.waiting import waiting

SETTINGS = {"trials": 8, "threads": 2}


def test_rows_wait_until_all_are_there(tmp_path: Path, state: dict[str, Any]) -> None:
    old = {"rows": {"a": {"seconds": 9.0}}}
    (tmp_path / "x.json").write_text(json.dumps(old))
    first = RowCollection("x", SETTINGS, ["a", "b"], tmp_path)
    assert first.missing == ["a", "b"]
    first.add("b", {"seconds": 1.0})
    assert json.loads((tmp_path / "x.json").read_text()) == old
    again = RowCollection("x", SETTINGS, ["a", "b"], tmp_path)  # another process goes on
    assert again.missing == ["a"]
    again.add("a", {"seconds": 2.0})
    whole = json.loads((tmp_path / "x.json").read_text())
    assert list(whole["rows"]) == ["a", "b"] and whole["state"]["settings"] == SETTINGS
    assert {row["made"]["commit"] for row in whole["rows"].values()} == {"0123456789ab"}
    assert not (tmp_path / "unfinished" / "x.json").exists()
    assert not RowCollection("x", SETTINGS, ["a", "b"], tmp_path).missing
    check("x", whole)
    assert whole["at"] == "0123456789ab"
    whole["at"] = "abcdef012345"  # of packages and benchmarks: where the command gives the rows
    assert describe_source(whole).startswith("a processor, 2 cores; commit abcdef012345, 2")
    assert describe_source({**whole, "at": ""}).startswith("a processor, 2 cores; commit 0123456789ab, 2")
    assert " Settings: `trials=8`, `threads=2`. With numpy 2.0." in describe_source(whole)
    whole["state"]["settings"] = {"precisions": ["a", "b"], "each_task": True, "inductor": False}
    for row, unsteady in zip(whole["rows"].values(), (0.02, 0.5), strict=True):
        row["unsteady"] = unsteady
    assert " Measurement noise: 26% in the median row, 50% at most. With numpy" in describe_source(whole)
    assert "`precisions=a, b`, `each_task=yes`, `inductor=no`. " in describe_source(whole)
    whole["state"]["settings"] = {"hardware": {"name": "small", "log_batch": 0}, "limits": {"rows": 4, "kept": True}}
    assert "`hardware=small`, `limits=rows 4, kept yes`. " in describe_source(whole)


@pytest.mark.parametrize("key", ["commit", "versions"])
def test_another_state_begins_anew(tmp_path: Path, state: dict[str, Any], key: str, capfd: Any) -> None:
    RowCollection("x", SETTINGS, ["a", "b"], tmp_path).add("a", {})
    state.update({key: {"numpy": "3.0"} if key == "versions" else "another"})
    assert RowCollection("x", SETTINGS, ["a", "b"], tmp_path).missing == ["a", "b"]
    assert "1 rows in x.json are of another state: measured anew" in capfd.readouterr().err


def test_rows_that_wait_are_not_lost_to_other_settings(tmp_path: Path) -> None:
    RowCollection("x", SETTINGS, ["a", "b"], tmp_path).add("a", {})
    rule = r"`settings` of x must be \{'trials': 8, .*, as of 1 rows that wait in .*x.json, but are \{'trials': 9"
    with pytest.raises(MixedTable, match=rule):
        RowCollection("x", {**SETTINGS, "trials": 9}, ["a", "b"], tmp_path)
    RowCollection("x", SETTINGS, ["a", "b"], tmp_path).add("b", {})
    assert RowCollection("x", {**SETTINGS, "trials": 9}, ["a", "b"], tmp_path).missing == ["a", "b"]  # none wait


@pytest.mark.parametrize("key, value", [("cpu", "another processor"), ("cores", 64)])
def test_rows_that_wait_are_not_lost_to_another_machine(
    tmp_path: Path, state: dict[str, Any], key: str, value: Any
) -> None:
    RowCollection("x", SETTINGS, ["a", "b"], tmp_path).add("a", {"of": "the first"})
    first = f"{state['cpu']}, {state['cores']} cores"
    state[key] = value
    state["commit"] = "ba9876543210"  # whatever else differs
    here = f"{state['cpu']}, {state['cores']} cores"
    rule = f"`results` of x must be a folder for {here}, but 1 rows of {first} wait in .*x.json"
    with pytest.raises(MixedTable, match=rule):
        RowCollection("x", SETTINGS, ["a", "b"], tmp_path)
    RowCollection("x", SETTINGS, ["a"], tmp_path / "second").add("a", {})
    assert waiting("x", tmp_path)["a"]["of"] == "the first"
    assert json.loads((tmp_path / "second" / "x.json").read_text())["state"][key] == value


def test_long_tables_take_rows_of_several_processors_and_say_of_which(tmp_path: Path, state: dict[str, Any]) -> None:
    name = OF_ANY_PROCESSOR[1]

    def row(title: str) -> dict[str, Any]:
        times = {"autotune float32": 1e-3, "onnxruntime": 2e-3}
        told = {"title": title, "held_out": False, "tasks": 3, "built": {}, "resident_bytes": {}, "missing": {}}
        return {**told, "seconds": times, "halves": {}, "unsteady": 0.01}

    RowCollection(name, SETTINGS, ["a", "b", "c"], tmp_path).add("a", row("one"))
    file = tmp_path / "unfinished" / f"{name}.json"
    before = json.loads(file.read_text())
    before["state"] |= {"cpu": "a processor", "cores": 2}  # as it was kept when these were of one processor, too
    file.write_text(json.dumps(before))
    state["cpu"] = "another"
    rows = RowCollection(name, SETTINGS, ["a", "b", "c"], tmp_path)
    assert rows.missing == ["b", "c"]
    rows.add("b", row("two"))
    rows.add("c", row("three"))
    whole = json.loads((tmp_path / f"{name}.json").read_text())
    check(name, whole)
    check(f"second/{name}", whole)
    assert "cpu" not in whole["state"] and {key: found["made"]["cpu"] for key, found in whole["rows"].items()} == {
        "a": "a processor", "b": "another", "c": "another",
    }  # fmt: skip
    text = table.regenerate(f"<!-- table:{name} -->\n<!-- /table -->", tmp_path)
    assert "a processor, 2 cores (1 rows) and another, 2 cores (2 rows); commit 0123456789ab" in text
    assert "| processor |" in text and "| a processor |" in text and "| another |" in text
    state["commit"] = "ba9876543210"
    assert RowCollection(name, SETTINGS, ["a", "b", "c"], tmp_path).missing == ["a", "b", "c"]
    with pytest.raises(MixedTable, match="`cpu` of rows of x must be a processor, but that of b is another"):
        check("x", {**whole, "state": {**whole["state"], "cpu": "a processor", "cores": 2}})
    whole["rows"]["b"]["made"]["commit"] = "another"
    with pytest.raises(MixedTable, match="`commit` of rows of networks_10_2 must be 0123456789ab"):
        check(name, whole)


def options(folder: Path, rows: str | None = None, minutes: float = 1.0) -> argparse.Namespace:
    return argparse.Namespace(rows=rows, minutes=minutes, results=folder)


def test_a_command_measures_what_is_chosen_and_missing(tmp_path: Path, capsys: Any) -> None:
    measured: list[str] = []

    def measure(name: str) -> dict[str, Any]:
        if name == "c" and len(measured) < 3:
            raise RuntimeError("stopped")
        measured.append(name)
        return {"is": name}

    def run(*arguments: Any, settings: dict[str, Any] = SETTINGS) -> int:
        how = (settings, ["a", "b", "c"], measure, lambda row: f"row {row['is']}")
        return collect(options(tmp_path, *arguments), "x", *how, lambda document: ",".join(document["rows"]))

    assert run("b") == 0 and measured == ["b"]
    out = capsys.readouterr()
    assert out.out == "b\n" and out.err == "b: row b (0 s)\n"
    assert run(None, 0.0) == 0 and measured == ["b"]
    with pytest.raises(RuntimeError, match="stopped"):
        run()
    assert measured == ["b", "a"], "what was measured before is kept"
    measured.append("")
    capsys.readouterr()
    assert run() == 0 and capsys.readouterr().out == "a,b,c\n"
    for given, settings, rule in ((("d",), SETTINGS, "`rows` must be of a, b, c"),):
        assert run(*given, settings=settings) == 2 and rule in capsys.readouterr().err
    (tmp_path / "x.json").unlink()
    assert run("a", 0.0) == 0 and capsys.readouterr().out == "no row is measured yet\n"


def test_a_table_that_grows_keeps_its_rows(tmp_path: Path, state: dict[str, Any]) -> None:
    RowCollection("x", SETTINGS, ["a"], tmp_path).add("a", {})
    assert RowCollection("x", SETTINGS, ["a", "b"], tmp_path).missing == ["b"]


def test_code_that_changes_meanwhile_ends_the_table(tmp_path: Path, state: dict[str, Any]) -> None:
    rows = RowCollection("x", SETTINGS, ["a", "b"], tmp_path)
    with pytest.raises(MixedTable, match="`row` must be one of a, b, but got row='c'"):
        rows.add("c", {})
    state["commit"] = "ba9876543210"
    with pytest.raises(MixedTable, match="x began at 0123456789ab and is at ba9876543210"):
        rows.add("a", {})


def test_changed_files_are_never_gone_on_from_and_make_no_table(tmp_path: Path, state: dict[str, Any]) -> None:
    RowCollection("x", SETTINGS, ["a", "b"], tmp_path).add("a", {"from": "the commit"})
    state["commit"] = "0123456789ab+"
    RowCollection("x", SETTINGS, ["a", "b"], tmp_path).add("a", {})
    rows = RowCollection("x", SETTINGS, ["a", "b"], tmp_path)
    assert rows.missing == ["a", "b"]
    rows.add("a", {})
    rows.add("b", {})
    assert not (tmp_path / "x.json").exists()
    assert waiting("x", tmp_path)["a"]["from"] == "the commit", "what waits is not lost"
    with pytest.raises(MixedTable, match=r"must be of a commit, but are of changed files: 0123456789ab\+"):
        check("x", json.loads((tmp_path / "unfinished" / "x+.json").read_text()))


def test_tables_refuse_rows_of_several_states(tmp_path: Path, state: dict[str, Any]) -> None:
    rows = RowCollection("seeds", SETTINGS, ["1", "2"], tmp_path)
    for name in ("1", "2"):
        rows.add(name, {"title": name, "trials": 8, "seconds": {"0": 1e-3, "1": 2e-3}})
    text = table.regenerate("<!-- table:seeds -->\n<!-- /table -->", tmp_path)
    assert "a processor, 2 cores; commit 0123456789ab" in text
    document = json.loads((tmp_path / "seeds.json").read_text())
    document["rows"]["2"]["made"]["commit"] = "another"
    (tmp_path / "seeds.json").write_text(json.dumps(document))
    with pytest.raises(MixedTable, match="`commit` of rows of seeds must be 0123456789ab, but that of 2 is another"):
        table.regenerate("<!-- table:seeds -->\n<!-- /table -->", tmp_path)


def test_the_commit_is_the_newest_that_changed_what_is_measured(tmp_path: Path) -> None:
    def git(*words: str) -> str:
        who = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
        return subprocess.run(["git", *who, *words], cwd=tmp_path, capture_output=True, text=True, check=True).stdout

    assert read_commit(tmp_path) == "" and not is_whole("")
    git("init", "-q")
    for file in ("code/a.py", "bench/b.py", "docs.md"):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text("1")
    git("add", "code")
    git("commit", "-qm", "code")
    first = git("rev-parse", "--short=12", "HEAD").strip()
    of = (tmp_path, ["code"], ["bench/*.py"])
    assert read_commit(*of) == f"{first}+"  # what measures it is in no commit
    git("add", ".")
    git("commit", "-qm", "all else")
    assert read_commit(*of) == first
    (tmp_path / "docs.md").write_text("2")
    assert read_commit(*of) == first
    for file in ("code/a.py", "bench/b.py"):
        (tmp_path / file).write_text("2")
        assert read_commit(*of) == f"{first}+" and not is_whole(read_commit(*of))
        git("checkout", "-q", file)
    (tmp_path / "code" / "new.py").write_text("1")
    assert read_commit(*of) == f"{first}+"
    assert is_whole(first)
    assert provenance.ROOT.joinpath(provenance.MEASURED_PATHS[0]).is_dir()


def test_what_a_cpu_measures_leaves_the_code_of_gpus_out(tmp_path: Path) -> None:
    programs = ("networks", "operators", "row_wise", "language", "vta", "throughput")
    code = f"import sys, {', '.join(f'benchmarks.{name}' for name in programs)}\n"
    code += "from targets import registry\nfor name in ('cpu', 'vta'): registry.get(name)\nprint(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=provenance.ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    loaded = set(done.stdout.split())
    assert "targets.vta" in loaded
    assert {name for name in loaded if name.startswith("targets.cuda.")} == {"targets.cuda.telemetry"}  # a GPU's name

    def git(*words: str) -> str:
        who = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
        return subprocess.run(["git", *who, *words], cwd=tmp_path, capture_output=True, text=True, check=True).stdout

    git("init", "-q")
    for name in ("autotune", "targets/cuda", "targets/cpu"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "a.py").write_text("1")
        git("add", ".")
        git("commit", "-qm", name)
    newest = git("rev-parse", "--short=12", "HEAD").strip()
    (tmp_path / "targets" / "cuda" / "a.py").write_text("2")
    assert read_commit(tmp_path) == newest and read_commit(tmp_path, provenance.EVERYWHERE) == f"{newest}+"
    git("commit", "-qam", "a GPU's")
    assert read_commit(tmp_path) == newest != read_commit(tmp_path, provenance.EVERYWHERE)


def test_a_second_processor_leaves_pictures_of_pages_as_they_are(tmp_path: Path) -> None:
    parser = argparse.ArgumentParser()
    add_options(parser)
    add_picture(parser, "roofline.png")

    def find(*arguments: str) -> Path | None:
        return find_picture(parser.parse_args(arguments))

    assert find() == results.DOCS / "roofline.png"
    assert find("--results", str(tmp_path)) is None
    assert find("--results", str(tmp_path), "--picture", "own.png") == Path("own.png")

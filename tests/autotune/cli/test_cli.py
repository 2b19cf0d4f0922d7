"""The command line: what it prints, writes and exits with."""

from __future__ import annotations

import errno
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import get_args, get_type_hints

import numpy as np
import onnx
import pytest
import typer.main
from onnx import TensorProto, helper, numpy_helper
from typer.testing import CliRunner

from autotune import __version__
from autotune.cli.app import app
from autotune.cli.options import KEYS, KeyCommand
from autotune.config import RunConfig, find_description
from autotune.run_files import write_text
from autotune.tuner.finals import is_final
from measure.database import Database
from search_space.hardware import Hardware
from targets import registry
from targets.cpu.figures import load
from targets.cpu.host import cycle_rates
from tests.autotune import fakes
from tests.without_lab import COMMANDS, has_lab

SMALL = "workload: {operator: matmul, m: 24, n: 32, k: 16}\ntrials: 6\nsearch: {batch: 3}\n"
TASK_KEYS = {
    *("name", "workload", "target", "weight", "algorithm", "trials", "best_seconds", "gflops", "peak_share"),
    *("spread", "cache", "trials_per_second", "candidates_per_second", "correct", "errors", "reference"),
    *("phases", "metrics", "reference_seconds", "seed", "trace"),
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.yaml").write_text(SMALL)
    return tmp_path


def call(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_help_and_version_are_quick():
    best = np.inf
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run([sys.executable, "-m", "autotune", "--help"], capture_output=True, text=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        # Of the processor's time: tests in other processes keep the cores busy.
        best = min(best, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
    assert done.returncode == 0 and "lower" in done.stdout
    assert 0.01 < best < 0.5
    assert call("--version").output == f"autotune {__version__}\n"


def test_help_groups_commands_by_their_use():
    panels = re.split(r"─ ([A-Z][a-z ]+) ─", call("--help").output)
    commands = {
        title: re.findall(r"^│ (\w+) ", text, re.MULTILINE)
        for title, text in zip(panels[1::2], panels[2::2], strict=True)
    }
    assert list(commands) == ["Options", "Use", "Measure on other machines", "Research"]
    assert commands["Use"][:3] == ["run", "compile", "bench"] and "database" in commands["Use"]
    assert commands["Measure on other machines"] == ["worker", "tracker"]
    assert sorted(commands["Research"]) == sorted(("sweep", *(COMMANDS if has_lab() else ())))


def test_importing_the_package_imports_no_library():
    code = "import autotune, sys; print({'numpy', 'pydantic', 'rich', 'onnx'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def key_options():
    """Command, option, its type, and key of every option that sets a key of the configuration."""
    for name, command in typer.main.get_command(app).commands.items():
        if isinstance(command, KeyCommand):
            hints = get_type_hints(command.callback)
            for option in command.get_params(typer.Context(command)):
                if option.name in KEYS:
                    yield name, option, get_args(hints[option.name])[0], KEYS[option.name]


def test_options_that_set_keys_take_what_the_keys_take_and_are_described_as_they_are():
    found = list(key_options())
    assert {key for *_, key in found} == set(KEYS.values())
    assert {(name, key) for name, *_, key in found} >= {
        ("run", "measure.pool"),
        ("lower", "target"),
        ("compile", "lock"),
    }
    for name, _, kind, key in found:
        value = kind("7")
        data = {"name": "x", "model": "resnet50"}
        section, _, last = key.rpartition(".")
        config = RunConfig.model_validate({**data, section: {last: value}} if section else {**data, last: value})
        assert (getattr(config, section) if section else config).model_dump()[last] == value, (name, key)
    shown = {(name, key): option.help for name, option, _, key in found}
    assert shown["run", "seed"] == f"{find_description('seed')} \\[default: 0]"
    assert "http[s]://HOST" in call("run", "--help").output, "brackets are no markup"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "name=.."], "small.yaml:name: must match pattern"),
        (["--set", "trails=3"], "small.yaml:trails: must be one of the known keys; did you mean 'trials'?"),
        (["--set", "workload.operator=matmull"], "small.yaml:workload: `operator` must be one of"),
        (["--set", "workload.q=3"], "small.yaml:workload: `matmul` must have arguments among m, n, k"),
        (["--set", "workload={operator: matmul, m: 3}"], "small.yaml:workload: `matmul` must be given n, k"),
        (["--set", "workload.k=0"], "small.yaml:workload: "),
        (["--set", "target=cqu"], "small.yaml:target: `target` must be one of"),
        (["--set", "search.strategy=evolutoin"], "small.yaml:search: `strategy` must be one of"),
        (["--set", "search.options={popluation: 3}"], "did you mean 'population'?"),
        (["--set", "cost_model.name=lightgmb"], "small.yaml:cost_model: "),
        (["--pool", "lokal"], "small.yaml:measure.pool: `pool` must be one of"),
        (["--pool", "local:"], "`pool` must be 'local' alone, but got pool='local:'"),
        (["--set", "target='cuda:'"], "small.yaml:target: `target` must have a variant behind its colon, or no colon"),
        (["--pool", "replay"], "`pool` must be 'replay:FILE' with a records file"),
        (["--pool", "replay:nowhere.jsonl"], "nowhere.jsonl"),
        (["--trials", "0"], "`trials` must be at least 1 beside a `workload`, but got trials=0"),
        (["--set", "target=vta", "--trials", "9999"], "small.yaml: small: a workload must have at least one legal"),
        (["--output", "/proc/nowhere"], "`output` must be a folder to write to, but got /proc/nowhere"),
        (["--output", "small.yaml"], "`output` must be a folder to write to, but got small.yaml"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(folder, arguments, message):
    done = call("run", "small.yaml", *arguments)
    assert done.exit_code == 2, done.output
    assert message in done.stderr and len(done.stderr.splitlines()) == 1


def test_a_model_that_is_not_there(folder):
    (folder / "net.yaml").write_text("model: resnet5")
    done = call("run", "net.yaml")
    assert done.exit_code == 2 and "did you mean 'resnet50'" in done.stderr


def test_a_model_stands_in_the_place_of_a_configuration(folder):
    layer = helper.make_node("MatMul", ["x", "w"], ["y"])
    graph = helper.make_graph(
        [layer],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 16])],
        [numpy_helper.from_array(np.ones((8, 16), np.float32), "w")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), "layer one.onnx")
    done = call("tasks", "layer one.onnx", "--set", "target=cpu:haswell")
    assert done.exit_code == 0 and "matmul" in done.stdout and "1 tasks" in done.stdout
    assert "matmul" in call("lower", "layer one.onnx", "--stage", "program").stdout
    assert "conv" in call("tasks", "resnet18").stdout


def test_a_file_that_is_not_there_is_called_so(folder):
    for name in ("absent.yaml", "absent"):
        done = call("run", name)
        assert (
            done.exit_code == 2
            and done.stderr.startswith(f"{name}: a configuration must be")
            and "no such file" in done.stderr
        )
    done = call("run", "absent.onnx")
    assert done.exit_code == 2 and "`model` must be an existing file, but there is none at 'absent.onnx'" in done.stderr


def test_models_are_listed():
    lines = call("models").stdout
    assert "resnet50" in lines and "bert_base" in lines and "random weights" in lines


def test_a_file_of_ones_own_that_is_named_as_records_keeps_every_byte(folder):
    notes = folder / "notes.txt"
    for text in ("a note\nand another one", "one line without an end", '{"time": 3, "mine": [1'):
        notes.write_text(text)
        done = call("run", "small.yaml", "--set", "records=notes.txt", "--track", "none", "--quiet")
        assert (
            done.exit_code == 2 and "notes.txt:" in done.stderr and "a record must be one line of JSON" in done.stderr
        )
        assert "Traceback" not in done.output and notes.read_text() == text


def test_a_record_that_cannot_be_true_is_told_and_the_others_are_gone_on_with(folder):
    given = ("run", "small.yaml", "--track", "none", "--set", "cost_model.name=roofline", "--output", "out")
    assert call(*given, "--trials", 3).exit_code == 0
    path = folder / "out/records.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    data = json.loads(lines[1])
    false = json.dumps({**data, "outcome": {**data["outcome"], "seconds": -1.0}}).encode() + b"\n"
    path.write_bytes(lines[0] + false + b"".join(lines[2:]))
    before = path.read_bytes()
    done = call(*given, "--trials", 4, "--resume")
    assert done.exit_code == 0 and path.read_bytes().startswith(before)
    assert "records.jsonl:2: `seconds` must be" in done.output.replace("\n", " ")


def test_records_of_another_schema_are_refused_and_left_alone(folder):
    (folder / "runs/small").mkdir(parents=True)
    records = folder / "runs/small/records.jsonl"
    records.write_text('{"schema": "other/1"}\n')
    done = call("run", "small.yaml", "--resume")
    assert done.exit_code == 2 and "records.jsonl:1: `schema` must be" in done.stderr
    assert records.read_text() == '{"schema": "other/1"}\n'


def test_lower_prints_the_stages(folder):
    done = call("lower", "small.yaml")
    assert done.exit_code == 0
    parts = [line for line in done.stdout.splitlines() if line.startswith("== ")]
    assert parts == ["== schedule", "== program", "== llvm", "== resources", "== assembly"]
    assert "split(" in done.stdout and "for " in done.stdout and "define" in done.stdout
    assert not (folder / "runs").exists()


def test_lower_of_given_traces(folder):
    (folder / "none.json").write_text("[]")
    plain = call("lower", "small.yaml", "--trace", "none.json", "--stage", "program")
    assert plain.exit_code == 0 and plain.stdout.startswith("== program\n") and "== llvm" not in plain.stdout
    (folder / "bad.json").write_text('[{"step": "no such step"}]')
    assert call("lower", "small.yaml", "--trace", "bad.json").exit_code == 2
    (folder / "text.json").write_text("{")
    assert "a trace must be JSON" in call("lower", "small.yaml", "--trace", "text.json").stderr
    assert "`--stage` must be one of" in call("lower", "small.yaml", "--stage", "ptx").stderr
    (folder / "empty.json").write_text('{"tasks": []}')
    empty = call("lower", "small.yaml", "--trace", "empty.json")
    assert "a summary must hold a trace of matmul" in empty.stderr


def test_schema_goes_to_a_file_or_the_terminal(folder):
    assert call("schema", "--output", "schema.json").exit_code == 0
    assert json.loads(call("schema").stdout) == json.loads(Path("schema.json").read_text())


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory):
    """A folder in which a small run was made with the real pool."""
    folder = tmp_path_factory.mktemp("run")
    (folder / "small.yaml").write_text(SMALL)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        done = call("run", "small.yaml", "--json", "copy.json")
    assert done.exit_code == 0, done.output
    return folder, done.output


def test_a_run_reports_and_leaves_its_folder(finished_run):
    folder, output = finished_run
    assert "6/6 trials" in output and "GFLOP/s" in output and "of peak" in output
    summary = json.loads((folder / "runs/small/summary.json").read_text())
    assert json.loads((folder / "copy.json").read_text()) == summary
    assert set(summary) == {"schema", "config", "host", "hardware", "tasks"}
    hardware = registry.get("cpu").hardware
    assert Hardware.from_json(summary["hardware"]["cpu"]) == hardware
    assert cycle_rates(load(folder / "runs/small/processor.json")) == hardware.rates, "the estimate can be made again"
    (task,) = summary["tasks"]
    assert set(task) == TASK_KEYS
    assert task["trials"] == 6 and task["correct"] is True and task["weight"] == 1
    assert task["best_seconds"] > 0
    assert task["workload"]["operator"] == "matmul" and isinstance(task["trace"], list)
    lines = (folder / "runs/small/records.jsonl").read_text().splitlines()
    assert len(lines) == 6 + 9  # three times three finalists
    assert (folder / "runs/small/curve.png").read_bytes().startswith(b"\x89PNG")
    best = {path.name for path in (folder / "runs/small/best/small").iterdir()}
    texts = {"schedule.txt", "program.txt", "kernel.ll", "kernel.s", "kernel.h"}
    libraries = {"kernel.so"} if shutil.which("cc") else set()
    assert texts | {"kernel.o"} | libraries <= best


def test_a_replayed_run_is_the_same_bit_for_bit(finished_run, monkeypatch):
    folder, _ = finished_run
    monkeypatch.chdir(folder)
    records = (folder / "runs/small/records.jsonl").resolve()
    done = call("run", "small.yaml", "--pool", f"replay:{records}", "--output", "again", "--quiet")
    assert done.exit_code == 0 and done.output == ""
    keys = [
        [r.trace_key for r in sorted(Database(path, readonly=True), key=lambda r: (is_final(r), r.provenance.order))]
        for path in (records, folder / "again" / "records.jsonl")
    ]
    assert keys[0] == keys[1]
    first, again = (
        json.loads((folder / path / "summary.json").read_text())["tasks"][0] for path in ("runs/small", "again")
    )
    assert first["trace"] == again["trace"] and first["best_seconds"] == again["best_seconds"]


def test_a_resumed_run_goes_on(finished_run, monkeypatch):
    folder, _ = finished_run
    monkeypatch.chdir(folder)
    done = call("run", "small.yaml", "--resume", "--trials", "8", "--quiet")
    assert done.exit_code == 0, done.output
    with Database(folder / "runs/small/records.jsonl", readonly=True) as database:
        trials = [record.trace_key for record in database if not is_final(record)]
        assert len(set(trials)) == len(trials) == 8
    shown = call("lower", "small.yaml", "--trace", "runs/small/summary.json", "--stage", "schedule")
    assert shown.exit_code == 0


def test_ctrl_c_keeps_what_is_finished_and_says_how_to_go_on(folder, monkeypatch):
    def press(count):
        if count == 4:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr("autotune.run.run.make_pool", lambda *_: fakes.HashPool(press))
    monkeypatch.setattr(sys, "argv", ["autotune", "run", "small.yaml"])
    done = call("run", "small.yaml")
    assert done.exit_code == 130
    assert done.stderr == ("stopped; every finished trial is kept. To go on: autotune run small.yaml --resume\n")
    assert len((folder / "runs/small/records.jsonl").read_text().splitlines()) == 4
    assert json.loads((folder / "runs/small/summary.json").read_text())["tasks"][0]["trials"] == 4


@pytest.mark.parametrize("path", [None, "runs/small/summary.json"])
def test_a_full_disk_is_one_sentence_that_says_how_to_go_on(folder, monkeypatch, path):
    def full(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device", *([] if path is None else [path]))

    monkeypatch.setattr("autotune.run.run.run", full)
    monkeypatch.setattr("sys.argv", ["autotune", "run", "small.yaml"])
    done = call("run", "small.yaml")
    assert done.exit_code == 2
    expected = f"{path or 'a file must have room'}: No space left on device. To go on: autotune run small.yaml --resume"
    assert done.output == f"{expected}\n"


def test_what_is_written_is_whole_or_not_there(tmp_path, monkeypatch):
    write_text("first", tmp_path / "a.txt")
    monkeypatch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(OSError(errno.ENOSPC, "No space left")))
    with pytest.raises(OSError, match=r"No space left: '.*a\.txt'"):
        write_text("second", tmp_path / "a.txt")
    assert [file.name for file in tmp_path.iterdir()] == ["a.txt"] and (tmp_path / "a.txt").read_text() == "first"


def test_a_second_run_keeps_the_records_of_the_first(folder, monkeypatch):
    monkeypatch.setattr("autotune.run.run.make_pool", lambda *_: fakes.HashPool())
    monkeypatch.setattr("autotune.run.run._references", lambda tasks, *_: ([None] * len(tasks), None))
    assert call("run", "small.yaml", "--quiet").exit_code == 0
    again = call("run", "small.yaml", "--seed", "1")
    assert again.exit_code == 0 and "records.1.jsonl" in again.stdout
    assert len((folder / "runs/small/records.1.jsonl").read_text().splitlines()) == 6 + 9


def test_a_summary_that_cannot_be_written_is_told_before_anything_runs(folder):
    done = call("run", "small.yaml", "--json", "nowhere/summary.json")
    assert done.exit_code == 2 and not (folder / "runs").exists()
    assert "`--json` must be a file in an existing folder, but got nowhere/summary.json" in done.stderr


def test_an_encoding_that_lacks_a_character_ends_no_run(folder):
    """A run prints and writes what ASCII has not, such as the micro sign of its times."""
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}
    program = (
        "import sys\nfrom autotune.cli import main\nprint(sys.getfilesystemencoding(), file=sys.stderr)\n"
        "try:\n  main()\nfinally:\n  print('\\u00b5s')"
    )
    for arguments in (("run", "small.yaml"), ("report", "runs/small", "--output", "page.html")):
        command = [sys.executable, "-c", program, *arguments]
        done = subprocess.run(command, capture_output=True, env=environment, check=False, timeout=120)
        assert done.returncode == 0 and done.stderr.startswith(b"ascii\n"), done.stderr.decode()
        assert done.stdout.isascii() and done.stdout.endswith(b"\\xb5s\n")

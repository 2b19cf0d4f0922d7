"""The survey: a row for each model whatever happens to it, resumption, and a small model through all stages."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import yaml
from onnx import helper, numpy_helper

from benchmarks import results, table
from benchmarks.provenance import read_commit
from benchmarks.survey import __main__ as survey
from benchmarks.survey import exports, one
from benchmarks.survey.export_cache import ExportCache
from benchmarks.survey.log import Log, outcome
from benchmarks.survey.models import MODELS_FILE, SEALED_FILE, Model, load_models, select
from benchmarks.survey.process import ProcessEnd
from benchmarks.survey.table import sealed_list, summary
from benchmarks.survey.table import survey as table_of
from tests.autotune.graph.helpers import save

FAKE = ("tests.benchmarks.fake_survey", "tests.benchmarks.fake_survey")


def write_list(folder: Path, names: list[str], **paths: Path) -> Path:
    """A list of ONNX models: `names` whose file no fake worker reads, and those of `paths`."""
    entries: list[Any] = [{name: {"path": str(folder / f"{name}.onnx")}} for name in names]
    entries += [{name: {"path": str(path)}} for name, path in paths.items()]
    file = folder / "models.yaml"
    file.write_text(yaml.safe_dump({"onnx": {"small": entries}}))
    return file


def command(folder: Path, file: Path, *more: str) -> list[str]:
    places = ["--models", str(file), "--output", str(folder / "out"), "--results", str(folder / "results")]
    return [*places, "--threads", "1", "--turns", "1", *more]


def read_rows(folder: Path) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in Log(folder / "out" / "survey.jsonl").rows}


def test_a_small_model_goes_through_all_stages_and_a_refused_one_gives_its_sentence(tmp_path, capsys):
    rng = np.random.default_rng(0)
    weights = [numpy_helper.from_array(rng.standard_normal((32, 32)).astype(np.float32), f"w{i}") for i in range(2)]
    right = save(
        tmp_path / "right.onnx",
        [
            helper.make_node("MatMul", ["x", "w0"], ["a"]),
            helper.make_node("Relu", ["a"], ["b"]),
            helper.make_node("MatMul", ["b", "w1"], ["y"]),
        ],
        {"x": (8, 32)},
        weights,
    )
    refused = tmp_path / "refused.onnx"
    model = helper.make_model(
        helper.make_graph(
            [helper.make_node("NonZero", ["x"], ["y"])],
            "refused",
            [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, (4, 4))],
            [helper.make_tensor_value_info("y", onnx.TensorProto.INT64, (2, None))],
        )
    )
    onnx.save(model, refused)
    file = write_list(tmp_path, [], right=right, refused=refused)
    assert survey.main(command(tmp_path, file)) == 0
    rows = read_rows(tmp_path)

    row = rows["right"]
    assert row["status"] == "right" and row["reason"] == "" and row["error"] < 1e-5
    assert row["reference"] == "onnxruntime" and set(row["seconds"]) | set(row["missing"]) == {"autotune", *one.PEERS}
    assert row["import_seconds"] > 0 and row["compile_seconds"] > 0 and row["tasks"] == len(row["layers"]) == 2
    assert row["cpu"] and row["commit"] == read_commit() and row["versions"]["numpy"] == np.__version__
    lost = [layer["seconds"] - layer["bound_seconds"] for layer in row["layers"]]
    assert lost == sorted(lost, reverse=True) and sum(layer["share"] for layer in row["layers"]) == pytest.approx(1)

    assert rows["refused"]["status"] == "refused" and "NonZero" in rows["refused"]["reason"]
    assert "2 models: 1 right, 1 refused. Geometric mean over 1 beside the best peer" in capsys.readouterr().out
    text = table.regenerate("<!-- table:survey -->\n<!-- /table -->", tmp_path / "results")
    assert f"**{row['cpu']}**, 1 threads, 0 trials" in text and "| refused: " in text and "Measured on" not in text


def test_whatever_happens_to_a_model_costs_one_row(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(survey, "WORKERS", FAKE)
    assert survey.main(command(tmp_path, write_list(tmp_path, ["crash", "big", "bug", "fine"]))) == 0
    found = {name: (row["status"], row["reason"]) for name, row in read_rows(tmp_path).items()}
    assert found == {
        "crash": ("failed", "compile: the process was ended by SIGSEGV"),
        "big": ("failed", "compile: MemoryError: no message"),
        "bug": ("failed", "compile: ZeroDivisionError: a bug"),
        "fine": ("right", ""),
    }
    assert "4 models: 1 right, 3 failed. Geometric mean over 1 beside the best peer 2.00x" in capsys.readouterr().out


def test_a_model_that_takes_too_long_is_ended_with_all_that_it_started(tmp_path, monkeypatch):
    monkeypatch.setattr(survey, "WORKERS", FAKE)
    assert (
        survey.main(command(tmp_path, write_list(tmp_path, ["slow", "fine"]), "--only", "slow", "--limit", "0.05")) == 0
    )
    assert read_rows(tmp_path)["slow"]["status"] == "failed"
    assert read_rows(tmp_path)["slow"]["reason"] == "compile: it took more than 3 s"
    child = Path("/proc") / (tmp_path / "slow.onnx").read_text() / "stat"
    assert not child.exists() or child.read_text().rpartition(")")[2].split()[0] in "ZX"


def test_it_goes_on_where_it_was_stopped(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(survey, "WORKERS", FAKE)
    file = write_list(tmp_path, ["a", "b", "c"])
    log = tmp_path / "out" / "survey.jsonl"
    assert survey.main(command(tmp_path, file, "--only", "b")) == 0
    with log.open("a") as stream:
        stream.write('{"name": "a", "status": "ri')  # cut off
    capsys.readouterr()
    assert survey.main(command(tmp_path, file)) == 0
    captured = capsys.readouterr()
    assert [line.partition(":")[0] for line in captured.err.splitlines()] == ["a", "c"]
    assert "3 models: 3 right" in captured.out
    assert [row["name"] for row in Log(log).rows] == ["b", "a", "c"]
    survey.main(command(tmp_path, file, "--trials", "5", "--only", "a"))  # is something else
    survey.main(command(tmp_path, file, "--trials", "5", "--each-task", "--only", "a"))  # and so is this
    assert [(row["trials"], row["each_task"]) for row in Log(log).rows[3:]] == [(5, False), (5, True)]
    saved = results.load("survey", tmp_path / "results")
    assert len(saved["rows"]) == 5
    assert "5 trials a task" in table_of(saved) and "5 trials (" in table_of(saved)


def test_rows_of_another_commit_or_model_are_not_done(tmp_path, monkeypatch):
    measured = []
    monkeypatch.setattr(survey, "survey_model", lambda model, common, *_: measured.append(model) or row(model, common))

    def row(model, common):
        return {**model.to_json(), **common, "status": "right", "reason": ""}

    def run(model, commit, again):
        monkeypatch.setattr(survey, "read_commit", lambda: commit)
        options = Namespace(
            threads=1, trials=0, each_task=False, seed=0, turns=1, minutes=1.0, again=again, sealed=False
        )
        survey.run([model], Log(tmp_path / "log"), options)
        return len(measured)

    model = Model("m", "onnx", "f", {"path": "a"})
    assert run(model, "abc", False) == run(model, "abd", False) == run(model, "abc", True) == 1
    assert run(model, "abd", True) == 2
    assert run(Model("m", "onnx", "f", {"path": "b"}), "abd", False) == 3
    assert run(Model("m", "torch", "f", {"path": "b"}), "abd", False) == 4


def test_a_model_that_the_end_cuts_off_has_no_row(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(survey, "WORKERS", FAKE)
    file = write_list(tmp_path, ["fine", "slow", "never"])
    assert survey.main(command(tmp_path, file, "--minutes", "0.04")) == 0
    assert set(read_rows(tmp_path)) <= {"fine"} and "never" not in capsys.readouterr().err


def test_rows_of_other_processors_are_kept(tmp_path):
    row = {"name": "a", "threads": 1, "trials": 0, "status": "refused", "reason": "x | y", "library": "onnx"}
    other = {**row, "cpu": "Other", "commit": "abc"}
    results.save("survey", {"rows": {"a, Other, 1 threads, 0 trials": other}}, tmp_path)
    document = json.loads((tmp_path / "survey.json").read_text())
    (tmp_path / "survey.json").write_text(json.dumps({**document, "host": {"cpu": "Other"}}))
    log = Log(tmp_path / "survey.jsonl")
    log.append({**row, "cpu": "This", "commit": "abd"})
    survey.publish(log, Namespace(results=tmp_path, sealed=False))
    text = table_of(results.load("survey", tmp_path))
    assert text.index("**Other**") < text.index("**This**") and "x \\| y" in text


def test_the_first_run_of_a_sealed_list_stands(tmp_path, monkeypatch, capsys):
    models = [Model(name, "timm", name) for name in ("fast", "lost", "other")]
    seconds = {"autotune": 1e-3, "onnxruntime": 1.5e-3, "openvino": 2e-3, "torch": 4e-3, "torch-inductor": 1.2e-3}
    models.append(Model("idle", "timm", "idle"))
    faults, measured = {"lost"}, []

    def survey_model(model, common, *_):
        measured.append(model.name)
        wrong = {"status": "refused", "reason": "`axis` must be a | b"}
        right = {"status": "right", "reason": "", "seconds": seconds, "error": 1e-7, "bound_seconds": 5e-4}
        if model.name == "idle":
            right |= {"seconds": {"autotune": 1e-7, "openvino": 1e-5}, "bound_seconds": 1e-8}
        return {**model.to_json(), **common, **(wrong if model.name in faults else right)}

    monkeypatch.setattr(survey, "survey_model", survey_model)
    monkeypatch.setattr(survey, "load_models", lambda path: models if path == SEALED_FILE else [])
    monkeypatch.setattr(survey, "describe_host", lambda: {"cpu": "A"})

    def run(commit, *more):
        monkeypatch.setattr(survey, "read_commit", lambda: commit)
        places = ["--output", str(tmp_path / commit), "--results", str(tmp_path)]
        assert survey.main(["--sealed", "--threads", "1", *places, *more]) == 0
        return results.load("sealed", tmp_path)["rows"]

    first = run("aaa")
    assert measured == ["fast", "lost", "other", "idle"]
    assert {row["name"]: tuple(row["peers"]) for row in first.values()}["fast"] == (*one.PEERS, *one.MODULES)
    assert run("aaa") == first and len(measured) == 4
    text = sealed_list(results.load("sealed", tmp_path))
    assert "First run, commit aaa: 4 models, 3 right, 1 refused. Geometric mean 1.20x (1.20x to 1.20x" in text
    assert ", 0 under 1.00x. It leaves out idle, which takes under a microsecond." in text
    assert "After mends" not in text and "| refused: `axis` must be a \\| b |" in text
    faults.clear()
    seconds = {**seconds, "autotune": 0.5e-3}
    rows = run("bbb", "--again", "--only", "lost")
    assert measured[4:] == ["lost"]
    key = next(key for key in rows if key.startswith("lost"))
    assert rows[key] == {**first[key], "again": rows[key]["again"]} and rows[key]["again"]["status"] == "right"
    text = sealed_list(results.load("sealed", tmp_path))
    assert "First run, commit aaa: 4 models, 3 right, 1 refused. Geometric mean 1.20x" in text
    assert "After mends, commit aaa, bbb: 4 models, 4 right. Geometric mean 1.51x (1.20x to 2.40x" in text
    assert run("ccc", "--only", "fast") == rows, "it has a row"


@pytest.mark.parametrize(
    ("facts", "process_end", "expected"),
    [
        ({"stage": "export"}, ProcessEnd("no"), ("not exported", "export: no")),
        ({"stage": "export"}, ProcessEnd("late", True), ("failed", "export: late")),
        ({}, ProcessEnd("no module"), ("failed", "start: no module")),
        ({"right": None, "note": "why"}, ProcessEnd(""), ("unjudged", "why")),
        ({"right": False, "reference": "r", "error": 0.25}, ProcessEnd(""), ("wrong", "outputs differ from r by 0.25")),
        ({"right": True, "stage": "profile"}, ProcessEnd("died"), ("failed", "profile: died")),
    ],
)
def test_outcomes(facts, process_end, expected):
    assert outcome(facts, process_end) == expected


def test_the_summary_names_the_slow_ones_worst_first():
    def row(name: str, ours: float, status: str = "right") -> dict[str, Any]:
        return {"name": name, "status": status, "seconds": {"autotune": ours, "onnxruntime": 2.0, "openvino": 1.0}}

    text = summary([row("a", 2.0), row("b", 4.0), row("c", 0.25), row("d", 9.0, "wrong")])
    assert text == (
        "4 models: 3 right, 1 wrong. Geometric mean over 3 beside the best peer 0.79x, 2 under 0.95x: b 0.25x, a 0.50x."
    )


def test_layers_that_lose_most_come_first_with_all_their_occurrences():
    found = one.furthest(["a", "b", "a"], [1.0, 2.5, 2.0], {"a": 0.5, "b": 2.4}, {"a": "A", "b": "B"})
    assert [(row["name"], row["count"], row["seconds"], row["bound_seconds"]) for row in found] == [
        ("A", 2, 3.0, 1.0),
        ("B", 1, 2.5, 2.4),
    ]


def test_the_list_has_a_hundred_models_of_many_families():
    models = load_models(MODELS_FILE)
    assert len(models) >= 100 and len({model.family for model in models}) >= 50
    assert {model.library for model in models} == {"torchvision", "timm", "transformers"}
    assert all({"model", "inputs"} <= set(m.options) for m in models if m.library == "transformers")
    assert [model.name for model in select(models, "resnet50,squeeze*")][:1] == ["resnet50"]


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("a: [b]", "must be library -> family -> models"),
        ("a: {b: [c]}", "`library` must be one of torchvision, .* but got 'a'"),
        ("timm: {b: c}", "a family must be a list of models, but got b: 'c'"),
        ("timm: {b: [{c: 1}]}", "a model must be a name, or a name with options, but got {'c': 1} in b"),
        ("timm: {b: [c], d: [c]}", "names of models must differ, but .* has c twice"),
        ("{", "`models` must be a YAML file"),
    ],
)
def test_bad_lists_are_refused(tmp_path, text, match):
    file = tmp_path / "models.yaml"
    file.write_text(text)
    with pytest.raises(ValueError, match=match):
        load_models(file)


@pytest.mark.parametrize(
    "options", [["--only", "nothing_like_it"], ["--minutes", "0"], ["--threads", "0"], ["--trials", "-1"]]
)
def test_bad_options_end_with_a_code_and_touch_nothing(tmp_path, options, capsys):
    with pytest.raises(SystemExit) as ended:
        survey.main([*command(tmp_path, write_list(tmp_path, ["a"])), *options])
    assert ended.value.code == 2 and "must" in capsys.readouterr().err
    assert not (tmp_path / "out").exists() and not (tmp_path / "results").exists()


def test_a_log_with_a_broken_line_in_the_middle_is_refused(tmp_path):
    file = tmp_path / "survey.jsonl"
    file.write_text('{"a": 1}\nno\n{"a": 2}\n')
    with pytest.raises(ValueError, match="a line must be a JSON object, but .*:2 is not"):
        Log(file)


def test_no_parameter_of_a_module_stays_of_one_value_and_it_is_exported_by_whoever_can(tmp_path):
    import torch

    def module() -> Any:
        torch.manual_seed(0)
        layers = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4))
        layers.scale = torch.nn.Parameter(1e-6 * torch.ones(4))
        return layers

    first, second = module(), module()
    exports.stir(first, 0)
    exports.stir(second, 0)
    state = first.state_dict()
    assert all(value.min() < value.max() for name, value in state.items() if "tracked" not in name)
    assert state["1.running_var"].min() > 0 and torch.equal(state["0.weight"], module().state_dict()["0.weight"])
    assert all(torch.equal(value, second.state_dict()[name]) for name, value in state.items())

    whole = exports.first_output(first, ["input"]).eval()
    file = tmp_path / "model.onnx"
    assert exports.write_onnx(whole, {"input": torch.ones(1, 3, 8, 8)}, file, ["none such", "script"]) == "script"
    assert [value.name for value in onnx.load(file).graph.input] == ["input"]
    with pytest.raises(
        RuntimeError, match="torch.onnx must export the model, but none such: ValueError: `exporter` must"
    ):
        exports.write_onnx(whole, {"input": torch.ones(1, 3, 8, 8)}, file, ["none such"])


def test_an_export_is_made_once_for_all_that_it_depends_on(tmp_path):
    model = Model("m", "timm", "f", {"shape": [1, 3, 32, 32]})
    first = ExportCache(tmp_path / "new", model, 0, ["script"])
    assert not first.facts
    first.note({"exporter": "script", "export_seconds": 1.5, "stage": "export"})
    assert not ExportCache(tmp_path / "new", model, 0, ["script"]).facts, "the file is missing"
    first.file.write_bytes(b"onnx")
    assert ExportCache(tmp_path / "new", model, 0, ["script"]).facts == {"exporter": "script", "export_seconds": 1.5}
    others = [
        ExportCache(tmp_path / "new", model, 1, ["script"]),
        ExportCache(tmp_path / "new", model, 0, ["dynamo", "script"]),
        ExportCache(tmp_path / "new", Model("m", "timm", "f", {"shape": [1, 3, 64, 64]}), 0, ["script"]),
    ]
    assert len({first.file, *(other.file for other in others)}) == 4 and not any(other.facts for other in others)


def test_kept_exports_are_not_made_again(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(survey, "WORKERS", ("tests.benchmarks.fake_export", FAKE[1]))
    file = tmp_path / "models.yaml"
    file.write_text(yaml.safe_dump({"timm": {"f": ["fine", "bug"]}}))
    given = command(tmp_path, file, "--exports", str(tmp_path / "kept"))
    assert survey.main([*given, "--export-only"]) == 0
    told = capsys.readouterr().err
    assert "fine: exported" in told and "bug: " in told and not read_rows(tmp_path)
    made = {path: path.stat().st_mtime_ns for path in (tmp_path / "kept").glob("fine*")}
    assert len(made) == 2
    assert survey.main(given) == 0
    assert (
        read_rows(tmp_path)["fine"]["exporter"] == "script" and read_rows(tmp_path)["bug"]["status"] == "not exported"
    )
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "kept").glob("fine*")} == made
    with pytest.raises(SystemExit):
        survey.main([*command(tmp_path, file), "--export-only"])
    assert "must have a folder" in capsys.readouterr().err

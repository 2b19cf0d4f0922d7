"""Networks in several precisions beside peers: what is measured, which peers count, what is done already."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autotune.titles import runtime_title
from benchmarks import results
from benchmarks.figures import figures
from benchmarks.precisions import __main__ as command
from benchmarks.precisions import torch_runtime
from benchmarks.precisions.compare import Plan, _is_another, compare, compute_decibels
from benchmarks.precisions.picture import draw
from benchmarks.precisions.table import SLACK, precisions, ratio, title
from benchmarks.precisions.torch_runtime import EAGER
from benchmarks.subjects import Subject, signal_to_noise, subjects
from tests.autotune.compiler.test_network import two_layers

MODEL_JSON = '{"name": "net", "library": "torchvision", "family": "net", "options": {}}'
PLAN = Plan(("float32", "bfloat16"), 40.0, 0, 0, 0, 1)
ROW: dict[str, Any] = {
    "name": "net",
    "title": "net",
    "threads": 2,
    "trials": 0,
    "missing": {"torch": "no module"},
    "taken": {"openvino": "float32", "openvino-as-installed": "bfloat16", "torch-autocast": "bfloat16"},
    "decibels": {
        "autotune float32": 120.0,
        "autotune bfloat16": 50.0,
        "openvino": 119.0,
        "openvino-as-installed": 48.0,
        "torch-autocast": 51.0,
    },
    "seconds": {
        "autotune float32": 4e-3,
        "autotune bfloat16": 2e-3,
        "onnxruntime": 6e-3,
        "openvino": 5e-3,
        "openvino-as-installed": 3e-3,
        "torch-autocast": 4e-3,
    },
    "unsteady": 0.04,
}


def test_only_peers_that_are_not_less_accurate_count() -> None:
    narrow, wide = "autotune bfloat16", "autotune float32"
    assert ratio(ROW, narrow) == pytest.approx(2.0), "autocast is more accurate, OpenVINO as installed less"
    assert ratio(ROW, narrow, SLACK) == ratio(ROW, narrow, float("inf")) == pytest.approx(1.5)
    assert ratio(ROW, wide) == pytest.approx(1.25), "float32 counts beside float32, whichever order it adds in"
    assert ratio(ROW, wide, float("inf")) == pytest.approx(0.75)
    assert ratio(ROW, "autotune mixed") is None
    without = {**ROW, "decibels": {k: v for k, v in ROW["decibels"].items() if k != wide}}  # others are held against it
    assert ratio(without, wide) == pytest.approx(1.25) and ratio(without, wide, float("inf")) == pytest.approx(0.75)


def test_the_table_names_every_precision_and_budgets_apart() -> None:
    tuned = {**ROW, "trials": 200, "seconds": {**ROW["seconds"], "autotune bfloat16": 1.5e-3}}
    text = precisions({"rows": {"b": tuned, "a": ROW}})
    header, first, second = (line for line in text.splitlines() if line.startswith(("| network |", "| net |")))
    columns = header.strip("| ").split(" | ")
    assert columns[:8] == [
        "network",
        "trials",
        "autotune float32",
        "autotune bfloat16",
        "ONNX Runtime float32",
        "OpenVINO float32",
        "OpenVINO as installed (bfloat16)",
        "PyTorch float32",
    ]
    cells = dict(zip(columns, first.strip("| ").split(" | "), strict=True))
    assert cells["autotune bfloat16"] == "2.000, 50.0 dB" and cells["ONNX Runtime float32"] == "6.000"
    assert cells["PyTorch float32"] == "missing" and cells["PyTorch autocast (bfloat16)"] == "4.000, 51.0 dB"
    assert cells["bfloat16 / best peer"] == "2.00x" and cells["bfloat16 / fastest"] == "1.50x"
    assert second.startswith("| net | 200 |")
    assert "| autotune bfloat16 beside the best peer, none less accurate | 200 | 2.67x | 2.67x | 1 |" in text
    assert "Missing: PyTorch float32 of net: no module." in text


def test_mixed_columns_say_what_accuracy_was_asked() -> None:
    row = {**ROW, "accuracy": "as openvino", "seconds": {**ROW["seconds"], "autotune mixed": 2e-3}}
    text = precisions({"rows": {"a": row}})
    assert "| autotune mixed (as openvino) |" in text and "less accurate than requested" not in text
    short = {**row, "decibels": {**ROW["decibels"], "autotune mixed": 47.5}}
    told = "requested on these inputs:\n\n- net after 0 trials (47.5 instead of 48.0 dB)"
    assert told in precisions({"rows": {"a": short}})


@pytest.mark.parametrize(
    ("runtime", "precision", "computed_in", "expected"),
    [
        ("onnxruntime", "int8", "", "ONNX Runtime int8"),
        ("openvino", "float32", "float32", "OpenVINO float32"),
        ("openvino-as-installed", "float32", "bfloat16", "OpenVINO as installed (bfloat16)"),
        ("openvino-as-installed", "int8", "bfloat16", "OpenVINO as installed (int8 and bfloat16)"),
        ("openvino-as-installed", "float32", "", "OpenVINO as installed"),
        ("tract", "float32", "", "tract float32"),
    ],
)
def test_titles(runtime: str, precision: str, computed_in: str, expected: str) -> None:
    assert runtime_title(runtime, precision, computed_in) == expected


def test_a_file_has_no_module_for_pytorch(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    subject = Subject("two", two_layers(tmp_path / "two.onnx"))
    row = compare(subject, tmp_path, PLAN)
    assert row["decibels"]["autotune float32"] > 100 > row["decibels"]["autotune bfloat16"] > 30
    assert "is an ONNX file" in row["missing"]["torch"] and "is an ONNX file" in row["missing"]["torch-autocast"]
    assert row["seconds"] == {} and json.dumps(row)


def test_pytorch_computes_the_module_in_float32_and_under_autocast(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(288, 5))
    example = {"image": torch.randn(1, 3, 8, 8), "unused": torch.zeros(1)}

    class First(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, image: Any, other: Any) -> Any:
            return module(image)

    monkeypatch.setattr(torch_runtime, "make_model", lambda model, seed: (First().eval(), example))
    before, facts = torch.get_num_threads(), {"model": MODEL_JSON, "seed": "0", "threads": 1}
    feed = {"image": np.random.default_rng(0).standard_normal((1, 3, 8, 8)).astype(np.float32)}
    with torch.no_grad():
        wanted = [{"y": module(torch.from_numpy(feed["image"])).numpy()}]
    try:
        found = {}
        for name in EAGER:
            runtime = torch_runtime.RUNTIMES[name](facts)
            found[name] = signal_to_noise(wanted, [runtime.infer(feed)])
            assert len(runtime.time(2)) == 2
            assert title(name, {}) == (
                "PyTorch autocast (bfloat16)" if runtime.precision != "float32" else "PyTorch float32"
            )
    finally:
        torch.set_num_threads(before)
    assert found["torch"] > 100 > found["torch-autocast"] > 30


def test_a_module_that_computes_something_else_is_missing() -> None:
    row: dict[str, Any] = {"decibels": {"torch": 3.0, "openvino": 120.0}, "missing": {}}
    processes = [argparse.Namespace(runtime=name) for name in ("torch-autocast", "openvino")]
    assert [_is_another(process, row) for process in processes] == [True, False]  # type: ignore[arg-type]
    assert "but has 3.0 dB" in row["missing"]["torch-autocast"]


def test_files_are_compared_apart_from_the_rows_of_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fake(subject: Subject, folder: Path, plan: Plan) -> dict[str, Any]:
        return {**ROW, "name": subject.name, **plan.to_json()}

    monkeypatch.setattr(command, "compare", fake)
    (tmp_path / "mine-1.onnx").touch()
    given = ["--files", str(tmp_path / "mine-1.onnx"), "--picture", str(tmp_path / "p.png")]
    assert command.main(given) == 2
    assert "`results` must be another folder where `files` are given" in capsys.readouterr().err
    assert command.main([*given, "--results", str(tmp_path)]) == 0
    saved = results.load(command.NAME, tmp_path)
    assert saved is not None and list(saved["rows"]) == ["mine"]
    assert saved["state"]["settings"]["accuracy"] == "as openvino"
    assert "p.png is drawn" in capsys.readouterr().err


def test_figures_of_turns() -> None:
    found = figures({"x": [2.0, 2.0, 2.0, 1.0, 1.0, 1.0], "y": [1.0, 1.0]})
    assert found["seconds"] == {"x": 1.0, "y": 1.0}
    assert found["halves"] == {"x": [2.0, 1.0]} and found["unsteady"] == 1.0 and found["spread"]["x"] > 0.5


def test_decibels_are_against_onnx_runtime_or_ours() -> None:
    ours, theirs = [{"y": np.ones(4)}], [{"z": np.full(4, 1.1)}]
    found = compute_decibels({"autotune float32": ours, "autotune bfloat16": theirs, "onnxruntime": ours})
    assert set(found) == {"autotune float32", "autotune bfloat16"} and found["autotune bfloat16"] == pytest.approx(20.0)
    assert set(compute_decibels({"autotune float32": ours, "openvino": theirs})) == {"openvino"}
    assert compute_decibels({"autotune bfloat16": ours, "openvino": theirs}) == {}


def test_the_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    rows = {"a": ROW, "b": {**ROW, "trials": 10}, "c": {**ROW, "name": "other", "seconds": {}}}
    path = draw(rows, tmp_path / "p.png")
    assert path is not None and path.read_bytes().startswith(b"\x89PNG")
    assert draw({"c": rows["c"]}, tmp_path / "q.png") is None and not (tmp_path / "q.png").exists()


def test_bad_arguments(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--rows", "resnet9"]) == 2
    assert "`rows` must be of resnet50, " in capsys.readouterr().err
    for name in ("a-1.onnx", "a-2.onnx"):
        (tmp_path / name).touch()
    with pytest.raises(ValueError, match="`files` must differ by name, but got"):
        subjects(f"{tmp_path / 'a-1.onnx'},{tmp_path / 'a-2.onnx'}", (), tmp_path)
    for arguments, rule in (
        (["--precisions", "int4"], "`--precisions` must be among"),
        (["--accuracy", "high"], "must be decibels above 0 or 'as openvino'"),
        (["--trials", "-1"], "must not be negative"),
    ):
        with pytest.raises(SystemExit):
            command.parse(arguments)
        assert rule in capsys.readouterr().err

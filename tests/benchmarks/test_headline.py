"""The table of all comparisons: it claims what result files hold, slower rows included."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from benchmarks import table
from benchmarks.collected import MixedTable
from benchmarks.headline import CLAIMS, headline
from benchmarks.tables import TABLES

PROVENANCE = {"commit": "0123456789ab", "cpu": "a processor", "cores": 2, "date": "2026-01-01", "load": 0.1}


def store(folder: Path, name: str, settings: Mapping[str, Any], rows: Mapping[str, Any], **provenance: Any) -> None:
    """A whole table of a made-up machine."""
    provenance = {**PROVENANCE, **provenance}
    state = {**{key: provenance[key] for key in ("commit", "cpu", "cores")}, "settings": settings, "versions": {}}
    path = folder / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        json.dumps({"state": state, "rows": {key: {"made": provenance, **row} for key, row in rows.items()}})
    )


def network(held_out: bool, **seconds: float) -> dict[str, Any]:
    named = {"ours": "autotune float32", "narrow": "autotune bfloat16", "installed": "openvino-as-installed"}
    labelled = {named.get(label, label): value for label, value in seconds.items()}
    halves = {label: [value, value * 1.25] for label, value in labelled.items()}
    return {"title": "net", "held_out": held_out, "seconds": labelled, "halves": halves}


ROWS = {
    "a": network(False, ours=1.0, onnxruntime=8.0, openvino=4.0, narrow=1.0, installed=2.0),
    "b": network(True, ours=1.0, onnxruntime=1.2, narrow=1.0, installed=1.3),
}


def test_networks_have_a_line_for_each_precision_and_processor(tmp_path: Path) -> None:
    store(tmp_path, "networks_0_2", {"threads": 2, "trials": 0}, ROWS)
    alone = {"a": network(False, ours=2.0, onnxruntime=1.0)}
    settings = {"threads": 2, "trials": 10, "each_task": True}
    store(tmp_path, "other/networks_10_2", settings, alone, cpu="AMD EPYC (znver4)")
    store(tmp_path, "unfinished/networks_1000_2", {"threads": 2, "trials": 1000}, ROWS)
    head, _, *lines = headline(tmp_path).splitlines()
    assert head.startswith("| what | processor | threads | trials | speed-up | held out | rows | fastest of |")
    assert lines == [
        "| networks, float32 | a processor | 2 | none | 2.19x (≈1.20x to 4.00x) | 1.20x | 2 "
        "| ONNX Runtime, OpenVINO | 25 %, at most 25 % |",
        "| networks, bfloat16 | a processor | 2 | none | 1.55x (≈1.20x to 2.00x) | 1.20x | 2 "
        "| these, OpenVINO as installed | 25 %, at most 25 % |",
        "| networks, float32 | AMD EPYC (Zen 4) | 2 | 10 a kernel | 0.50x (0.50x to 0.50x) |  | 1 "
        "| ONNX Runtime | 25 %, at most 25 % |",
    ]


def test_int8_networks_and_stacks_stand_apart_and_what_was_not_timed_does_not_count(tmp_path: Path) -> None:
    halves = {"autotune": [1.0, 1.0]}
    rows = {
        "resnet50": {"title": "resnet50", "seconds": {"autotune": 1.0, "openvino, all": 1.5}, "halves": halves},
        "vit": {"title": "vit", "seconds": {}, "halves": {}},
        "8_conv1x1_28_256": {"title": "8_conv1x1_28_256", "seconds": {"autotune": 2.0, "x": 5.0}, "halves": halves},
    }
    store(tmp_path, "quantized_networks", {"threads": 2, "trials": 0}, rows)
    networks, stacks = headline(tmp_path).splitlines()[2:]
    assert networks.startswith("| networks, int8 | a processor | 2 | none | 1.50x (1.50x to 1.50x) |  | 1 |")
    assert stacks.startswith(
        "| stacks of eight layers, int8 | a processor | 2 | none | 2.50x (2.50x to 2.50x) |  | 1 |"
    )


def test_operators_models_and_tvm_have_theirs(tmp_path: Path) -> None:
    halves = {"ours": [1.0, 1.1]}
    store(
        tmp_path,
        "operators",
        {"threads": 2, "trials": 128},
        {
            "a": {
                "class": "matmul",
                "seconds": {"ours": 1.0, "torch": 3.0, "openvino": 2.0, "library": 0.1},
                "halves": halves,
            },
        },
    )
    gradient = {"class": "data gradient", "seconds": {"ours": 1.0, "torch": 4.0}, "halves": halves}
    store(tmp_path, "gradients", {"threads": 2, "trials": 128}, {"d": gradient})
    model = {"errors": {"autotune": 0.0}, "seconds": {"autotune": 1.0, "inductor": 3.0, "eager": 2.5}, "halves": halves}
    wrong = {**model, "errors": {"autotune": 0.5}}
    store(tmp_path, "pytorch", {"threads": 2}, {"a": model, "wrong": wrong})
    both = {"seconds": {"ours 64": 1.0, "tvm 64": 2.0, "ours 256": 1.0, "tvm 256": 1.5}, "halves": halves}
    store(tmp_path, "tvm", {"threads": 2, "trials": [64, 256]}, {"a": both, "b": {"refused": "no"}})
    assert [line.split(" | ")[:7] for line in headline(tmp_path).splitlines()[2:]] == [
        ["| models by `torch.compile`", "a processor", "2", "none", "2.50x (2.50x to 2.50x)", "", "1"],
        ["| operators, float32", "a processor", "2", "128", "2.00x (2.00x to 2.00x)", "", "1"],
        ["| gradients of operators, float32", "a processor", "2", "128", "4.00x (4.00x to 4.00x)", "", "1"],
        ["| operators, float32", "a processor", "2", "64", "2.00x (2.00x to 2.00x)", "", "1"],
        ["| operators, float32", "a processor", "2", "256", "1.50x (1.50x to 1.50x)", "", "1"],
    ]


def test_mixed_rows_are_refused_and_old_ones_have_no_line(tmp_path: Path) -> None:
    (tmp_path / "tvm.json").write_text(json.dumps({"host": {}, "rows": {"a": {}}}))
    assert len(headline(tmp_path).splitlines()) == 2
    rows = {**ROWS, "b": {**ROWS["b"], "made": {**PROVENANCE, "commit": "another"}}}
    store(tmp_path, "networks_0_2", {"threads": 2, "trials": 0}, rows)
    with pytest.raises(MixedTable, match="`commit` of rows of networks_0_2 must be 0123456789ab, but that of b is an"):
        headline(tmp_path)


def test_it_is_put_where_it_is_asked_for(tmp_path: Path) -> None:
    store(tmp_path, "networks_0_2", {"threads": 2, "trials": 0}, ROWS)
    text = table.regenerate("a\n<!-- table:headline -->\nold\n<!-- /table -->\nb\n", tmp_path)
    assert text == f"a\n<!-- table:headline -->\n{headline(tmp_path)}\n<!-- /table -->\nb\n"


def test_claims_are_of_tables_that_there_are() -> None:
    assert set(CLAIMS) <= set(TABLES)

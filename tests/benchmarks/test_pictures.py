"""Pictures of the pages: drawn from what was measured, left out where it was not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import pictures, results

pytest.importorskip("matplotlib", reason="needs the package matplotlib")


def row(title: str, ours: float, cpu: str = "a first") -> dict[str, Any]:
    return {
        "title": title,
        "made": {"cpu": cpu},
        "seconds": {"autotune float32": ours, "onnxruntime": 2e-3, "openvino": 1e-3},
    }


def test_what_was_measured_is_drawn(tmp_path: Path) -> None:
    measured, pages = tmp_path / "results", tmp_path / "docs"
    measured.mkdir()
    pages.mkdir()
    assert pictures.draw(pages, measured) == []
    rows = {"a": row("a", 1e-3), "b": row("b", 5e-4), "c": {"title": "c", "made": {}, "seconds": {"onnxruntime": 1e-3}}}
    found = pictures.list_network_ratios({"rows": rows})
    assert {network.title: network.ratio for network in found} == {"a": 1.0, "b": 2.0}
    for name in ("networks_0_2", "networks_10_2"):
        (measured / f"{name}.json").write_text(json.dumps({"rows": rows}))
    assert [path.name for path in pictures.draw(pages, measured)] == ["speedups.png", "networks.png"]
    (measured / "networks_1000_2.json").write_text(json.dumps({"rows": rows}))
    for name in ("models", "search", "scaling", "gpu"):
        (measured / f"{name}.json").write_text(json.dumps(results.load(name)))
    assert {path.name for path in pictures.draw(pages, measured)} == {*pictures.PICTURES} - {"search_cost.png"}
    alone = (pages / "trials.png").read_bytes()
    took = {"ours 64": 2e-3, "ours 256": 1e-3, "tvm 64": 3e-3, "tvm 256": 2e-3}
    tuning = {"ours": {"seconds": 4.0}, "tvm": {"seconds": 50.0}}
    tvm = {
        "rows": {
            "a": {"title": "a", "seconds": took, "tuning": tuning},
            "b": {"title": "b", "refused": "it is of groups"},
        }
    }
    (measured / "tvm.json").write_text(json.dumps(tvm))
    assert {path.name for path in pictures.draw(pages, measured)} == set(pictures.PICTURES)
    assert (pages / "trials.png").read_bytes() != alone, "TVM stands in a panel of its own"
    tvm["rows"]["c"] = {"title": "c", "seconds": {"ours 64": 2e-3, "tvm 64": 3e-3}}
    (measured / "tvm.json").write_text(json.dumps(tvm))
    pictures.draw(pages, measured)
    assert (pages / "trials.png").read_bytes() == alone, "not where operators have no two numbers of trials in common"
    assert all(path.read_bytes()[:4] == b"\x89PNG" for path in pages.iterdir())


def test_times_of_two_processors_are_not_divided() -> None:
    documents: dict[str, Any] = {
        "networks_0_2": {"rows": {"a": row("a", 4e-3), "b": row("b", 4e-3)}},
        "networks_10_2": {"rows": {"a": row("a", 2e-3), "b": row("b", 1e-3, "a second")}},
        "networks_1000_2": {"rows": {"a": row("a", 1e-3), "b": row("b", 5e-4, "a second")}},
        "tvm": None,
        "tvm_long": None,
    }
    assert pictures._over_trials(documents) == {("a", "a first"): [1.0, 0.5, 0.25]}
    documents["second/networks_0_2"] = {"rows": {"b": row("b", 2e-3, "a second")}}
    assert pictures._over_trials(documents)["b", "a second"] == [1.0, 0.5, 0.25]
    figure = pictures.draw_trials(documents)
    assert figure is not None and [said.get_text() for said in figure.axes[0].texts] == ["1.00", "0.50", "0.25"]
    assert pictures.draw_trials({**documents, "networks_10_2": None}) is None


def test_results_of_a_second_processor_are_found(tmp_path: Path) -> None:
    for place in ("", "second/", "unfinished/"):
        (tmp_path / place).mkdir(exist_ok=True)
        (tmp_path / f"{place}tvm.json").write_text("{}")
    assert pictures._documents(("tvm", "tvm_long"), tmp_path) == {"tvm": {}, "tvm_long": None, "second/tvm": {}}
    assert list(results.load_all(("tvm", "tvm_long"), tmp_path)) == ["tvm", "second/tvm"]

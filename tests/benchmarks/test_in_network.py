"""Kernels in a network and alone: which are timed, and what the table says of them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from benchmarks import in_network


def test_the_kernels_that_take_nearly_all_the_time_are_timed() -> None:
    steps = ["a", "b", "a", "c"]
    profiled = np.array([[5.0, 1.0, 4.0, 0.01], [5.0, 1.0, 4.0, 0.01]])
    assert set(in_network._longest(steps, profiled)) == {"a", "b"}
    assert in_network._sums(steps, [5.0, 1.0, 4.0, 0.01], {"a": (3.0, 4.0)}) == [9.0, 6.0, 8.0]


def test_a_network_is_measured_and_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    weight = numpy_helper.from_array(rng.standard_normal((64, 48)).astype(np.float32), "w")
    ends = [helper.make_tensor_value_info(name, 1, [8, n]) for name, n in (("x", 64), ("y", 48))]
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Softmax", ["h"], ["y"], axis=-1)]
    graph = helper.make_graph(nodes, "tiny", ends[:1], ends[1:], [weight])
    file = tmp_path / "tiny.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), file)
    arguments = ["--models", str(file), "--repeat", "2", "--threads", "1", "--results", str(tmp_path)]
    assert in_network.main(arguments) == 0
    (row,) = json.loads((tmp_path / "in_network.json").read_text())["rows"].values()
    assert row["name"] == "tiny" and 1 <= row["kernels"] <= 2 and row["whole"] > 0 and row["shown"] <= row["steps"]
    assert row["cold"] > 0 and row["warm"] > 0
    assert "| tiny |" in capsys.readouterr().out

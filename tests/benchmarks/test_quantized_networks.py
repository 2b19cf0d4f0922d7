"""int8 networks beside peers: what is measured of each, by a small network, and what is refused."""

from __future__ import annotations

import argparse
import logging
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from autotune.config import check_config
from autotune.graph.quantise.formats import MOST_DECIBELS
from benchmarks import quantized_networks, tables
from benchmarks.stacks import STACKS, Stack
from benchmarks.subjects import signal_to_noise
from measure.timing import Timing, summary
from tests.autotune.compiler.test_network import two_layers


def test_a_network_beside_its_peers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        quantized_networks, "PEERS", [p for p in quantized_networks.PEERS if find_spec(p.partition("-")[0])]
    )
    file = two_layers(tmp_path / "two.onnx")
    options = argparse.Namespace(seed=0, trials=0, turns=0, threads=1)
    row = quantized_networks.compare("two", file, tmp_path, options)
    peers = {f"{peer}, {recipe}" for peer in quantized_networks.PEERS for recipe in ("all", "layers")}
    assert set(row["decibels"]) == {"autotune"} | peers
    assert all(20 < ratio < 60 for ratio in row["decibels"].values()) and row["seconds"] == {}
    best = max(ratio for label, ratio in row["decibels"].items() if label != "autotune")
    assert row["layers"] == 3 and row["decibels"]["autotune"] > best - 1
    assert logging.root.manager.disable < logging.WARNING, "who comes next can be heard"
    assert f"| two | 3 of 3 | {row['decibels']['autotune']:.1f} | {best:.1f} |" in tables.quantized_networks(
        {"rows": {"two": row}}
    )


def test_the_worst_output_counts() -> None:
    exact = [{"a": np.ones(4, np.float32), "b": np.full(4, 10.0, np.float32)}]
    found = [{"x": np.ones(4, np.float32), "y": np.full(4, 11.0, np.float32)}]
    assert signal_to_noise(exact, exact) == MOST_DECIBELS
    assert signal_to_noise(exact, found) == pytest.approx(20.0)


def test_the_table_takes_the_best_peer_of_each_kind() -> None:
    row = {
        "title": "net",
        "layers": 4,
        "float_layers": 1,
        "decibels": {"autotune": 30.0, "onnxruntime, all": 20.0, "openvino, layers": 29.0},
        "seconds": {"autotune": 0.001, "onnxruntime, all": 0.002, "openvino, layers": 0.004},
    }
    (line,) = tables.quantized_networks({"rows": {"net": row}}).splitlines()[2:]
    assert line.split(" | ")[1:5] == ["4 of 5", "30.0", "29.0", "OpenVINO int8, layers"]
    assert line.endswith("| ONNX Runtime int8, all | 2.00x |")


def test_bad_arguments(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert quantized_networks.main(["--rows", "resnet9"]) == 2
    assert "`rows` must be of resnet50, " in capsys.readouterr().err
    file = str(tmp_path / "none.onnx")
    assert quantized_networks.main(["--files", file, "--results", str(tmp_path)]) == 2
    assert "`files` must be ONNX files, but got" in capsys.readouterr().err
    assert quantized_networks.main(["--files", file]) == 2
    assert "`results` must be another folder where `files` are given" in capsys.readouterr().err


@pytest.mark.parametrize("name", STACKS)
def test_a_stack_of_layers_keeps_the_size_of_its_activations(name: str, tmp_path: Path) -> None:
    file = Stack(name).file(tmp_path, 0)
    model = onnx.load(file)
    assert check_config({"model": str(file), "name": name}, "a test").name == name
    runner = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (given,) = runner.get_inputs()
    (found,) = runner.run(None, {given.name: np.random.default_rng(0).standard_normal(given.shape, np.float32)})
    assert found.shape == tuple(given.shape) and 0.05 < found.std() < 20
    assert sum(node.op_type in ("Conv", "Gemm") for node in model.graph.node) == int(name.partition("_")[0])


def test_ours_and_the_peers_of_both_recipes_take_turns_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sessions: list[list[str]] = []

    def in_turns(processes: Any, turns: int) -> dict[str, Timing]:
        sessions.append([process.runtime for process in processes])
        return {process.runtime: summary([2.0, 2.0, 2.0, 1.0, 1.0, 1.0]) for process in processes}

    monkeypatch.setattr("benchmarks.figures.time_in_turns", in_turns)
    monkeypatch.setattr(quantized_networks, "PEERS", quantized_networks.PEERS[:1])
    options = argparse.Namespace(seed=0, trials=0, turns=4, threads=1)
    row = quantized_networks.compare("two", two_layers(tmp_path / "two.onnx"), tmp_path, options)
    (peer,) = quantized_networks.PEERS
    assert sessions == [["autotune", *(f"{peer}, {recipe}" for recipe in quantized_networks.RECIPES)]]
    assert set(row["seconds"]) == set(sessions[0]) and row["halves"]["autotune"] == [2.0, 1.0]

"""Steps of training beside PyTorch's own: what rows say, gradients, and the networks."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from benchmarks.pytorch.training import __main__ as command
from benchmarks.pytorch.training.networks import EXAMPLES
from benchmarks.pytorch.training.table import NETWORKS, STEP, ratio_to_fastest, training

pytestmark = pytest.mark.usefixtures("kernel_cache")

ROW: dict[str, Any] = {
    "name": "unet",
    "errors": {STEP: 4e-6, "autotune": 1e-6, "inductor": 2e-6, "eager": 3e-6},
    "seconds": {STEP: 1e-3, "autotune": 2e-3, "inductor": 3e-3, "eager": 4e-3},
    "peak_bytes": {STEP: 0.5e9, "autotune": 1e9, "inductor": 2e9, "eager": 3e9},
}


def test_the_table_has_ratios_to_each_and_to_the_faster() -> None:
    assert ratio_to_fastest(ROW) == (pytest.approx(1.5), 0.0)
    text = training({"rows": {"unet": ROW}})
    assert "| U-Net, 4 images | 1.0 | 2.0 | 3.0 | 4.0 | 3.00x | 1.50x | 4e-06 | 1e-06 | 2e-06 | 3e-06 | 0.50 |" in text
    assert "| step | 3.00x | 3.00x | 3.00x | 1 |" in text and "| `torch.compile` | 1.50x | 1.50x" in text


def test_errors_are_shares_of_all_gradients() -> None:
    reference = {"a": np.array([3.0, 0.0]), "b": np.array([4.0])}
    gradients = {"a": np.array([3.0, 0.5], np.float32), "b": np.array([4.0], np.float32)}
    assert command.compute_error(gradients, reference) == pytest.approx(0.1)


def test_a_network_is_trained_in_processes_and_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command.TrainingProcess, "server", "tests.benchmarks.tiny_training")
    monkeypatch.setattr(command, "RUNTIME_NAMES", ("eager", "autotune", STEP))
    row = command.measure_network("tiny", Namespace(seed=0, threads=1, turns=1))
    assert max(row["errors"].values()) < 1e-6
    for name in ("errors", "seconds", "first_seconds", "peak_bytes"):
        assert set(row[name]) == {"eager", "autotune", STEP}


def test_every_network_has_a_title_and_a_class_for_each_output() -> None:
    assert set(EXAMPLES) == set(NETWORKS)
    torch.manual_seed(0)
    for name in ("cost_model", "lstm", "unet"):
        example = EXAMPLES[name]()
        loss = example.loss(example.module(*example.inputs), example.targets)
        assert loss.isfinite()

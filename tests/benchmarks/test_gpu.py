"""The benchmark on GPUs as far as it goes without one: its rows, PyTorch's side of them, what it says and writes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks.gpu import __main__ as module
from benchmarks.gpu.__main__ import main, means
from benchmarks.gpu.peer import torch_calls
from benchmarks.gpu.rows import ROWS, TARGETS, Row
from benchmarks.gpu.table import beside_torch
from search_space import workloads
from search_space.space import generate
from search_space.workloads import Workload
from targets.cuda.device import DeviceLost
from targets.cuda.hardware import GPUS


def test_rows_have_names_of_their_own_and_sketches() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS) and {row.kind for row in ROWS} == {"fp32", "fp16", "rows"}
    assert sum(row.kind == "fp16" for row in ROWS) == 12
    for row in ROWS[:4]:
        assert generate(row.make(), GPUS["sm_90"]).sketches


SMALL = (
    workloads.matmul(8, 12, 5, constant_b=False),
    workloads.conv2d(height=6, width=7, in_channels=3, out_channels=5, kernel=3, stride=2, padding=1),
    workloads.softmax(rows=3, columns=9),
    workloads.layer_norm(rows=3, columns=9),
    workloads.reduce((4, 9), 1),
)


@pytest.mark.parametrize("workload", SMALL, ids=str)
def test_pytorch_computes_the_same(workload: Workload) -> None:
    pytest.importorskip("torch", reason="needs torch")
    given = workload.make_inputs(0)
    for call in torch_calls(workload, given, "cpu").values():
        np.testing.assert_allclose(call().numpy(), workload.reference(*given), rtol=1e-4, atol=1e-5)


def test_what_is_not_measured_is_refused() -> None:
    pytest.importorskip("torch", reason="needs torch")
    workload = workloads.max_pool2d(1, 5, 5, 4, kernel=2)
    with pytest.raises(ValueError, match="must be a product, a convolution or row-wise, but got max_pool2d"):
        torch_calls(workload, workload.make_inputs(0), "cpu")


def test_means_are_geometric_and_of_each_kind() -> None:
    rows = {
        "a": {"kind": "fp32", "ratio_warm": 0.5, "ratio_cold": 1.0},
        "b": {"kind": "fp32", "ratio_warm": 2.0, "ratio_cold": 4.0},
        "c": {"kind": "rows", "problem": "no schedule"},
    }
    assert means(rows) == pytest.approx({"fp32_warm": 1.0, "fp32_cold": 2.0})


def test_the_table_tells_ratios_and_what_was_not_measured() -> None:
    seconds = {"ours": 2e-5, "torch_plain": 3e-5, "torch_channels_last": 2.5e-5}
    measured = {
        "kind": "fp32",
        **dict.fromkeys(("warm", "cold"), seconds),
        **{f"ratio_{state}": 1.25 for state in ("warm", "cold")},
        "metrics": {"registers": 96.0, "spill_bytes": 0.0},
    }
    rows = {"one": measured, "two": {"kind": "fp32", "problem": "no schedule"}}
    document = {"device": "NVIDIA H200", "arch": "sm_90", "date": "2026-01-01", "means": means(rows), "rows": rows}
    text = beside_torch(document)
    assert "| one | 20.0 | 25.0 | 1.25x | 20.0 | 25.0 | 1.25x | 96 | 0 |" in text
    assert "| two | no schedule |" in text and "| fp32 | 1 | 1.25x | 1.25x | 1.0x |" in text
    assert "On NVIDIA H200 (sm_90), 2026-01-01" in text
    assert set(TARGETS) == {row.kind for row in ROWS}


def test_rows_that_are_not_there_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--rows", "matmul_7"]) == 2
    assert "`--rows` must be among matmul_1024x1024x1024_fp32, " in capsys.readouterr().err


def test_without_a_gpu_there_is_a_sentence(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("targets.cuda.device.missing_device", lambda: "there is no GPU here")
    assert main([]) == 2
    assert capsys.readouterr().err == "there is no GPU here\n"


@pytest.mark.parametrize(("broken", "measured"), [(False, 2), (True, 1)])
def test_a_row_that_fails_leaves_the_others_unless_the_device_is_lost(
    broken: bool, measured: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Gpu:
        name, arch = "GPU", "sm_90"

        def sync(self) -> None:
            if broken:
                raise DeviceLost("a kernel must run to its end")

    def compare(row: Row, *rest: object) -> dict[str, Any]:
        if row is ROWS[0]:
            raise DeviceLost("said the driver")
        return {"kind": row.kind, "ratio_warm": 2.0}

    saved: dict[str, Any] = {}
    monkeypatch.setattr(module, "CudaDevice", Gpu)
    monkeypatch.setattr(module, "compare", compare)
    monkeypatch.setattr(module.results, "save", lambda name, document: saved.update(document["rows"]))
    assert main(["--rows", f"{ROWS[0].name},{ROWS[1].name}"]) == 1
    assert len(saved) == measured and saved[ROWS[0].name]["problem"] == "DeviceLost: said the driver"
    assert ("takes no more work" in capsys.readouterr().err) == broken

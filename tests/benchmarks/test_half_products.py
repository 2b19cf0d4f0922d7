"""The benchmark of ways to multiply 16-bit floats, on a few candidates."""

from __future__ import annotations

import argparse

import pytest

from benchmarks.half_products import ROWS, WAYS, half_products, main, measure_row, select_sketches
from search_space import workloads
from targets import registry


@pytest.mark.parametrize("cpu", ["emeraldrapids", "znver5"])
def test_every_way_is_measured_whatever_the_rates_say(cpu: str) -> None:
    hardware = registry.get(f"cpu:{cpu}").hardware
    for way in WAYS:
        workload = workloads.matmul(8, 64, 8, dtype=way.partition(" ")[0])
        assert select_sketches(workload, way, hardware).sketches
    product = workloads.matmul(8, 64, 8, dtype="bfloat16")
    assert not select_sketches(product, "bfloat16 dots", registry.get("cpu:haswell").hardware).sketches


def test_a_row_has_the_time_of_each_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ROWS, "small", lambda dtype: workloads.matmul(8, 64, 8, dtype=dtype))
    row = measure_row("small", argparse.Namespace(candidates=1, rounds=1, seed=0))
    assert all(seconds is None or seconds > 0 for seconds in row["seconds"].values())
    seconds = dict(zip(WAYS, (2e-6, 1e-6, None, 2e-6, 4e-6, 8e-6), strict=True))
    text = half_products({"rows": {"small": {"name": "small", "flops": 8192, "seconds": seconds}}})
    assert "| small | 4 | 2.00 |  | 1.00 | 0.50 | 0.25 |" in text


def test_an_unknown_product_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--rows", "1x1"]) == 2
    assert "but got rows='1x1'" in capsys.readouterr().err

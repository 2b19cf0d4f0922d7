"""The comparison on the simulated VTA: a small run of it, and its table."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.tuner.tuner import tune
from benchmarks import results, tables, vta
from benchmarks.vta_template.conv import Conv2d, Knobs
from benchmarks.vta_template.resnet18 import MeasuredLayer, program
from targets.vta.hardware import PYNQ
from targets.vta.timing import simulate


def test_a_layer_is_tuned_and_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(vta, "ROWS", {"C7": vta.ROWS["C7"]})
    picture = tmp_path / "roofline.png"
    assert vta.main(["--trials", "8", "--results", str(tmp_path), "--picture", str(picture)]) == 0
    saved = results.load("vta", tmp_path)
    assert picture.exists()
    assert saved is not None
    row = saved["rows"]["C7"]
    assert row["cycles"]["measured"] == 102_877 and row["cycles"]["published"] == 102_850
    assert row["cycles"]["tuned"] < (row["cycles"]["one thread"] or float("inf"))
    assert 0 < row["gemm_utilisation"]["tuned"] < row["gemm_utilisation"]["bound"] < 1
    assert f"| C7 | 102,850 | {row['cycles']['tuned']:,} |" in capsys.readouterr().out


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> MeasuredLayer:
    """A layer of a few tiles in place of ResNet-18's, with a schedule of one tile a step."""
    layer = MeasuredLayer("S1", Conv2d(8, 8, 32, 32, 3, 1, 1), Knobs(4, 8, 1, 1, 2, 1), 20_000)
    monkeypatch.setattr(vta, "ROWS", {"S1": layer})
    return layer


def test_a_small_layer_is_computed_compared_and_placed_under_the_roof(small: MeasuredLayer) -> None:
    row = vta.compare("S1", trials=12, seed=1)
    published = simulate(program(small, PYNQ).program.table, PYNQ)
    gemm = 8 * 8 * 2 * 2 * 9  # micro-operations, whatever the schedule
    cycles, shares = row["cycles"], row["gemm_utilisation"]
    assert (cycles["measured"], cycles["published"]) == (20_000, published.cycles)
    assert PYNQ.host_cycles + gemm < cycles["tuned"] <= published.cycles
    for which, of in (("published", published.cycles), ("tuned", cycles["tuned"])):
        assert gemm <= shares[which] * of <= 1.5 * gemm  # and the latency of each instruction
    assert shares["tuned"] < shares["bound"] < 1 and row["flops"] == 2 * gemm * 256
    assert row["trials"] == 12 and row["errors"] == {}

    (standing,) = vta.points({"rows": {"S1": row}})
    assert (standing.name, standing.flops) == ("S1", row["flops"])
    assert standing.seconds == PYNQ.seconds(cycles["tuned"])
    assert standing.dram_bytes >= 8 * 8 * 32 + 9 * 32 * 32 + 8 * 8 * 32  # each tensor once at least

    header, _, *lines = tables.vta({"rows": {"S1": row}}).splitlines()[:3]
    assert len(lines[0].split("|")) == len(header.split("|"))
    assert lines[0].startswith(f"| S1 | {published.cycles:,} | {cycles['tuned']:,} |")


def test_without_virtual_threads_the_same_schedule_is_built_again(small: MeasuredLayer) -> None:
    result = tune(vta.make_workload(small), target="vta", trials=12, seed=1)
    values = vta.tuned_values(result)
    threads = [value for name, value in values.items() if name.endswith(".threads")]
    single = vta.without_threads(result)
    if max(threads, default=1) == 1:
        assert single is None
    else:
        assert single is not None and single > result.best.metrics["cycles"]


def test_a_name_that_is_no_layer(capsys: pytest.CaptureFixture[str]) -> None:
    assert vta.main(["--rows", "C1"]) == 2
    assert "`rows` must be of C2, " in capsys.readouterr().err

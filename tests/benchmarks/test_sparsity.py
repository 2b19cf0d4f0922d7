"""Products with sparse weights beside peers: what peers compute, the rows' density, and a table of times made up."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import sparsity
from benchmarks.interleave import SelfTimer
from benchmarks.peers.base import Refusal
from benchmarks.peers.sparse_peer import RUNTIMES
from search_space.operators.sparse import unpack_blocks
from search_space.workloads import Workload
from tests.benchmarks.waiting import waiting


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_peers_compute_the_product(runtime: str) -> None:
    torch = pytest.importorskip("torch", reason="needs the package torch")
    rng, threads = np.random.default_rng(0), torch.get_num_threads()
    weight, data = rng.standard_normal((8, 12)).astype(np.float32), rng.standard_normal((12, 5)).astype(np.float32)
    weight[:4, 4:] = 0
    try:
        found = RUNTIMES[runtime](weight, data, (4, 4), 1)()
    finally:
        torch.set_num_threads(threads)
    np.testing.assert_allclose(found, weight @ data, rtol=1e-4, atol=1e-5)


def test_rows_have_the_zeros_that_they_say() -> None:
    for row in sparsity.ROWS.values():
        workload, dense = row.make_sparse(), row.make_dense()
        assert abs(100 * (1 - workload.flops / dense.flops) - row.zeros) < 2
        assert workload.output.shape == dense.output.shape and workload.dtypes == dense.dtypes | {"int32"}
    for name in ("64_16x1_80", "64_4x4_80_int8"):
        workload = sparsity.ROWS[name].make_sparse()
        _, *packed = workload.make_inputs(0)
        assert packed[2].max() == workload.args["fullest"]
        assert abs((unpack_blocks(workload.args, *packed) == 0).mean() - 0.8) < 0.02


class _Process:
    """A peer that answers at once; SciPy has no such product."""

    def __init__(self, module: str) -> None:
        self.module = module

    def __enter__(self) -> _Process:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def prepare(self, workload: Workload, threads: int, **options: Any) -> dict[str, Any]:
        if options.get("runtime") == "scipy_bsr":
            raise Refusal("SciPy is not installed")
        return {}


def made_up(peers: Mapping[str, SelfTimer], repeat: int) -> dict[str, list[float]]:
    return {name: [1e-6 * 2**place] * 4 for place, name in enumerate(peers)}


def test_a_row_is_measured_and_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sparsity, "PeerProcess", _Process)
    monkeypatch.setattr(sparsity, "measure_turns", made_up)
    assert sparsity.main(["--rows", "64_16x1_90", "--trials", "0", "--results", str(tmp_path)]) == 0
    (row,) = waiting("sparsity", tmp_path).values()
    assert row["algorithms"] == {"untimed": "direct"} and row["peers"]["scipy_bsr"]["error"] == "SciPy is not installed"
    cells = [cell.strip() for cell in capsys.readouterr().out.splitlines()[-1].strip("|").split("|")]
    assert cells == [
        *("64 rows", "float32", "16x1", "90%", "1", "2", "", "4", "", "", "8", "16", "", "0.50x", "", "2.00x"),
    ]


def test_costs_are_times_by_the_share_of_blocks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sparsity, "PeerProcess", _Process)
    monkeypatch.setattr(sparsity, "measure_turns", made_up)
    monkeypatch.setattr(sparsity, "choose", lambda workload, trials, options: {})
    monkeypatch.setattr(sparsity, "COSTS", {"int8": {(16, 4): 2.0, (4, 4): 2.3}})
    assert sparsity.main(["--costs", "int8"]) == 0
    lines = [line.replace(" ", "") for line in capsys.readouterr().out.splitlines()]
    assert lines[2:] == ["|16x4|10.04|", "|4x4|20.08|"]

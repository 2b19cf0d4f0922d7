"""The comparison of kernels along rows: its peers compute what it says, rows are measured once, and its table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from benchmarks import row_wise
from benchmarks.interleave import measure_turns
from benchmarks.peers.base import PeerProcess, make_inputs
from benchmarks.peers.row_wise_peer import ONNX, RUNTIMES, build_model
from benchmarks.row_kinds import KINDS
from benchmarks.row_wise_table import PEERS
from benchmarks.row_wise_table import row_wise as shown
from tests.benchmarks.waiting import waiting


def test_every_kind_has_a_node_and_every_peer_a_runtime() -> None:
    assert set(ONNX) == set(KINDS) and set(PEERS) == set(RUNTIMES)


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_peers_compute_what_the_workload_says(runtime: str) -> None:
    """Each peer runs in a process of its own, which compares outputs with the reference before it answers."""
    pytest.importorskip(runtime, reason=f"needs the package {runtime}")
    with PeerProcess("benchmarks.peers.row_wise_peer") as peer:
        for kind, length in (("layer_norm", 33), ("softmax", 20)):  # a process serves all rows
            said = peer.prepare(KINDS[kind](5, length), 1, runtime=runtime, kind=kind)
            assert said["variant"] == kind and min(peer.time(3)) > 0


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "rms_norm"])  # of ONNX Runtime's own
def test_nodes_of_onnx_are_of_their_kind(kind: str) -> None:
    workload = KINDS[kind](5, 33)
    arrays = make_inputs(workload)
    model = onnx.load_from_string(build_model(kind, arrays, workload.output.shape))
    (found,) = ReferenceEvaluator(model).run(None, {"x": arrays[0]})
    np.testing.assert_allclose(found, workload.reference(*arrays), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_torch_has_every_kind(kind: str) -> None:
    torch = pytest.importorskip("torch", reason="needs the package torch")
    workload, threads = KINDS[kind](5, 33), torch.get_num_threads()
    arrays = make_inputs(workload)
    try:
        found = RUNTIMES["torch"](kind, workload, arrays, 1).output()
    finally:
        torch.set_num_threads(threads)
    np.testing.assert_allclose(found, workload.reference(*arrays), rtol=1e-4, atol=1e-5)


def test_rows_are_compared_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(row_wise, "ELEMENTS", 1 << 9)
    monkeypatch.setattr(row_wise, "PEERS", ("torch",))
    monkeypatch.setattr(
        row_wise, "measure_turns", lambda turns, repeat, **_: measure_turns(turns, repeat, 1e-4, 0, 1e-4)
    )
    given = [
        "--rows",
        "max 33,max 7",
        "--lengths",
        "33,7",
        "--trials",
        "0",
        "--threads",
        "1",
        "--results",
        str(tmp_path),
    ]
    assert row_wise.main(given) == 0
    shown = capsys.readouterr().out
    assert "| max | 15x33 |" in shown and "| max | 73x7 |" in shown
    rows = waiting(row_wise.NAME, tmp_path)
    assert [set(row["seconds"]) for row in rows.values()] == [{"untimed", "torch"}] * 2
    monkeypatch.setattr(row_wise, "compare", lambda *_: pytest.fail("it is done"))
    assert row_wise.main(given) == 0


def row(kind: str, length: int, **seconds: float) -> dict[str, Any]:
    return {"kind": kind, "rows": 4, "length": length, "seconds": seconds}


def test_the_table_compares_with_the_best_peer() -> None:
    rows = [row("max", 33, untimed=2e-6, tuned=1e-6, torch=3e-6, onnxruntime=4e-6), row("softmax", 64, untimed=1e-6)]
    rows.append(row("max", 32, untimed=1e-6, tuned=1e-6, torch=6e-6, openvino=8e-6))
    lines = shown({"rows": dict(enumerate(rows))}).splitlines()
    assert lines[2:5] == [
        "| softmax | 4x64 | 1.0 |  |  |  |  |  |  |",
        "| max | 4x32 | 1.0 | 1.0 | 6.0 |  | 8.0 | 6.00x | 6.00x |",
        "| max | 4x33 | 2.0 | 1.0 | 3.0 | 4.0 |  | 1.50x | 3.00x |",
    ]
    assert lines[-3] == "| max | 1.50x | 3.00x | 3.00x | 4.24x | 2 |"


def test_times_that_are_not_known_count_for_nobody() -> None:
    """Unsteady times of ours count as little as those of peers."""
    peer = row("max", 32, untimed=1e-6, torch=6e-6, openvino=1e-7) | {"spread": {"openvino": 1.1, "torch": 1.0}}
    ours = row("max", 33, untimed=1e-7, torch=6e-6) | {"spread": {"untimed": 1.1}}
    lines = shown({"rows": {"peer": peer, "ours": ours}}).splitlines()
    assert lines[2:4] == [
        "| max | 4x32 | 1.0 |  | 6.0 |  | (0.1) | 6.00x |  |",
        "| max | 4x33 | (0.1) |  | 6.0 |  |  |  |  |",
    ]
    assert lines[-3].startswith("| max | 6.00x | 6.00x |")


@pytest.mark.parametrize("bad", ["0", "1,200000", "a", ""])
def test_lengths_that_cannot_be_are_refused(bad: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        row_wise.parse(["--lengths", bad])
    assert ended.value.code == 2 and "must be" in capsys.readouterr().err


def test_kinds_that_are_not_known_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert row_wise.main(["--rows", "softmin 32"]) == 2
    assert "softmin 32" in capsys.readouterr().err

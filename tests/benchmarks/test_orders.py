"""The comparison of orders of operands: all orders compute one thing, `einsum` as well, and its table."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import orders, results
from benchmarks.order_rows import ROWS, OrderRow
from benchmarks.orders_table import orders as shown
from benchmarks.peers import einsum_peer
from benchmarks.peers.base import PeerError
from search_space import te
from search_space.workloads import Workload
from tests.benchmarks.fake_tuning import Fakes


def shrink(row: OrderRow) -> OrderRow:
    """Makes all axes short, and those of windows shorter."""
    return replace(row, extents={axis: 2 if axis in "yx" else 3 + i for i, axis in enumerate(row.extents)})


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_every_order_is_what_einsum_computes(row: OrderRow, monkeypatch: pytest.MonkeyPatch) -> None:
    small = shrink(row)
    monkeypatch.setattr(einsum_peer, "ROWS", (small,))
    for label in small.orders:
        workload, peer = small.workload(label), einsum_peer.EinsumPeer()
        arrays = workload.make_inputs(0)
        options = {"row": row.name, "order": label}
        if row.distance:
            with pytest.raises(PeerError, match="must be a sum of products"):
                peer.prepare(workload, arrays, 1, options)
        else:  # it compares its output with the reference
            assert peer.prepare(workload, arrays, 1, options)["variant"].endswith(f"->{row.output}")
            assert peer.output().shape == workload.output.shape and np.all(peer.time(2) > 0)


def test_orders_differ_and_have_equal_operations() -> None:
    for row in ROWS:
        made = [row.workload(label) for label in row.orders]
        assert len({workload.key for workload in made}) == len(made)
        assert len({workload.flops for workload in made}) == 1


def test_rows_are_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = next(row for row in ROWS if row.distance)
    fakes = Fakes(lambda workload, seed: 1e-3 if workload.key == row.workload("NT").key else 2e-3)
    fakes.install(orders, monkeypatch)
    monkeypatch.setattr(orders, "ROWS", (row,))
    searches: list[tuple[Any, ...]] = []

    def search_by_tvm(
        stack: ExitStack, workload: Workload, counts: Any, python: str, options: Any, **definition: str
    ) -> Any:
        searches.append((workload.key, *counts, python, options.mcpu, definition))
        process = stack.enter_context(orders.PeerProcess("benchmarks.peers.ours"))
        process.prepare(workload, options.threads, latency=3e-3)
        return {counts[0]: process}, {"seconds": 4.0}

    monkeypatch.setattr(orders.tvm, "interpreter", lambda folder: "python")
    monkeypatch.setattr(orders.tvm, "search_by_tvm", search_by_tvm)
    assert orders.main(["--trials", "5", "--threads", "1", "--mcpu", "x", "--results", str(tmp_path)]) == 0
    (found,) = results.load(orders.NAME, tmp_path)["rows"].values()
    assert {label: round(seconds, 6) for label, seconds in found["seconds"].items()} == {
        **{label: 1e-3 if label == "NT" else 2e-3 for label in row.orders},
        **{orders.TVM + label: 3e-3 for label in ("NN", "TT")},
    }
    assert [trials for _, trials, _, _ in fakes.tunings] == [5] * len(row.orders) and fakes.close_count == 6
    assert searches == [
        (row.workload(label).key, 5, "python", "x", {"row": "distances", "order": label}) for label in ("NN", "TT")
    ]
    assert found["tvm"] == {"NN": {"seconds": 4.0}, "TT": {"seconds": 4.0}}
    said = capsys.readouterr().out
    assert "| distances | NT | 5 |" in said and "| TVM's time over ours | 1.50x | 1.50x | 1.50x | 2 |" in said


def test_einsum_runs_in_a_process_of_its_own() -> None:
    row = ROWS[1]
    with orders.open_einsum(1) as peer:
        said = peer.prepare(row.workload("NT"), 1, row=row.name, order="NT")
        assert said == {"variant": "ik,jk->ij", "threads": "1"} and min(peer.time(3)) > 0


def test_the_table_compares_with_the_fastest_order_and_with_peers() -> None:
    seconds = {"NN": 1e-3, "NT": 2e-3, "einsum NN": 4e-3, "tvm NT": 3e-3}
    row = {"flops": 4e6, "trials": {"NN": 64, "NT": 5}, "seconds": seconds}
    lines = [line for line in shown({"rows": {"product": row}}).splitlines() if line and line[:3] != "| -"]
    assert lines[1:3] == [
        "| TVM's time over ours | 1.50x | 1.50x | 1.50x | 1 |",
        "| slowest order's time over the fastest's | 2.00x | 2.00x | 2.00x | 1 |",
    ]
    assert lines[4:] == [
        "| product | NN | 64 | 4.0 | ≈1.00x | 1.0 |  |  |",
        "| product | NT | 5 | 2.0 | 2.00x |  | 1.3 | 1.50x |",
    ]


def test_definitions_of_another_language_have_the_same_tensors() -> None:
    """TVM's module has functions of the same names; ours stands in for it, and tells what is called."""
    calls: list[str] = []

    class Language:
        def __getattr__(self, name: str) -> Any:
            calls.append(name)
            return getattr(te, name)

    for row in ROWS:
        for label in row.ends:
            assert Workload.of(row.tensors(label, Language())).key == row.workload(label).key
    assert set(calls) == {"placeholder", "reduce_axis", "compute", "sum", "abs"}


def test_a_row_that_is_not_there_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert orders.main(["--rows", "quotients"]) == 2
    assert "quotients" in capsys.readouterr().err

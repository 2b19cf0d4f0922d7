"""Products with weights of a few bits beside peers: what peers compute, with times made up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from benchmarks import tables, weights_only
from benchmarks.interleave import SelfTimer
from benchmarks.peers import nbits_peer
from benchmarks.peers.base import Refusal
from tests.benchmarks.waiting import waiting


def test_runtimes_compute_the_same() -> None:
    model = nbits_peer.chain(2, 32, 48, 4, 16, 3)
    x = np.random.default_rng(0).standard_normal((2, 32)).astype(np.float32)
    ours, theirs = (run(model, x, 1) for run in (nbits_peer.by_autotune, nbits_peer.by_onnxruntime))
    assert ours[1].shape == (2, 48) and 0.1 < np.abs(ours[1]).mean() < 10  # activations keep their size
    np.testing.assert_allclose(ours[1], theirs[1], rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(ours[0](), ours[1])


@pytest.mark.parametrize("bits", [4, 8])
def test_long_chains_keep_the_size_of_their_activations(bits: int) -> None:
    model = nbits_peer.chain(1, 256, 128, bits, 32, 60)
    x = np.random.default_rng(0).standard_normal((1, 256)).astype(np.float32)
    _, found = nbits_peer.by_onnxruntime(model, x, 1)
    assert 1e-3 < np.abs(found).mean() < 1e3


class _Process:
    """A peer that answers at once; OpenVINO takes no model."""

    def __init__(self, module: str) -> None:
        assert module == "benchmarks.peers.nbits_peer"

    def __enter__(self) -> _Process:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        if request["runtime"] == "openvino":
            raise Refusal("OpenVINO does not take the model")
        return {"output": [1.0, 2.0 + request["chain"]["level"] / 400]} if request["runtime"] != "read" else {}


def made_up(peers: Mapping[str, SelfTimer], repeat: int) -> dict[str, list[float]]:
    return {name: [7e-3 + 1e-3 * place] * 4 for place, name in enumerate([*peers][::-1])}


def test_a_row_is_measured_and_shown(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(weights_only, "PeerProcess", _Process)
    monkeypatch.setattr(weights_only, "measure_turns", made_up)
    words = ["--rows", "1x4096x4096_4_32", "--megabytes", "75", "--results", str(tmp_path)]
    assert weights_only.main(words) == 0
    (row,) = waiting("weights_only", tmp_path).values()
    assert row["count"] == 8 and row["nbytes"] == 4096 * 4096 // 2 + 128 * 4096 * 4
    assert row["absent"] == dict.fromkeys(("openvino", "openvino_bytes"), "OpenVINO does not take the model")
    assert row["decibels"]["onnxruntime"] == 999.0 and 40 < row["decibels"]["onnxruntime_bytes"] < 60
    last = capsys.readouterr().out.splitlines()[-1]
    cells = [cell.strip() for cell in last.strip("|").split("|")]
    assert cells[1:] == ["875", "1375", "1250", "", "1125 (47 dB)", "1000 (47 dB)", "", "78%", "0.91x", "0.89x"]
    assert tables.weights_only({"rows": {"a": row}}).splitlines()[-1] == last


def test_an_unknown_row_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert weights_only.main(["--rows", "1x2x3_4_16"]) == 2
    assert "`rows` must be of 1x4096x4096_4_32" in capsys.readouterr().err

"""ONNX Runtime's arena: its own counts, of the last run, without the weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from benchmarks.ort_arena import Arena, arena_of, measure_arena
from tests.graph.helpers import save


def chain(path: Path, count: int) -> Path:
    """Products of 64 x 256 by 256 x 256, one after the other: 64 KiB each, of which two are alive at once."""
    rng = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array(rng.standard_normal((256, 256)).astype(np.float32), f"w{i}") for i in range(count)
    ]
    names = ["x", *(f"h{i}" for i in range(1, count)), "y"]
    nodes = [helper.make_node("MatMul", [names[i], f"w{i}"], [names[i + 1]]) for i in range(count)]
    return save(path, nodes, {"x": (64, 256)}, weights)


@pytest.mark.parametrize("count", [3, 9])
def test_values_alive_at_once_count_and_weights_do_not(tmp_path: Path, count: int) -> None:
    path = chain(tmp_path / "chain.onnx", count)
    assert onnx.load(path).graph.output[0].name == "y"
    arena = measure_arena(path, {"x": np.ones((64, 256), np.float32)}, threads=1, runs=3)
    value = 64 * 256 * 4
    assert 2 * value <= arena.requested <= 4 * value  # weights are 256 KiB each
    assert arena.requested <= arena.used


def event(**counts: int) -> dict[str, object]:
    return {"args": {f"mem_{name}": str(count) for name, count in counts.items()}}


def test_the_last_run_counts_less_what_was_there_before_the_first() -> None:
    def counted(used: int) -> dict[str, object]:
        return event(bytes_in_use=used, in_use_delta=200, bytes_requested_in_use=used - 10, requested_in_use_delta=150)

    events = [counted(900), counted(1400), {"name": "session"}, counted(1000), counted(1300)]
    assert arena_of(events, 2) == Arena(1290 - (890 - 150), 1300 - (900 - 200))


def test_a_profile_without_counts_is_refused() -> None:
    with pytest.raises(ValueError, match="must have mem_bytes_in_use of nodes"):
        arena_of([{"args": {}}, {"name": "x"}], 1)

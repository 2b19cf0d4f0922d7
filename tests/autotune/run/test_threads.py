"""Threads are bounded by the cores of the machine that measures, whoever asks for them."""

from __future__ import annotations

from pathlib import Path

import pytest

import autotune
from autotune.config import ConfigError, Measure
from autotune.graph.reference import onnxruntime_seconds
from autotune.pytorch.options import read_options
from autotune.tuner.settings import Settings
from search_space import workloads
from targets.threads import host_cores
from tests.autotune.compiler.test_compiled import small


@pytest.mark.parametrize("pool", ["local", "replay:records.jsonl"])
def test_threads_are_bounded_by_the_cores_where_this_host_measures(pool: str) -> None:
    """The bound does not hold for other machines, nor for records of them."""
    cores = host_cores()
    assert Settings(measure=Measure(threads=cores, pool=pool)).threads == cores
    said = rf"^measure\.threads: `threads` must be from 1 to {cores}, the cores that .*, but got threads={cores + 1}$"
    if pool == "local":
        with pytest.raises(ConfigError, match=said):
            Settings(measure=Measure(threads=cores + 1))
    else:
        assert Settings(measure=Measure(threads=cores + 1, pool=pool)).threads == cores + 1
    with pytest.raises(ValueError, match="at most 1024"):
        Measure(threads=1_000_000, pool=pool)


def test_a_call_has_no_more_threads_than_cores(tmp_path: Path) -> None:
    many = host_cores() + 1
    said = f"`threads` must be from 1 to .*, but got threads={many}"
    folder = autotune.compile(small(), threads=1).save(tmp_path / "saved")
    for call in (
        lambda: autotune.compile(small(), threads=many),
        lambda: autotune.load(folder, threads=many),
        lambda: read_options(None, {"threads": many}),
        lambda: onnxruntime_seconds([workloads.softmax(4, 4)], many),
    ):
        with pytest.raises(ValueError, match=said):
            call()

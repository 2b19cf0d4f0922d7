"""Kernels of an accelerator under its roof."""

from pathlib import Path

import autotune
from autotune.config import Measure
from autotune.report.roofline import draw, make_point, single_threaded, without_threads
from search_space import workloads
from search_space.schedule.steps import Annotate, Split
from search_space.schedule.trace import Trace

WORKLOAD = workloads.conv2d_blocked(14, 14, 32, 64, padding=1)


def test_virtual_threads_are_taken_out_and_tiles_stay() -> None:
    trace = Trace((Split("out", "k", (2, 4), "clamp"), Annotate("out", "k.1", "vthread"), Split("out", "h", (1, 7))))
    changed = without_threads(trace)
    assert changed is not None
    assert changed.steps == (Split("out", "k", (1, 4), "clamp"), *trace.steps[1:])
    assert without_threads(changed) is None and without_threads(Trace()) is None


def test_a_tuned_layer_stands_under_the_roof(tmp_path: Path) -> None:
    result = autotune.tune(WORKLOAD, target="vta", trials=8, seed=1, cost_model="roofline")
    found = make_point(result)
    assert found is not None and found.seconds == result.best_seconds
    hardware = result.hardware
    least = sum(int(spec.nbytes) for spec in (*WORKLOAD.make_inputs(0), WORKLOAD.reference(*WORKLOAD.make_inputs(0))))
    assert found.dram_bytes >= least
    assert found.flops / found.seconds <= min(hardware.peak_flops, found.flops / found.dram_bytes * hardware.bandwidth)
    single = single_threaded(result)
    assert single is None or single > 0
    draw([found], hardware, tmp_path / "roofline.png")
    assert (tmp_path / "roofline.png").read_bytes().startswith(b"\x89PNG")


def test_a_processor_has_no_place_there() -> None:
    result = autotune.tune(workloads.matmul(8, 16, 8), trials=2, measure=Measure(threads=1), cost_model="roofline")
    assert make_point(result) is None

"""Kernels of an accelerator under its roofline (Williams et al., CACM 2009), with and without virtual threads.

Work by byte of DRAM traffic says whether the matrix unit or the memory port bounds a kernel. A kernel whose copies and
products run one after the other stays below the roof; virtual threads let them overlap (latency hiding).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from autotune.tuner.result import TuneResult
from search_space.hardware import Hardware
from search_space.schedule.steps import Annotate, Split, Step
from search_space.schedule.trace import Trace
from search_space.space import make_program
from targets import registry


@dataclass(frozen=True)
class RooflinePoint:
    """A kernel in the roofline plot.

    Attributes:
        name: name of the layer.
        flops: operations of one execution.
        dram_bytes: bytes that one execution moves.
        seconds: latency of one execution.
        single_seconds: latency of the same schedule with one virtual thread in place of several; None without such.
    """

    name: str
    flops: int
    dram_bytes: float
    seconds: float
    single_seconds: float | None = None


def make_point(result: TuneResult) -> RooflinePoint | None:
    """Computes the point of a task's best kernel; None if its target counts no bytes, or no candidate works.

    The schedule without virtual threads is built and timed anew, on the target's simulator.
    """
    if result.best is None or "dram_bytes" not in result.best.metrics:
        return None
    moved, single = result.best.metrics["dram_bytes"], single_threaded(result)
    return RooflinePoint(result.name, result.workload.flops, moved, result.best_seconds, single)


def single_threaded(result: TuneResult) -> float | None:
    """Times the best schedule with one virtual thread in place of several; None without virtual threads.

    Raises:
        LookupError: a result without a best schedule.
    """
    trace = without_threads(result.trace)
    if trace is None:
        return None
    assert result.best is not None
    target = registry.get(result.target)
    module = target.build(make_program(result.workload, result.best.algorithm, trace))
    return float(target.load(module).bind(result.workload.make_inputs(result.seed)).time(1)[0])


def without_threads(trace: Trace) -> Trace | None:
    """Reduces every loop of virtual threads to one iteration, tiles unchanged; None without such a loop."""
    threads = {(s.stage, s.axis) for s in trace.steps if isinstance(s, Annotate) and s.kind == "vthread"}
    steps: list[Step] = []
    for step in trace.steps:
        if isinstance(step, Split):
            factors = tuple(
                1 if (step.stage, f"{step.axis}.{place}") in threads else factor
                for place, factor in enumerate(step.factors, 1)
            )
            step = replace(step, factors=factors)
        steps.append(step)
    changed = Trace(tuple(steps))
    return None if changed == trace else changed


def draw(points: Sequence[RooflinePoint], hardware: Hardware, path: Path) -> None:
    """Draws operations a second against operations a byte under the roof; points without virtual threads are hollow."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.add_subplot()
    intensities = [p.flops / p.dram_bytes for p in points]
    low, high = min(intensities) / 2, max(intensities) * 2
    ridge = hardware.peak_flops / hardware.bandwidth
    roof = [min(hardware.peak_flops, x * hardware.bandwidth) * 1e-9 for x in (low, max(low, min(ridge, high)), high)]
    axes.plot([low, max(low, min(ridge, high)), high], roof, color="black", linewidth=1)
    for point, x in zip(points, intensities, strict=True):
        top = point.flops / point.seconds * 1e-9
        (mark,) = axes.plot(x, top, "o")
        if point.single_seconds is not None:
            below = point.flops / point.single_seconds * 1e-9
            axes.plot([x, x], [below, top], color=mark.get_color(), linewidth=1)
            axes.plot(x, below, "o", markerfacecolor="white", color=mark.get_color())
        axes.annotate(point.name, (x, top), textcoords="offset points", xytext=(5, 4), fontsize="small")
    axes.set(xlabel="operations a byte of DRAM traffic", ylabel="GOP/s", xscale="log", ylim=(0, None))
    axes.set_title(f"{hardware.name}: with virtual threads, and without (hollow)", fontsize="medium")
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=110)

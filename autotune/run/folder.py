"""The run folder: records, summary, the best kernel of each task in every form, and the tuning curves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from autotune.config import RunConfig
from autotune.naming import file_name
from autotune.run_files import SCHEMA, write_json
from autotune.tuner.result import TuneResult
from autotune.units import latency
from measure.host import describe_host
from search_space.hardware import Hardware
from targets import registry


def summary(config: RunConfig, results: Sequence[TuneResult], references: Sequence[float | None]) -> dict[str, Any]:
    """Makes the document of `summary.json` and `--json`."""
    tasks = []
    hardware = {result.target: result.hardware.to_json() for result in results}
    for result, seconds in zip(results, references, strict=True):
        reference = None if seconds is None else "onnxruntime"
        tasks.append({**result.summary(), "reference": reference, "reference_seconds": seconds})
    return {
        "schema": SCHEMA,
        "config": config.model_dump(mode="json"),
        "host": describe_host(),
        "hardware": hardware,
        "tasks": tasks,
    }


def write_processor(results: Sequence[TuneResult], folder: Path) -> None:
    """Writes `processor.json`, what was probed of this host, where it is what the estimate went by."""
    for target in {result.target for result in results}:
        figures = registry.get(target).figures()
        if figures is not None:
            write_json(figures, folder / "processor.json")


def write_best(result: TuneResult, folder: Path) -> str | None:
    """Writes schedule, program, LLVM IR, assembly, object, library and header of the best kernel of a task.

    Returns:
        Sentence on the files that could not be written; None if all were.
    """
    if result.best is None:
        return None
    task_folder = folder / "best" / file_name(result.name)
    task_folder.mkdir(parents=True, exist_ok=True)
    head = f"# {result.workload.key}\n# algorithm: {result.algorithm}, {latency(result.best_seconds)}\n"
    (task_folder / "schedule.txt").write_text(f"{head}{result.trace}\n")
    (task_folder / "program.txt").write_text(f"{result.program}\n")
    target = registry.get(result.target)
    try:
        if result.module.llvm_ir:
            (task_folder / "kernel.ll").write_text(result.module.llvm_ir)
        (task_folder / "kernel.s").write_text(target.assembly(result.module))
        target.export(result.module, task_folder, "kernel")
    except RuntimeError as error:  # BuildError, or a linker that refuses
        return f"{result.name}: the best kernel could not be exported: {error}"
    return None


def draw_rooflines(results: Sequence[TuneResult], folder: Path) -> None:
    """Draws the kernels of each target that counts its DRAM traffic under its roof, to `roofline.png`."""
    from autotune.report.roofline import RooflinePoint, draw, make_point

    points_by_target: dict[str, tuple[Hardware, list[RooflinePoint]]] = {}
    for result in results:
        if (place := make_point(result)) is not None:
            points_by_target.setdefault(result.target, (result.hardware, []))[1].append(place)
    for number, (hardware, points) in enumerate(points_by_target.values()):
        name = "roofline.png" if number == 0 else f"roofline{number}.png"
        draw(points, hardware, folder / name)


def draw_curves(results: Sequence[TuneResult], path: Path) -> None:
    """Draws the best rate after each trial of every task, and a marker with quartiles for timings at the end."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.add_subplot()
    for result in results:
        rates = np.nan_to_num(result.workload.flops / result.curve * 1e-9)
        (line,) = axes.plot(np.arange(1, len(rates) + 1), rates, drawstyle="steps-post", label=result.name)
        if result.finals and result.best is not None:
            # Quartiles of the timings, which lie a spread apart: as factors, for a spread may be twice the median.
            factor = 1 + np.nan_to_num(result.spread) / 2
            errors = [[result.gflops - result.gflops / factor], [result.gflops * factor - result.gflops]]
            axes.errorbar([len(rates)], [result.gflops], errors, fmt="o", markersize=4, color=line.get_color())
    axes.set(xlabel="trials", ylabel="best GFLOP/s", xlim=(0, None), ylim=(0, None))
    axes.grid(alpha=0.3)
    if len(results) <= 12:
        axes.legend(fontsize="small")
    figure.savefig(path, dpi=110)

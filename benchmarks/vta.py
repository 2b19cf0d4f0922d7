"""ResNet-18's measured layers tuned for the simulated VTA, beside TVM's published schedules in the same simulator.

`python -m benchmarks.vta [--rows C2,...] [--trials 128] [--seed 0]` prints the table, and writes
`benchmarks/results/vta.json` and `docs/vta_roofline.png` once all rows are there. Simulated cycles are the same on
every host; only trials a second are not.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from autotune.report.roofline import RooflinePoint, draw
from autotune.tuner.result import TuneResult
from autotune.tuner.tuner import tune
from benchmarks import results, tables
from benchmarks.collected import add_options, add_picture, collect, find_picture
from benchmarks.vta_template.conv import SHIFT
from benchmarks.vta_template.resnet18 import LAYERS, MeasuredLayer, program
from search_space import workloads
from search_space.space import Sketch, generate, make_program
from search_space.workloads import Workload
from targets import registry
from targets.vta.hardware import PYNQ
from targets.vta.kernel import VtaKernel
from targets.vta.timing import simulate

NAME = TARGET = "vta"
ROWS = {layer.name: layer for layer in LAYERS}


def make_workload(layer: MeasuredLayer) -> Workload:
    """Makes the layer with the ending it was measured with."""
    conv = layer.conv
    return workloads.conv2d_blocked(
        conv.height,
        conv.width,
        conv.in_channels,
        conv.out_channels,
        conv.batch,
        conv.kernel,
        conv.stride,
        conv.padding,
        SHIFT,
        relu=True,
        block=(PYNQ.batch, PYNQ.block_out, PYNQ.block_in),
    )


def compare(name: str, trials: int, seed: int) -> dict[str, Any]:
    """Tunes one layer; returns cycles of both schedules and facts about the tuned one."""
    layer = ROWS[name]
    workload = make_workload(layer)
    start = time.perf_counter()
    result = tune(workload, target=TARGET, trials=trials, seed=seed)
    seconds = time.perf_counter() - start
    if result.best is None:
        raise RuntimeError(f"`trials` must hold one that works, but got trials={trials}: {result.errors}")
    published = simulate(program(layer, PYNQ).program.table, PYNQ)
    metrics = dict(result.best.metrics)
    return {
        "title": name,
        "workload": workload.key,
        "trials": trials,
        "seed": seed,
        "flops": workload.flops,
        "cycles": {
            "measured": layer.cycles,
            "published": published.cycles,
            "tuned": metrics["cycles"],
            "one thread": without_threads(result),
        },
        "gemm_utilisation": {
            "published": published.gemm_cycles / published.cycles,
            "tuned": metrics["gemm_utilisation"],
            "bound": metrics["gemm_bound"],
        },
        "port_utilisation": metrics["port_utilisation"],
        "instructions": metrics["instructions"],
        "sketch": result.best.provenance.sketch,
        "values": tuned_values(result),
        "errors": result.errors,
        "seconds": seconds,
        "trials_per_second": trials / seconds,
    }


def tuned_values(result: TuneResult) -> dict[str, int]:
    """Returns the best candidate's decisions."""
    sketch, choices = _candidate(result)
    return sketch.values(choices)


def without_threads(result: TuneResult) -> float | None:
    """Computes cycles of the best schedule where every virtual thread is one; None where it has none."""
    sketch, choices = _candidate(result)
    values = sketch.values(choices)
    if not any(value > 1 for name, value in values.items() if name.endswith(".threads")):
        return None
    single = {name: 1 if name.endswith(".threads") else value for name, value in values.items()}
    target = registry.get(TARGET)
    module = target.build(make_program(result.workload, sketch.algorithm, sketch.steps.substitute(single)))
    return VtaKernel(module).metrics()["cycles"]


def _candidate(result: TuneResult) -> tuple[Sketch, np.ndarray[Any, np.dtype[np.int32]]]:
    """Finds the sketch of the best schedule, and its choices."""
    assert result.best is not None
    space = generate(result.workload, result.hardware)
    (sketch,) = (sketch for sketch in space.sketches if sketch.name == result.best.provenance.sketch)
    choices = np.array(result.best.provenance.choices, np.int32)
    assert sketch.trace(choices).key == result.best.trace_key
    return sketch, choices


def points(document: Mapping[str, Any]) -> list[RooflinePoint]:
    """Computes the roofline points of a result's tuned layers; streams are built again to count the bytes they move."""
    target, listed = registry.get(TARGET), []
    for row in document["rows"].values():
        workload = make_workload(ROWS[row["title"]])
        sketches = generate(workload, target.hardware).sketches
        (sketch,) = (sketch for sketch in sketches if sketch.name == row["sketch"])
        module = target.build(make_program(workload, sketch.algorithm, sketch.steps.substitute(row["values"])))
        cycles, moved = row["cycles"], VtaKernel(module).metrics()["dram_bytes"]
        single = None if cycles["one thread"] is None else PYNQ.seconds(cycles["one thread"])
        listed.append(RooflinePoint(row["title"], workload.flops, moved, PYNQ.seconds(cycles["tuned"]), single))
    return listed


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parses the options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.vta", description=__doc__)
    add_options(parser)
    parser.add_argument("--trials", type=int, default=128, help="candidates a layer")
    parser.add_argument("--seed", type=int, default=0)
    add_picture(parser, "vta_roofline.png")
    return parser.parse_args(arguments)


def sentence(row: Mapping[str, Any]) -> str:
    """Formats a row briefly."""
    cycles, shares = row["cycles"], row["gemm_utilisation"]
    return (
        f"{cycles['tuned']:,} cycles, published {cycles['published']:,}, "
        f"GEMM {shares['tuned']:.1%} of at most {shares['bound']:.1%}, {row['trials_per_second']:.1f} trials/s, "
        f"{row['sketch']} {row['values']}"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the comparison."""
    options = parse(arguments)
    settings = {"trials": options.trials, "seed": options.seed, "hardware": PYNQ.to_json()}

    def measure(name: str) -> dict[str, Any]:
        return compare(name, options.trials, options.seed)

    code = collect(options, NAME, settings, list(ROWS), measure, sentence, tables.vta)
    saved = results.load(NAME, options.results)
    picture = find_picture(options)
    if code == 0 and saved is not None and picture is not None:
        draw(points(saved), registry.get(TARGET).hardware, picture)
    return code


if __name__ == "__main__":
    sys.exit(main())

"""Models through `torch.compile(model, backend="autotune")`: graphs, pieces, what is left to PyTorch, and the outputs.

`python -m benchmarks.pytorch [--rows NAME,...] [--kernels compiled] [--time] [--turns 20] [--threads N]` takes models
of `models.yaml` with random weights, of which nothing is downloaded, writes `benchmarks/results/pytorch.json` and
prints the table. With `--kernels numpy` the graphs are computed node by node by NumPy, which says whether models are
read right and takes a fraction of the time; `--explain` says what becomes of each without computing it. `--time` runs
eager PyTorch and Inductor in turns with the executables.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.fx import GraphModule

from autotune.graph.evaluate import evaluate
from autotune.graph.ir import Array, Graph
from autotune.pytorch.backend import Program, compiled_by
from autotune.pytorch.explain import Explanation, explain
from autotune.pytorch.kernels import Compiled, compile_graph
from autotune.pytorch.options import Options
from benchmarks import results
from benchmarks.markdown import table
from benchmarks.survey.exports import made
from benchmarks.survey.models import Model, load_models, select

NAME = "pytorch"
LISTED = Path(__file__).with_name("models.yaml")


def by_numpy(graph: Graph) -> Compiled:
    """What computes a graph node by node."""

    def run(arrays: Sequence[Array]) -> tuple[Array, ...]:
        values = evaluate(graph, dict(zip(graph.inputs, arrays, strict=True)))
        return tuple(np.array(values[name]) for name in graph.outputs)

    return run


def compiled(module: Any, make: Callable[[Graph], Compiled], programs: list[Program]) -> Any:
    """The module by our backend; its graphs are noted in `programs`."""

    def noted(graph: GraphModule, fixed: Sequence[int]) -> Program:
        programs.append(Program(graph, fixed, make))
        return programs[-1]

    return torch.compile(module, backend=lambda g, inputs, **_: compiled_by(g, inputs, noted), dynamic=False)


def measure(model: Model, options: argparse.Namespace) -> dict[str, Any]:
    """The row of one model."""
    how = Options(threads=options.threads)
    make = by_numpy if options.kernels == "numpy" else lambda graph: compile_graph(graph, how)
    torch._dynamo.reset()
    module, given = made(model, seed=0)
    inputs, programs = tuple(given.values()), list[Program]()
    row: dict[str, Any] = {"title": model.name, "library": model.library, "kernels": options.kernels}
    with torch.no_grad():
        wanted = module(*inputs)
        start = time.perf_counter()
        run = compiled(module, make, programs)
        found = run(*inputs)
        row["compile_seconds"] = time.perf_counter() - start
        if options.time:
            row["seconds"] = timed(
                {"eager": module, "autotune": run, "inductor": torch.compile(module)}, inputs, options
            )
    splits = [program.found for program in programs if program.found is not None]
    row |= {
        "graphs": len(splits),
        "pieces": sum(len(split.pieces) for split in splits),
        "operations": sum(split.compiled for split in splits),
        "left": {name: count for split in splits for name, (count, _) in split.refused.items()},
        "error": float((found - wanted).abs().max() / wanted.abs().max()),
    }
    return row


def explained(model: Model) -> Explanation:
    """What becomes of one model."""
    module, given = made(model, seed=0)
    return explain(module, *given.values())


def timed(runs: dict[str, Any], inputs: Sequence[Any], options: argparse.Namespace) -> dict[str, float]:
    """Median seconds of each, in turns."""
    took: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(options.turns + 2):
        for name, run in runs.items():
            start = time.perf_counter()
            run(*inputs)
            if turn >= 2:
                took[name].append(time.perf_counter() - start)
    return {name: float(np.median(seconds)) for name, seconds in took.items()}


def shown(rows: Sequence[dict[str, Any]]) -> str:
    """The rows as Markdown."""
    timings = list(dict.fromkeys(name for row in rows for name in row.get("seconds", {})))
    header = [
        "model",
        "graphs",
        "pieces",
        "operations",
        "left to PyTorch",
        "error",
        *(f"{name} ms" for name in timings),
    ]
    lines = []
    for row in rows:
        if "failed" in row:
            lines.append([row["title"], *["–"] * 4, row["failed"], *["–"] * len(timings)])
            continue
        left = ", ".join(f"{count} {name}" for name, count in row["left"].items()) or "nothing"
        times = [f"{row['seconds'][name] * 1e3:.2f}" if "seconds" in row else "–" for name in timings]
        lines.append(
            [row["title"], row["graphs"], row["pieces"], row["operations"], left, f"{row['error']:.0e}", *times]
        )
    return table(header, lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures the rows and prints the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pytorch", description=__doc__)
    parser.add_argument("--rows", help="comma-separated models or families of the list; all by default")
    parser.add_argument("--explain", action="store_true", help="say what becomes of each, and no more")
    parser.add_argument("--kernels", choices=("compiled", "numpy"), default="compiled")
    parser.add_argument("--time", action="store_true")
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--threads", type=int)
    options = parser.parse_args(arguments)
    rows = []
    for model in select(load_models(LISTED), options.rows):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                if options.explain:
                    sys.stdout.write(f"{model.name}: {explained(model)}\n")
                    sys.stdout.flush()
                    continue
                rows.append(measure(model, options))
            except Exception as error:  # the others are still of interest; the table says what this one said
                said = (str(error).strip() or "no message").splitlines()[0]
                if options.explain:  # results are of what was computed
                    sys.stdout.write(f"{model.name}: {type(error).__name__}: {said}\n")
                    continue
                rows.append({"title": model.name, "failed": f"{type(error).__name__}: {said}"})
        print(shown(rows[-1:]).splitlines()[-1], file=sys.stderr, flush=True)
        results.save(NAME, {"rows": {rows[-1]["title"]: rows[-1]}})
    if rows:
        print(shown(rows))


if __name__ == "__main__":
    main()

"""Comparison of a network for all lengths with the same compiled for each, and with ONNX Runtime and OpenVINO.

`python -m benchmarks.lengths [--layers 12] [--rows 1,2,...] [--repeat 20]` compiles BERT (random weights) once for
lengths of 1 to 512 and once for each timed length, without trials. All take turns in processes of their own. It prints
the table, and writes `benchmarks/results/lengths.json` once all rows are there.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import autotune
from autotune.compiler.checking.comparison import relative_error
from autotune.compiler.checking.process import NetworkProcess, RuntimeFailure
from autotune.graph.zoo import bert_base
from benchmarks.collected import add_options, add_timing_options, collect
from benchmarks.figures import figures, milliseconds
from benchmarks.interleave import geometric_mean, measure_turns
from benchmarks.markdown import table

NAME = "lengths"
LONGEST = 512
LENGTHS = (1, 2, 3, 5, 8, 12, 16, 24, 32, 48, 64, 100, 128, 197, 256, 384, 512)
"""Lengths that are timed."""
WORDS = 30522
"""Size of the vocabulary."""
PEERS = ("onnxruntime", "openvino")
MOST_ERROR = 1e-3
"""Greatest error of an output in float32, as a share of its largest element."""


class Turns:
    """A process that takes turns."""

    def __init__(self, process: NetworkProcess) -> None:
        self._process = process

    def warm(self, seconds: float) -> None:
        """Runs for so long."""
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            self._process.time(1)

    def time(self, samples: int) -> list[float]:
        """Times each of `samples` runs in seconds."""
        return self._process.time(samples)


class Bert:
    """The network for all lengths, and the peers, each in a process of its own.

    Args:
        options: options of the command line.
        stack: stack that ends the processes.
    """

    def __init__(self, options: argparse.Namespace, stack: ExitStack) -> None:
        self._options = options
        self._folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="autotune-open-")))
        self._model = self._folder / "bert.onnx"
        built = bert_base.build(layers=options.layers, sequence=LONGEST, vocabulary=WORDS, any_sequence=True)
        onnx.save(built, self._model)
        seconds, folder = self._compile("all", {"shapes": {"tokens": (1, "n")}, "sizes": {"n": (1, LONGEST)}})
        self._running = {"all": stack.enter_context(NetworkProcess("autotune", options.threads, folder=folder))}
        peers, missing = _peers(stack, options.threads, self._model)
        self._running |= peers
        self._facts = {"layers": options.layers, "seconds_to_compile": seconds, "missing": missing}

    def row(self, n: int) -> dict[str, Any]:
        """Measures the row of a length."""
        alone, folder = self._compile(str(n), {"shapes": {"tokens": (1, n)}})
        with NetworkProcess("autotune", self._options.threads, folder=folder) as each:
            found = compare_runtimes(n, {**self._running, "each": each}, self._options)
        return {**found, **self._facts, "seconds_to_compile_alone": alone}

    def _compile(self, name: str, arguments: Mapping[str, Any]) -> tuple[float, str]:
        start = time.perf_counter()
        output = self._folder / name
        autotune.compile(self._model, output=output, threads=self._options.threads, cache="none", **arguments)
        return time.perf_counter() - start, str(output / "network")


def compare_runtimes(n: int, running: Mapping[str, NetworkProcess], options: argparse.Namespace) -> dict[str, Any]:
    """Times all runtimes at a length in turns, and computes how far outputs differ."""
    tokens = np.random.default_rng([options.seed, n]).integers(0, WORDS, (1, n))
    outputs = {who: next(iter(process.infer({"tokens": tokens}).values())) for who, process in running.items()}
    errors = {who: float(relative_error(found, outputs["all"])) for who, found in outputs.items()}
    turns = {who: Turns(process) for who, process in running.items()}
    return {"n": n, "errors": errors, **figures(measure_turns(turns, options.repeat, pause=0.06, warm_seconds=0.04))}


def _peers(stack: ExitStack, threads: int, model: Path) -> tuple[dict[str, NetworkProcess], dict[str, str]]:
    """Opens the peers that take the model; returns them, and why others do not."""
    processes: dict[str, NetworkProcess] = {}
    missing: dict[str, str] = {}
    for peer in PEERS:
        try:
            processes[peer] = stack.enter_context(NetworkProcess(peer, threads, model=str(model)))
        except RuntimeFailure as error:
            missing[peer] = str(error)[:200]
    return processes, missing


def lengths(document: Mapping[str, Any]) -> str:
    """Formats the table: a line for each length, and geometric means."""
    rows = sorted(document["rows"].values(), key=lambda row: int(row["n"]))
    lines: list[list[object]] = []
    for row in rows:
        took = row["seconds"]
        shown = [
            f"{took[who] * 1e3:.2f}{'' if _is_right(row, who) else ' (other output)'}" if who in took else ""
            for who in ("all", "each", *PEERS)
        ]
        lines.append([row["n"], *shown, f"{took['all'] / took['each']:.3f}x", f"{_to_best(row):.2f}x"])
    over = geometric_mean([row["seconds"]["all"] / row["seconds"]["each"] for row in rows])
    best = geometric_mean([_to_best(row) for row in rows])
    lines.append([f"geometric mean over {len(rows)}", "", "", "", "", f"{over:.3f}x", f"{best:.2f}x"])
    compiling = max(row["seconds_to_compile"] for row in rows)
    alone = geometric_mean([row["seconds_to_compile_alone"] for row in rows])
    right = [error for row in rows for who, error in row["errors"].items() if _is_right(row, who)]
    worst = max(right, default=0.0)
    said = f"Compiling without a cache: {compiling:.1f} s for all lengths, {alone:.1f} s for one. "
    said += f"Outputs differ by {worst:.0e} of the largest element at most."
    head = ["length", "for all ms", "for this one ms", "ONNX Runtime ms", "OpenVINO ms", "all over this one"]
    body = table([*head, "ratio to best peer"], lines)
    return f"{said}\n\n{body}"


def _to_best(row: Mapping[str, Any]) -> float:
    """Computes the ratio of the fastest peer's seconds to ours for all lengths, right or not; nan without peers."""
    found = [row["seconds"][peer] for peer in PEERS if peer in row["seconds"]]
    return min(found) / row["seconds"]["all"] if found else float("nan")


def _is_right(row: Mapping[str, Any], who: str) -> bool:
    """Tells whether a runtime's output is that of most; if most differ from ours, all count, and errors are shown."""
    near = [error for error in row["errors"].values() if error <= MOST_ERROR]
    return row["errors"][who] <= MOST_ERROR or len(near) <= len(row["errors"]) // 2


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parses the options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lengths", description=__doc__.partition("\n")[0])
    add_options(parser)
    parser.add_argument("--layers", type=int, default=12, help="of the encoder")
    add_timing_options(parser)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the comparison."""
    options = parse(arguments)
    settings = {name: getattr(options, name) for name in ("threads", "layers", "repeat", "seed")}
    with ExitStack() as stack:
        running: list[Bert] = []

        def measure(name: str) -> dict[str, Any]:
            if not running:
                running.append(Bert(options, stack))
            return running[0].row(int(name))

        return collect(options, NAME, settings, [str(n) for n in LENGTHS], measure, milliseconds, lengths)


if __name__ == "__main__":
    sys.exit(main())

"""A network for all lengths beside the same compiled for each, ONNX Runtime and OpenVINO, which take all lengths, too.

`python -m benchmarks.lengths [--layers 12] [--lengths 1,2,...] [--repeat 20]` compiles BERT (random weights) once
for lengths of 1 to 512 and once for each that is timed, without trials, has all take turns in processes of their own,
writes `benchmarks/results/lengths.json` length by length, and prints the table. It goes on where it was stopped.
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
from autotune.graph.zoo import bert_base
from autotune.network.comparison import relative_error
from autotune.network.process import NetworkProcess, RuntimeFailure
from benchmarks import results
from benchmarks.interleave import FEWEST_ROUNDS, geometric_mean, interleave
from benchmarks.markdown import table
from benchmarks.provenance import commit_of
from measure.host import describe_host

NAME = "lengths"
LONGEST = 512
LENGTHS = (1, 2, 3, 5, 8, 12, 16, 24, 32, 48, 64, 100, 128, 197, 256, 384, 512)
"""That are timed."""
WORDS = 30522
"""Of the vocabulary."""
PEERS = ("onnxruntime", "openvino")
MOST_ERROR = 1e-3
"""Of an output, as a share of its largest element, by which it is still the same in float32."""


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
        """Seconds of each of so many runs."""
        return self._process.time(samples)


def measure(options: argparse.Namespace, folder: Path) -> dict[str, Any] | None:
    """Measures lengths that have no row of this commit yet, each saved at once; all rows then."""
    common = {
        "cpu": describe_host()["cpu"],
        "threads": options.threads,
        "layers": options.layers,
        "repeat": options.repeat,
        "commit": commit_of(),
    }
    rows = (results.load(NAME, folder) or {"rows": {}})["rows"]
    keys = {n: f"{n}, {options.layers} layers, {common['cpu']}, {options.threads} threads" for n in options.lengths}
    todo = [n for n, key in keys.items() if not results.is_done(rows.get(key), common)]
    if not todo:
        return results.load(NAME, folder)
    with tempfile.TemporaryDirectory(prefix="autotune-open-") as place, ExitStack() as stack:
        model = Path(place) / "bert.onnx"
        onnx.save(bert_base.build(layers=options.layers, sequence=LONGEST, vocabulary=WORDS, any_sequence=True), model)
        given: dict[str, Any] = {"threads": options.threads, "cache": "none"}
        start = time.perf_counter()
        autotune.compile(
            model, shapes={"tokens": (1, "n")}, sizes={"n": (1, LONGEST)}, output=Path(place) / "all", **given
        )
        common["seconds_to_compile"] = time.perf_counter() - start
        every = stack.enter_context(NetworkProcess("autotune", options.threads, folder=f"{place}/all/network"))
        peers, missing = _peers(stack, options.threads, model)
        for n in todo:
            start = time.perf_counter()
            autotune.compile(model, shapes={"tokens": (1, n)}, output=Path(place) / str(n), **given)
            alone = time.perf_counter() - start
            with NetworkProcess("autotune", options.threads, folder=f"{place}/{n}/network") as each:
                row = compared(n, {"all": every, "each": each, **peers}, options, Path(place))
            row |= {**common, "missing": missing, "seconds_to_compile_alone": alone}
            results.save(NAME, {"rows": {keys[n]: row}}, folder)
            shown = ", ".join(f"{who} {took * 1e3:.2f} ms" for who, took in row["seconds"].items())
            sys.stderr.write(f"{n}: {shown}\n")
    return results.load(NAME, folder)


def compared(
    n: int, running: Mapping[str, NetworkProcess], options: argparse.Namespace, folder: Path
) -> dict[str, Any]:
    """Seconds of all at a length, in turns, and how far outputs differ."""
    tokens = np.random.default_rng([options.seed, n]).integers(0, WORDS, (1, n))
    outputs = {who: next(iter(process.infer({"tokens": tokens}, folder).values())) for who, process in running.items()}
    errors = {who: float(relative_error(found, outputs["all"])) for who, found in outputs.items()}
    turns = {who: Turns(process) for who, process in running.items()}
    return {"n": n, "errors": errors, "seconds": interleave(turns, options.repeat, pause=0.06, warm_seconds=0.04)}


def _peers(stack: ExitStack, threads: int, model: Path) -> tuple[dict[str, NetworkProcess], dict[str, str]]:
    """Those that take the model, and why others do not."""
    found: dict[str, NetworkProcess] = {}
    missing: dict[str, str] = {}
    for peer in PEERS:
        try:
            found[peer] = stack.enter_context(NetworkProcess(peer, threads, model=str(model)))
        except RuntimeFailure as error:
            missing[peer] = str(error)[:200]
    return found, missing


def lengths(document: Mapping[str, Any]) -> str:
    """The table: a line for each length, and geometric means."""
    rows = sorted(document["rows"].values(), key=lambda row: (row["cpu"], row["n"]))
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
    facts = dict.fromkeys(f"{row['cpu']}, {row['threads']} threads, {row['layers']} layers" for row in rows)
    commits = ", ".join(dict.fromkeys(row["commit"] for row in rows if row["commit"]))
    compiling = max(row["seconds_to_compile"] for row in rows)
    alone = geometric_mean([row["seconds_to_compile_alone"] for row in rows])
    right = [error for row in rows for who, error in row["errors"].items() if _is_right(row, who)]
    worst = max(right, default=0.0)
    said = f"Compiling without a cache: {compiling:.1f} s for all lengths, {alone:.1f} s for one. "
    said += f"Outputs differ by {worst:.0e} of the largest element at most."
    head = ["length", "for all ms", "for this one ms", "ONNX Runtime ms", "OpenVINO ms", "all over this one"]
    body = table([*head, "ratio to best peer"], lines)
    return f"**{'; '.join(facts)}**{f' (commit {commits})' if commits else ''}. {said}\n\n{body}"


def _to_best(row: Mapping[str, Any]) -> float:
    """Of the fastest peer's seconds to ours for all lengths, be its output right or not; nan without peers."""
    found = [row["seconds"][peer] for peer in PEERS if peer in row["seconds"]]
    return min(found) / row["seconds"]["all"] if found else float("nan")


def _is_right(row: Mapping[str, Any], who: str) -> bool:
    """Whether a runtime computes what most do; where most do not what ours does, all count, and errors are shown."""
    near = [error for error in row["errors"].values() if error <= MOST_ERROR]
    return row["errors"][who] <= MOST_ERROR or len(near) <= len(row["errors"]) // 2


def _numbers(text: str) -> tuple[int, ...]:
    try:
        found = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be numbers with commas between them, but got {text!r}") from None
    if wrong := [n for n in found if not 1 <= n <= LONGEST]:
        raise argparse.ArgumentTypeError(f"must be 1 to {LONGEST}, but got {wrong[0]}")
    return found


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lengths", description=__doc__.partition("\n")[0])
    parser.add_argument("--layers", type=int, default=12, help="of the encoder")
    parser.add_argument("--lengths", type=_numbers, default=LENGTHS, help="comma-separated lengths to compare at")
    parser.add_argument("--repeat", type=int, default=FEWEST_ROUNDS, help="rounds of turns")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--results", type=Path, default=results.FOLDER, help="folder of lengths.json")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the comparison."""
    options = parse(arguments)
    saved = measure(options, options.results)
    sys.stdout.write((lengths(saved) if saved else "no result") + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Comparison of kernels tuned for a distribution of sizes with kernels tuned for each size, oneDNN and ONNX Runtime.

`python -m benchmarks.sizes [--layers NAME,...] [--beside 1,4,...] [--trials 48] [--repeat 20]` tunes a layer once for
all of its sizes. At some sizes it tunes once more, for that size alone, with as many trials as one of the searches had.
It prints the table, and writes `benchmarks/results/sizes.json` once all rows are there. Trials are kept in `--records`.
A layer takes about five minutes.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import autotune
from autotune.config import Measure
from autotune.tuner.sizes import SizesResult
from benchmarks.collected import add_options, collect
from benchmarks.figures import figures
from benchmarks.interleave import FEWEST_ROUNDS, SelfTimer, geometric_mean, measure_turns
from benchmarks.markdown import table
from benchmarks.peers.base import PeerProcess, Refusal
from benchmarks.rows import pick
from benchmarks.tuning import KNOWLEDGE, NOTHING
from search_space import te, workloads
from search_space.workloads import Workload
from targets.base import Bound

NAME = "sizes"
SIZES = (1, 2, 3, 4, 6, 8, 10, 12, 16, 24, 32, 48, 64, 96, 128, 197, 256, 384, 512)
"""Sizes that a layer is tuned for, each equally often."""
BESIDE = (1, 3, 6, 10, 16, 48, 197, 512)
"""Sizes of the comparison."""
PEERS = {"torch": "benchmarks.peers.torch_peer", "onnxruntime": "benchmarks.peers.ort_peer"}


@dataclass(frozen=True)
class Layer:
    """A definition by its size, the workload of peers at a size, if they have it, and the sizes it is tuned for."""

    define: Callable[[Any], list[te.Tensor]]
    make_workload: Callable[[int], Workload] | None
    sizes: tuple[int, ...] = SIZES


def dense(inputs: int, outputs: int, relu: bool = False) -> Layer:
    """Defines a product of n rows and weights."""

    def define(n: Any) -> list[te.Tensor]:
        x = te.placeholder((n, inputs), name="X")
        w = te.placeholder((inputs, outputs), name="W", constant=True)
        k = te.reduce_axis((0, inputs), "k")
        y = te.compute((n, outputs), lambda i, j: te.sum(x[i, k] * w[k, j], axis=k), name="Y")
        if not relu:
            return [x, w, y]
        return [x, w, te.compute((n, outputs), lambda i, j: te.maximum(y[i, j], 0.0), name="Z")]

    activation = "relu" if relu else None
    return Layer(define, lambda n: workloads.dense(n, inputs, outputs, activation=activation))


def convolution(height: int, inputs: int, outputs: int) -> Layer:
    """Defines a 3x3 convolution of a batch of n square images."""

    def define(n: Any) -> list[te.Tensor]:
        x = te.placeholder((n, height, height, inputs), name="X")
        w = te.placeholder((3, 3, inputs, outputs), name="W", constant=True)

        def pad_element(b: Any, i: Any, j: Any, c: Any) -> Any:
            inside = te.all(i >= 1, i < height + 1, j >= 1, j < height + 1)
            return te.if_then_else(inside, x[b, i - 1, j - 1, c], 0.0)

        pad = te.compute((n, height + 2, height + 2, inputs), pad_element, name="pad")
        r, s, c = te.reduce_axis((0, 3), "r"), te.reduce_axis((0, 3), "s"), te.reduce_axis((0, inputs), "c")
        y = te.compute(
            (n, height, height, outputs),
            lambda b, i, j, k: te.sum(pad[b, i + r, j + s, c] * w[r, s, c, k], axis=[r, s, c]),
            name="Y",
        )
        return [x, w, y]

    def make_workload(n: int) -> Workload:
        return workloads.conv2d(
            batch=n, height=height, width=height, in_channels=inputs, out_channels=outputs, kernel=3, padding=1
        )

    return Layer(define, make_workload, (1, 2, 3, 4, 6, 8, 12, 16, 32))


def softmax(columns: int) -> Layer:
    """Defines the softmax of n rows."""

    def define(n: Any) -> list[te.Tensor]:
        x = te.placeholder((n, columns), name="X")
        j, k = te.reduce_axis((0, columns), "j"), te.reduce_axis((0, columns), "k")
        top = te.compute((n,), lambda i: te.max(x[i, j], axis=j), name="top")
        e = te.compute((n, columns), lambda i, c: te.exp(x[i, c] - top[i]), name="e")
        total = te.compute((n,), lambda i: te.sum(e[i, k], axis=k), name="total")
        return [x, te.compute((n, columns), lambda i, c: e[i, c] / total[i], name="Y")]

    return Layer(define, lambda n: workloads.softmax(n, columns))


def attention(width: int) -> Layer:
    """Defines attention of n queries, keys and values."""

    def define(n: Any) -> list[te.Tensor]:
        q, k, v = (te.placeholder((n, width), name=name) for name in "QKV")
        d, j, t, r = (
            te.reduce_axis((0, extent), name) for extent, name in ((width, "d"), (n, "j"), (n, "t"), (n, "r"))
        )
        score = te.compute((n, n), lambda i, c: te.sum(q[i, d] * k[c, d], axis=d), name="score")
        top = te.compute((n,), lambda i: te.max(score[i, j], axis=j), name="top")
        e = te.compute((n, n), lambda i, c: te.exp(score[i, c] - top[i]), name="e")
        total = te.compute((n,), lambda i: te.sum(e[i, t], axis=t), name="total")
        share = te.compute((n, n), lambda i, c: e[i, c] / total[i], name="share")
        return [q, k, v, te.compute((n, width), lambda i, c: te.sum(share[i, r] * v[r, c], axis=r), name="O")]

    return Layer(define, None)


ROWS: Mapping[str, Layer] = {
    "dense 768→768": dense(768, 768),
    "dense 384→1536 relu": dense(384, 1536, relu=True),
    "conv 3x3 14² 64→64": convolution(14, 64, 64),
    "softmax 512": softmax(512),
    "attention 64": attention(64),
}
FIRST = "dense 768→768"


class Own:
    """A kernel of this process that takes turns.

    Args:
        bound: the kernel with its arrays.
        threads: threads that it runs on.
    """

    def __init__(self, bound: Bound, threads: int) -> None:
        self._bound, self._threads = bound, threads

    def warm(self, seconds: float) -> None:
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            self._bound.time(5, self._threads)

    def time(self, samples: int) -> list[float]:
        self._bound.time(3, self._threads)
        found: list[float] = self._bound.time(samples, self._threads).tolist()
        return found


def tuned_for_sizes(name: str, options: argparse.Namespace) -> SizesResult:
    """Tunes a layer once for all of its sizes."""
    layer = ROWS[name]
    return autotune.tune_for_sizes(
        layer.define,
        layer.sizes,
        trials=options.trials,
        seed=options.seed,
        schedules=options.schedules,
        carried=options.carried,
        records=_records(options, "together"),
        measure=Measure(threads=options.threads),
    )


def compare_kernels(name: str, n: int, result: SizesResult, options: argparse.Namespace) -> dict[str, Any]:
    """Times the kernel for all sizes, the one tuned for size `n` alone, and peers, at this size in turns."""
    layer, threads = ROWS[name], options.threads
    alone = autotune.tune(
        layer.define(n),
        trials=options.trials,
        seed=options.seed,
        records=_records(options, "alone"),
        measure=Measure(threads=threads),
        **KNOWLEDGE[NOTHING],
    )
    inputs = alone.workload.make_inputs(options.seed)
    running: dict[str, SelfTimer] = {
        "sizes": Own(result.kernel.bind(inputs), threads),
        "alone": Own(autotune_kernel(alone).bind(inputs), threads),
    }
    missing: dict[str, str] = {}
    with ExitStack() as stack:
        for peer, module in PEERS.items() if layer.make_workload is not None else ():
            process = stack.enter_context(PeerProcess(module))
            try:
                process.prepare(layer.make_workload(n), threads)
                running[peer] = process
            except Refusal as error:
                missing[peer] = str(error)[:200]
        took = measure_turns(running, options.repeat, pause=options.pause, warm_seconds=0.04)
    part = result.find_range(n)
    return {
        "name": name,
        "n": n,
        **figures(took),
        "missing": missing,
        "range": [part.low, part.high],
        "kept": len(result.schedules),
        "trials_together": result.trials,
        "trials_alone": len(alone.records),
    }


def sizes(document: Mapping[str, Any]) -> str:
    """Formats a line for each layer and size, and the geometric means of each layer."""
    rows = sorted(document["rows"].values(), key=lambda row: (row["name"], row["n"]))
    lines: list[list[object]] = []
    for name in dict.fromkeys(row["name"] for row in rows):
        mine = [row for row in rows if row["name"] == name]
        for row in mine:
            took = row["seconds"]
            others = [f"{took[peer] * 1e6:.1f}" if peer in took else "" for peer in ("alone", *PEERS)]
            over = f"{took['sizes'] / took['alone']:.3f}x"
            lines.append([name, row["n"], f"{took['sizes'] * 1e6:.1f}", *others, over, _to_best(row)])
        mean = geometric_mean([row["seconds"]["sizes"] / row["seconds"]["alone"] for row in mine])
        peers = [min(found) / row["seconds"]["sizes"] for row in mine if (found := _of_peers(row))]
        ratio = f"{geometric_mean(peers):.2f}x" if peers else ""
        lines.append([f"geometric mean over {len(mine)}", "", "", "", "", "", f"{mean:.3f}x", ratio])
    head = ["layer", "n", "for all sizes µs", "for this one µs", "oneDNN µs", "ONNX Runtime µs", "all over this one"]
    return table([*head, "ratio to best peer"], lines)


def autotune_kernel(result: autotune.TuneResult) -> Any:
    """Loads the kernel of a search."""
    from targets import registry

    return registry.get(result.target).load(result.module)


def _of_peers(row: Mapping[str, Any]) -> list[float]:
    return [row["seconds"][peer] for peer in PEERS if peer in row["seconds"]]


def _to_best(row: Mapping[str, Any]) -> str:
    found = _of_peers(row)
    return f"{min(found) / row['seconds']['sizes']:.2f}x" if found else ""


def _records(options: argparse.Namespace, kind: str) -> Path:
    """Returns the file of records of a kind, so that neither kind learns from the other."""
    options.records.mkdir(parents=True, exist_ok=True)
    return Path(options.records) / f"{kind}-{options.seed}-{options.trials}.jsonl"


def _numbers(text: str) -> tuple[int, ...]:
    try:
        sizes = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be numbers with commas between them, but got {text!r}") from None
    if unknown := [n for n in sizes if n not in SIZES]:
        raise argparse.ArgumentTypeError(f"must be among {', '.join(map(str, SIZES))}, but got {unknown[0]}")
    return sizes


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parses the options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sizes", description=__doc__.partition("\n")[0])
    add_options(parser)
    parser.add_argument("--layers", default=FIRST, help=f"comma-separated, of {', '.join(ROWS)}")
    parser.add_argument("--beside", type=_numbers, default=BESIDE, help="comma-separated sizes to compare at")
    parser.add_argument("--trials", type=int, default=48, help="of each search")
    parser.add_argument("--carried", type=int, default=16, help="trials at the other sizes")
    parser.add_argument("--schedules", type=int, default=8, help="that are kept at most")
    parser.add_argument("--repeat", type=int, default=FEWEST_ROUNDS, help="rounds of turns")
    parser.add_argument("--pause", type=float, default=0.06, help="seconds between turns")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--records", type=Path, default=Path("runs/benchmark_sizes"), help="folder of trials")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the comparison."""
    options = parse(arguments)
    try:
        layers = pick(options.layers, ROWS)
    except ValueError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    every = {f"{name} n={n}": (name, n) for name in layers for n in options.beside if n in ROWS[name].sizes}
    settings = {
        name: getattr(options, name) for name in ("threads", "trials", "carried", "schedules", "repeat", "seed")
    }
    found: dict[str, SizesResult] = {}

    def measure(row: str) -> dict[str, Any]:
        name, n = every[row]
        if name not in found:
            found[name] = tuned_for_sizes(name, options)
            sys.stderr.write(f"{name}\n{found[name]}\n")
        return compare_kernels(name, n, found[name], options)

    def summarise(row: Mapping[str, Any]) -> str:
        return ", ".join(f"{who} {took * 1e6:.1f} µs" for who, took in row["seconds"].items())

    return collect(options, NAME, settings, list(every), measure, summarise, sizes)


if __name__ == "__main__":
    sys.exit(main())

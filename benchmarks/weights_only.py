"""Comparison of products with weights of 4 and 8 bits with ONNX Runtime, OpenVINO and a plain read of the bytes.

`python -m benchmarks.weights_only [--rows NAME,...] [--megabytes 512] [--threads 2] [--repeat 20]` prints the table and
writes `benchmarks/results/weights_only.json` once all rows are there. Runtimes take turns, each in a process of its
own. Weights are many times larger than caches, also where a machine has a last cache for each core. Kernels of ours are
chosen without a trial. Every runtime has two columns: data in floats, and rounded to bytes, which costs accuracy. Bytes
are `accuracy_level` 4 of the model, or OpenVINO's default.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np

from benchmarks import tables
from benchmarks.collected import add_options, collect
from benchmarks.figures import figures, milliseconds
from benchmarks.interleave import FEWEST_ROUNDS, measure_turns
from benchmarks.peers.base import PeerProcess, Refusal
from benchmarks.peers.nbits_peer import IN_BYTES

NAME = "weights_only"
_SIZES = ("rows", "depth", "columns", "bits", "group")
ROWS: dict[str, dict[str, int]] = {
    "x".join(map(str, sizes[:3])) + f"_{sizes[3]}_{sizes[4]}": dict(zip(_SIZES, sizes, strict=True))
    for sizes in (
        (1, 4096, 4096, 4, 32),
        (1, 4096, 4096, 4, 128),
        (1, 4096, 4096, 8, 32),
        (1, 768, 3072, 4, 32),
        (1, 2048, 5632, 4, 32),
        (8, 2048, 5632, 4, 32),
        (128, 2048, 5632, 4, 32),
    )
}
"""Rows of the data, weights (depth, columns), bits, and weights that share a scale."""
PEERS: dict[str, tuple[str, int]] = {
    "autotune": ("autotune", 0),
    "onnxruntime": ("onnxruntime", 0),
    "openvino": ("openvino", 0),
    "autotune_bytes": ("autotune", IN_BYTES),
    "onnxruntime_bytes": ("onnxruntime", IN_BYTES),
    "openvino_bytes": ("openvino", IN_BYTES),
}
"""Columns -> the runtime, and the `accuracy_level` of its model."""
CACHED_ROWS, CACHED_MEGABYTES = 16, 64
"""Rows from which on weights need not come from memory, and of what size they are then."""


def compare(row: dict[str, int], options: argparse.Namespace) -> dict[str, Any]:
    """Times one product of each runtime and a read of its bytes, and computes decibels against our outputs."""
    depth, columns = row["depth"], row["columns"]
    nbytes = depth * columns * row["bits"] // 8 + -(-depth // row["group"]) * columns * 4
    megabytes = options.megabytes if row["rows"] < CACHED_ROWS else min(options.megabytes, CACHED_MEGABYTES)
    count = max(2, 2 * round(megabytes * 1e6 / nbytes / 2))
    with ExitStack() as stack:
        running, said, outputs = {}, {}, {}
        for name, (runtime, level) in {**PEERS, "read": ("read", 0)}.items():
            process = stack.enter_context(PeerProcess("benchmarks.peers.nbits_peer"))
            request = {"op": "prepare", "runtime": runtime, "threads": options.threads, "nbytes": nbytes * count}
            try:
                reply = process.ask({**request, "chain": {**row, "count": count, "level": level}})
            except Refusal as error:
                if runtime in ("autotune", "read"):
                    raise
                said[name] = str(error)
                continue
            running[name] = process
            outputs[name] = np.array(reply.get("output", []))
        took = {
            name: [seconds / count for seconds in turns]
            for name, turns in measure_turns(running, options.repeat).items()
        }
    ours = outputs["autotune"]
    noise = {n: float(((o - ours) ** 2).sum()) for n, o in outputs.items() if n not in ("autotune", "read")}
    decibels = {n: float(10 * np.log10((ours**2).sum() / power)) if power else 999.0 for n, power in noise.items()}
    title = f"{row['rows']} x {depth} x {columns}, {row['bits']} bits by {row['group']}"
    facts = {"title": title, "nbytes": nbytes, "count": count, "decibels": decibels, "absent": said}
    return {**facts, **figures(took)}


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parses the options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.weights_only", description=__doc__)
    add_options(parser)
    parser.add_argument("--megabytes", type=float, default=512, help="of weights that an inference reads")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=FEWEST_ROUNDS)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures the rows that are missing."""
    options = parse(arguments)
    settings = {name: getattr(options, name) for name in ("threads", "megabytes", "repeat")}

    def measure(name: str) -> dict[str, Any]:
        return compare(ROWS[name], options)

    return collect(options, NAME, settings, list(ROWS), measure, milliseconds, tables.weights_only)


if __name__ == "__main__":
    sys.exit(main())

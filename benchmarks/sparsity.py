"""Comparison of layers with sparse weights with our dense kernel, and with PyTorch's and SciPy's sparse products.

`python -m benchmarks.sparsity [--rows NAME,...] [--trials 32] [--threads 1] [--repeat 20]` has all of them take turns,
each in a process of its own, prints the table, and writes `benchmarks/results/sparsity.json` once all rows are there.
Our kernels are chosen without a trial and, unless `--trials 0`, by a search, which may also choose the dense algorithm.
The dense kernel is our own, by as many trials; of convolutions it may be Winograd's. Convolutions, bfloat16 and bytes
have no sparse peers: their peers are dense.

`python -m benchmarks.sparsity --costs float32` prints the costs of block sizes by which the pass `sparse_products`
chooses.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np

from autotune.graph.passes.sparse_products import COSTS
from benchmarks.collected import add_options, add_timing_options, collect
from benchmarks.figures import beside, figures
from benchmarks.interleave import measure_turns
from benchmarks.markdown import table
from benchmarks.operators import PEERS as DENSE_PEERS
from benchmarks.operators import prepare_processes
from benchmarks.peers.base import PeerProcess
from search_space import workloads

NAME = "sparsity"
SIZE = 1024
"""Inputs and outputs of the weight of a product."""
CHANNELS = 256
"""Inputs and outputs of a convolution of 3x3."""
SPARSE_PEERS = ("torch", "torch_csr", "torch_bsr", "scipy_bsr")
PEERS = {
    "torch": "PyTorch dense",
    "onnxruntime": "ONNX Runtime dense",
    "openvino": "OpenVINO dense",
    "torch_csr": "PyTorch CSR",
    "torch_bsr": "PyTorch BSR",
    "scipy_bsr": "SciPy BSR",
}
"""Peers → titles; only the last three compute sparse products."""
OURS = {"dense": "dense", "untimed": "sparse, without trials", "tuned": "sparse"}
COST_ROWS, COST_ZEROS = 64, 80
"""Rows of data, and percent of zeros, by which the costs of blocks are measured."""


@dataclass(frozen=True)
class Row:
    """A row of the table.

    Attributes:
        rows: rows of data of a product, or rows and columns of the image of a convolution.
        block: outputs and inputs of a block.
        zeros: share of blocks of zeros in percent.
        dtype: type in which layers multiply.
        window: whether the layer is a convolution of 3x3.
    """

    rows: int
    block: tuple[int, int]
    zeros: int
    dtype: str = "float32"
    window: bool = False

    @property
    def name(self) -> str:
        """Name in results and for `--rows`."""
        kind, dtype = "conv" if self.window else "", "" if self.dtype == "float32" else f"_{self.dtype}"
        return f"{kind}{self.rows}_{self.block[0]}x{self.block[1]}_{self.zeros}{dtype}"

    def make_dense(self) -> workloads.Workload:
        """Makes the workload of the dense layer."""
        if not self.window:
            return workloads.matmul(self.rows, SIZE, SIZE, self.dtype)
        return workloads.conv2d(1, self.rows, self.rows, CHANNELS, CHANNELS, padding=1, dtype=self.dtype)

    def make_sparse(self) -> workloads.Workload:
        """Makes the workload of the sparse layer, whose fullest row of blocks has a fifth more than the mean."""
        columns, depth = self.block
        outputs, inputs = (CHANNELS, 9 * CHANNELS) if self.window else (SIZE, SIZE)
        per_row = inputs // depth * (100 - self.zeros) // 100
        blocks, fullest = outputs // columns * per_row, min(inputs // depth, per_row * 6 // 5)
        if not self.window:
            return workloads.sparse_matmul(self.rows, SIZE, SIZE, self.block, blocks, fullest, self.dtype)
        sizes = (1, self.rows, self.rows, CHANNELS, CHANNELS)
        return workloads.sparse_conv2d(
            *sizes, padding=1, block=self.block, blocks=blocks, fullest=fullest, dtype=self.dtype
        )


_ROWS = (
    *(Row(rows, block, zeros) for rows in (64, 256) for block in ((16, 1), (4, 4), (1, 16)) for zeros in (50, 80, 90)),
    *(Row(side, block, zeros, window=True) for side in (14, 28) for block in ((16, 1), (4, 4)) for zeros in (50, 80)),
    *(Row(64, block, 80, "bfloat16") for block in ((16, 1), (4, 4))),
    *(Row(64, block, 80, "int8") for block in ((16, 4), (4, 4))),
    Row(14, (4, 4), 80, "bfloat16", window=True),
    *(Row(14, block, 80, "int8", window=True) for block in ((16, 4), (4, 4))),
)
ROWS: dict[str, Row] = {row.name: row for row in _ROWS}
"""Rows by their names."""


def choose(workload: workloads.Workload, trials: int, options: argparse.Namespace) -> dict[str, Any]:
    """Chooses the schedule of a kernel of ours; returns the options of its process."""
    from autotune.config import Measure
    from autotune.tuner.task import Task
    from autotune.tuner.tuner import settings_for
    from autotune.tuner.untimed import select_by_roofline
    from benchmarks.tuning import tune_workload
    from targets import registry

    if trials:
        return tune_workload(workload, trials, options.seed, options.threads).generated_options
    settings = settings_for(registry.get("cpu"), 1, options.seed, measure=Measure(threads=options.threads))
    first = select_by_roofline(Task(NAME, workload), settings)
    return {"algorithm": first.algorithm, "trace": first.trace.to_json(), "target": "cpu"}


def compare(row: Row, options: argparse.Namespace) -> dict[str, Any]:
    """Times our kernels and every peer in turns."""
    sparse, dense = row.make_sparse(), row.make_dense()
    ours = {"untimed": choose(sparse, 0, options)}
    if options.trials:
        ours["tuned"] = choose(sparse, options.trials, options)
    at_sparse: dict[str, tuple[str, dict[str, Any]]] = {name: ("ours", chosen) for name, chosen in ours.items()}
    at_dense: dict[str, tuple[str, dict[str, Any]]] = {"dense": ("ours", choose(dense, options.trials, options))}
    if row.window or row.dtype != "float32":
        at_dense |= {
            name: (module.rpartition(".")[2], settings)
            for name, (module, settings) in DENSE_PEERS.items()
            if name in PEERS
        }
    else:
        at_sparse |= {name: ("sparse_peer", {"runtime": name}) for name in SPARSE_PEERS}
    with ExitStack() as stack:
        running: dict[str, PeerProcess] = {}
        said: dict[str, Any] = {}
        for workload, peers in ((dense, at_dense), (sparse, at_sparse)):
            processes = {
                name: stack.enter_context(PeerProcess(f"benchmarks.peers.{module}"))
                for name, (module, _) in peers.items()
            }
            chosen_settings = {name: settings for name, (_, settings) in peers.items()}
            able, answers = prepare_processes(processes, workload, chosen_settings, options.threads)
            running |= able
            said |= answers
        took = measure_turns(running, options.repeat)
    facts = {"rows": row.rows, "block": list(row.block), "zeros": row.zeros, "dtype": row.dtype, "window": row.window}
    chosen = {name: settings["algorithm"] for name, settings in ours.items()}
    return {**facts, "peers": said, "algorithms": chosen, **figures(took)}


def measure_costs(dtype: str, options: argparse.Namespace) -> str:
    """Measures the cost of a block of each size of the pass; returns a table.

    The cost is the time of a sparse kernel over that of the dense one and the share of blocks that are multiplied. It
    is at most about the inverse of that share, as the dense algorithm is one of the sparse operator's.
    """
    rows = [Row(COST_ROWS, block, COST_ZEROS, dtype) for block in COSTS[dtype]]
    work = {"dense": rows[0].make_dense(), **{row.name: row.make_sparse() for row in rows}}
    with ExitStack() as stack:
        running: dict[str, PeerProcess] = {}
        for name, workload in work.items():
            process = {name: stack.enter_context(PeerProcess("benchmarks.peers.ours"))}
            settings = {name: choose(workload, options.trials, options)}
            running |= prepare_processes(process, workload, settings, options.threads)[0]
        took = {name: float(np.median(samples)) for name, samples in measure_turns(running, options.repeat).items()}
    lines: list[list[object]] = []
    for row in rows:
        share = work[row.name].flops / work["dense"].flops
        lines.append(["x".join(map(str, row.block)), f"{took[row.name] / took['dense'] / share:.2f}"])
    return table(["outputs x inputs", f"cost in {dtype}"], lines)


def sparsity(document: Mapping[str, Any]) -> str:
    """Formats a line for each row: times, and ratios to our dense kernel and to the fastest peer."""
    header = ["layer", "type", "block", "zeros", *(f"{title} µs" for title in (*OURS.values(), *PEERS.values()))]
    header += ["without trials to dense", "with trials to dense", "with trials to the best peer"]
    lines: list[list[object]] = []
    for row in document["rows"].values():
        took = row["seconds"]
        side = f"{row['rows']}x{row['rows']} pixels, 3x3" if row.get("window") else f"{row['rows']} rows"
        line: list[object] = [
            side,
            row.get("dtype", "float32"),
            "x".join(map(str, row["block"])),
            f"{row['zeros']}%",
        ]
        for name in (*OURS, *PEERS):
            algorithm = row["algorithms"].get(name)
            shown = "" if algorithm in (None, "direct", "words") else f" ({algorithm})"
            line.append(f"{took[name] * 1e6:.0f}{shown}" if name in took else "")
        best = min((name for name in PEERS if name in took), key=took.__getitem__, default=None)
        last = "tuned" if "tuned" in took else "untimed"
        line += [beside(row, name, "dense") if name in took else "" for name in ("untimed", "tuned")]
        lines.append([*line, beside(row, last, best) if best is not None else ""])
    return table(header, lines)


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parses the options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sparsity", description=__doc__)
    add_options(parser)
    add_timing_options(parser, 32, "measured candidates of a kernel; 0: none is tuned", threads=1)
    parser.add_argument("--costs", choices=tuple(COSTS), help="type whose costs of block sizes are measured instead")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures the rows that are missing, or the costs of blocks."""
    options = parse(arguments)
    if options.costs:
        sys.stdout.write(measure_costs(options.costs, options) + "\n")
        return 0
    settings = {name: getattr(options, name) for name in ("threads", "trials", "repeat", "seed")}

    def measure(name: str) -> dict[str, Any]:
        return compare(ROWS[name], options)

    def summarise(row: Mapping[str, Any]) -> str:
        return ", ".join(f"{who} {seconds * 1e6:.0f} µs" for who, seconds in row["seconds"].items())

    return collect(options, NAME, settings, list(ROWS), measure, summarise, sparsity)


if __name__ == "__main__":
    sys.exit(main())

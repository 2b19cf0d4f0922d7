"""Our generated kernels against PyTorch (oneDNN) and ONNX Runtime, operator by operator, in turns.

`python -m benchmarks.operators [--rows NAME,...] [--trials 128] [--repeat 10] [--peers-only]` writes
`benchmarks/results/operators.json` and prints the table.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from benchmarks import results, tables
from benchmarks.interleave import FEWEST_ROUNDS, interleave
from benchmarks.peers.base import PeerError, PeerProcess
from benchmarks.rows import Row, select
from search_space.workloads import Workload
from targets import registry

PEERS: dict[str, tuple[str, dict[str, Any]]] = {
    "torch": ("benchmarks.peers.torch_peer", {}),
    "onnxruntime": ("benchmarks.peers.ort_peer", {}),
    "onnxruntime_blocked": ("benchmarks.peers.ort_peer", {"blocked": True}),
}


def compare(row: Row, options: argparse.Namespace) -> dict[str, Any]:
    """Tunes one row and times it beside the peers; seconds by peer, and what is needed to read them."""
    workload = row.make()
    found: dict[str, Any] = {
        "title": row.title,
        "class": row.kind,
        "flops": workload.flops,
        "threads": options.threads,
    }
    found["constant_weight"] = any(spec.constant for spec in workload.inputs)
    peers = {
        name: program for name, program in PEERS.items() if name != "onnxruntime_blocked" or "conv" in workload.operator
    }
    settings: dict[str, dict[str, Any]] = {name: extra for name, (_, extra) in peers.items()}
    modules = {name: module for name, (module, _) in peers.items()}
    if not options.peers_only:
        from benchmarks.tuning import tuned  # brings the cost models in, which the peers alone do not need

        result = tuned(workload, options.trials, options.seed, options.threads)
        found["tuning"] = result.took
        own = {"ours": result.generated} | ({"library": result.library} if result.library else {})
        modules = {**dict.fromkeys(own, "benchmarks.peers.ours"), **modules}
        settings = {**own, **settings}
    found["seconds"], found["peers"] = measured(workload, modules, settings, options)
    return found


def measured(
    workload: Workload,
    modules: dict[str, str],
    settings: dict[str, dict[str, Any]],
    options: argparse.Namespace,
) -> tuple[dict[str, float], dict[str, Any]]:
    """Seconds of every peer that has the operator, taken in turns, and what each said of itself."""
    with ExitStack() as stack:
        processes = {name: stack.enter_context(PeerProcess(module)) for name, module in modules.items()}
        running, said = prepared(processes, workload, settings, options.threads)
        return interleave(running, options.repeat), said


def prepared(
    processes: Mapping[str, PeerProcess], workload: Workload, settings: Mapping[str, Mapping[str, Any]], threads: int
) -> tuple[dict[str, PeerProcess], dict[str, Any]]:
    """Those of the processes that have the operator, ready to take turns, and what each said of itself.

    Raises:
        PeerError: ours has not.
    """
    running, said = {}, {}
    for name, process in processes.items():
        try:
            said[name] = process.prepare(workload, threads, **settings[name])
            running[name] = process
        except PeerError as error:
            if process.module == "benchmarks.peers.ours":
                raise
            said[name] = {"error": str(error)}
    return running, said


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.operators", description=__doc__)
    parser.add_argument("--rows", help="comma-separated names; default: all")
    parser.add_argument("--trials", type=int, default=128, help="measured candidates a row")
    parser.add_argument("--repeat", type=int, default=FEWEST_ROUNDS, help="rounds of turns")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--peers-only", action="store_true", help="no tuning: the peers alone")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the comparison."""
    options = parse(arguments)
    try:
        chosen = select(options.rows)
    except ValueError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    document = {
        "trials": options.trials,
        "repeat": options.repeat,
        "peak_flops": registry.get("cpu").hardware.peak_flops,
    }
    name = "peers" if options.peers_only else "operators"
    for row in chosen:
        start = time.perf_counter()
        found = compare(row, options)
        results.save(name, {**document, "rows": {row.name: found}})
        shown = ", ".join(f"{peer} {seconds * 1e3:.3f} ms" for peer, seconds in found["seconds"].items())
        sys.stderr.write(f"{row.title}: {shown} ({time.perf_counter() - start:.0f} s)\n")
    saved = results.load(name)
    assert saved is not None
    sys.stdout.write(tables.operators(saved) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Kernels along rows of many lengths beside PyTorch, ONNX Runtime and OpenVINO, chosen without trials and with them.

`python -m benchmarks.row_wise [--kinds softmax,...] [--lengths 32,...] [--trials 64] [--threads 2] [--repeat 20]` has
ours without trials, ours with them and all peers take turns, writes `benchmarks/results/row_wise.json` row by row, and
prints the table. With `--trials 0` nothing is tuned. Of every length there are as many rows as make 2^17 elements. It
goes on where it was stopped, as long as the commit is the same.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks import results
from benchmarks.interleave import FEWEST_ROUNDS, interleave
from benchmarks.operators import prepared
from benchmarks.peers.base import PeerProcess
from benchmarks.provenance import commit_of
from benchmarks.row_kinds import KINDS
from benchmarks.row_wise_table import PEERS, row_wise
from benchmarks.rows import pick
from measure.host import describe_host

NAME = "row_wise"
ELEMENTS = 1 << 17
LENGTHS = (32, 33, 50, 64, 128, 197, 256, 384, 512, 768, 1000, 1024, 2048, 4096, 4097, 8192)
"""Of rows: those of attention, of hidden layers and of classes, and odd ones, of which vectors leave a tail."""


PAUSE, WARM = 0.06, 0.06
"""Seconds between turns and before them: kernels are so short that the rows of a turn soon find everything in place."""


def processes(stack: ExitStack, trials: int) -> dict[str, PeerProcess]:
    """Ours and the peers, each in a process that serves all rows."""
    modules = dict.fromkeys(("untimed", *(["tuned"] if trials else [])), "benchmarks.peers.ours")
    modules |= dict.fromkeys(PEERS, "benchmarks.peers.row_wise_peer")
    return {name: stack.enter_context(PeerProcess(module)) for name, module in modules.items()}


def compare(kind: str, length: int, running: Mapping[str, PeerProcess], options: argparse.Namespace) -> dict[str, Any]:
    """Seconds of ours and of every peer, in turns, and what is needed to read them."""
    from autotune.config import Measure
    from autotune.tuning.task import Task
    from autotune.tuning.tuner import settings_for
    from autotune.tuning.untimed import by_roofline
    from benchmarks.tuning import tuned
    from targets import registry

    rows = max(1, ELEMENTS // length)
    workload = KINDS[kind](rows, length)
    settings = settings_for(registry.get("cpu"), 1, options.seed, measure=Measure(threads=options.threads))
    first = by_roofline(Task(NAME, workload), settings)
    given: dict[str, dict[str, Any]] = {
        "untimed": {"algorithm": first.algorithm, "trace": first.trace.to_json(), "target": "cpu"}
    }
    if options.trials:
        given["tuned"] = tuned(workload, options.trials, options.seed, options.threads).generated
    given |= {runtime: {"runtime": runtime, "kind": kind} for runtime in PEERS}
    able, said = prepared(running, workload, given, options.threads)
    seconds = interleave(able, options.repeat, pause=PAUSE, warm_seconds=WARM)
    return {"kind": kind, "rows": rows, "length": length, "seconds": seconds, "peers": said}


def _lengths(text: str) -> tuple[int, ...]:
    try:
        found = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be numbers with commas between them, but got {text!r}") from None
    if wrong := [n for n in found if not 1 <= n <= ELEMENTS]:
        raise argparse.ArgumentTypeError(f"must be 1 to {ELEMENTS}, but got {wrong[0]}")
    return found


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.row_wise", description=__doc__.partition("\n")[0])
    parser.add_argument("--kinds", help=f"comma-separated of {', '.join(KINDS)}; default: all")
    parser.add_argument("--lengths", type=_lengths, default=LENGTHS, help="comma-separated lengths of rows")
    parser.add_argument("--trials", type=int, default=64, help="measured candidates a row; 0: none is tuned")
    parser.add_argument("--repeat", type=int, default=FEWEST_ROUNDS, help="rounds of turns")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--results", type=Path, default=results.FOLDER, help="folder of row_wise.json")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the comparison."""
    options = parse(arguments)
    try:
        kinds = pick(options.kinds, KINDS)
    except ValueError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    common = {name: getattr(options, name) for name in ("trials", "seed", "threads", "repeat")}
    common |= {"cpu": describe_host()["cpu"], "commit": commit_of()}
    done = (results.load(NAME, options.results) or {"rows": {}})["rows"]
    wanted = {
        f"{kind} {length}, {common['cpu']}, {options.threads} threads": (kind, length)
        for kind in kinds
        for length in options.lengths
    }
    todo = {key: of for key, of in wanted.items() if not results.is_done(done.get(key), common)}
    with ExitStack() as stack:
        running = processes(stack, options.trials) if todo else {}
        for key, (kind, length) in todo.items():
            found = compare(kind, length, running, options)
            results.save(NAME, {"rows": {key: {**found, **common}}}, options.results)
            shown = ", ".join(f"{who} {seconds * 1e6:.1f} µs" for who, seconds in found["seconds"].items())
            sys.stderr.write(f"{kind} {found['rows']}x{length}: {shown}\n")
    saved = results.load(NAME, options.results)
    sys.stdout.write((row_wise(saved) if saved else "no result") + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Our tuning against TVM MetaSchedule at equal trials: latency of what is found, and trials a second.

`python -m benchmarks.tvm [--rows NAME,...] [--trials 64,256] [--repeat 10] [--env FOLDER]` makes an
environment for TVM where there is none yet, writes `benchmarks/results/tvm.json` and prints the table.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import results, tables
from benchmarks.interleave import FEWEST_ROUNDS, interleave
from benchmarks.peers.base import PeerError, PeerProcess
from benchmarks.rows import Row, select
from benchmarks.tuning import tuned

REQUIREMENTS = (
    "apache-tvm==0.27.0.post1",
    "apache-tvm-ffi==0.1.14.post0",
    "xgboost",
    "psutil",
    "cloudpickle",
    "tornado",
    "numpy",
)
ENVIRONMENT = Path("~/.cache/autotune-bench/tvm")
Document = dict[str, Any]


def interpreter(folder: Path) -> str:
    """Python of the environment in `folder`, made and filled where it is not there yet."""
    folder = folder.expanduser().resolve()
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
    done = folder / "requirements.txt"
    wanted = "\n".join(REQUIREMENTS) + "\n"
    if not done.exists() or done.read_text() != wanted:
        subprocess.run([python, "-m", "pip", "install", "--quiet", *REQUIREMENTS], check=True)
        done.write_text(wanted)
    return str(python)


def host_cpu() -> str:
    """LLVM's name of this processor."""
    from llvmlite import binding

    return str(binding.get_host_cpu_name())


def compare(row: Row, trials: int, python: str, options: argparse.Namespace) -> Document:
    """Tunes one row with both and times what they found in turns."""
    workload = row.make()
    found = tuned(workload, trials, options.seed, options.threads)
    threads = {"TVM_NUM_THREADS": str(options.threads)}
    with (
        PeerProcess("benchmarks.peers.ours") as ours,
        PeerProcess("benchmarks.peers.tvm_peer", python, threads) as theirs,
    ):
        said = theirs.prepare(workload, options.threads, trials=trials, mcpu=options.mcpu, seed=options.seed)
        ours.prepare(workload, options.threads, **found.generated)
        seconds = interleave({"ours": ours, "tvm": theirs}, options.repeat)
    took = said["tuning_seconds"]
    theirs_took = {"trials": trials, "seconds": took, "trials_per_second": said["records"] / took, **said}
    return {"seconds": seconds, "tuning": {"ours": found.took, "tvm": theirs_took}}


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tvm", description=__doc__)
    parser.add_argument("--rows", help="comma-separated names; default: all")
    parser.add_argument("--trials", default="64,256", help="comma-separated numbers of trials")
    parser.add_argument("--repeat", type=int, default=FEWEST_ROUNDS, help="rounds of turns")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--env", type=Path, default=ENVIRONMENT, help="folder of TVM's environment")
    parser.add_argument("--mcpu", default=None, help="LLVM's name of the processor; default: this host's")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the comparison."""
    options = parse(arguments)
    try:
        chosen = select(options.rows)
        counts = [int(number) for number in options.trials.split(",")]
    except ValueError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    options.mcpu = options.mcpu or host_cpu()
    python = interpreter(options.env)
    for row in chosen:
        runs: dict[str, Document] = {}
        for trials in counts:
            start = time.perf_counter()
            try:
                runs[str(trials)] = compare(row, trials, python, options)
            except PeerError as error:
                sys.stderr.write(f"{row.title}, {trials} trials: {error}\n")
                continue
            shown = ", ".join(f"{name} {value * 1e3:.3f} ms" for name, value in runs[str(trials)]["seconds"].items())
            sys.stderr.write(f"{row.title}, {trials} trials: {shown} ({time.perf_counter() - start:.0f} s)\n")
        before = (results.load("tvm") or {"rows": {}})["rows"].get(row.name, {"trials": {}})["trials"]
        line = {"title": row.title, "class": row.kind, "trials": {**before, **runs}}
        if line["trials"]:
            results.save("tvm", {"mcpu": options.mcpu, "rows": {row.name: line}})
    saved = results.load("tvm")
    sys.stdout.write((tables.tvm(saved) if saved else "no result") + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""`python -m benchmarks.gpu [--seconds 300] [--trials 48] [--rows NAME,...]` writes `benchmarks/results/gpu.json`.

Each row is tuned, then timed beside PyTorch in turns on one queue of the device, by the same marks. Rows are begun
until the time is up; those that were measured are kept.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
import traceback
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np

from benchmarks import results
from benchmarks.gpu.peer import torch_calls
from benchmarks.gpu.rows import ROWS, Row
from targets.base import RunError
from targets.cuda.device import CudaDevice, Device, DeviceLost
from targets.cuda.hardware import own_arch
from targets.cuda.kernel import CudaKernel
from targets.cuda.stopwatch import Stopwatch

TURNS, SAMPLES = 7, 16
PEER_LAUNCHES = 8
"""What a call of PyTorch takes the host, in launches of ours; were it more, gaps would count as the peer's time."""


def compare(row: Row, device: CudaDevice, trials: int, seed: int) -> dict[str, Any]:
    """Tunes one row and times it beside PyTorch; seconds of each, warm and cold."""
    import torch

    from autotune import tune

    workload = row.make()
    begun = time.perf_counter()
    target = f"cuda:{own_arch(device.arch)}"
    result = tune(workload, target=target, trials=trials, seed=seed, batch=max(16, trials // 3))
    tuned = time.perf_counter() - begun
    found: dict[str, Any] = {"kind": row.kind, "flops": workload.flops, "trials": trials, "tuning_seconds": tuned}
    found["errors"] = result.errors
    if result.best is None:
        return {**found, "problem": result.problem}
    kernel = CudaKernel(result.module, device)
    inputs = workload.make_inputs(seed)
    bound = kernel.bind(inputs)
    wanted = workload.reference(*inputs).astype(np.float64)
    found["error"] = float(np.linalg.norm(bound.run().astype(np.float64) - wanted) / np.linalg.norm(wanted))
    found |= {"metrics": bound.metrics(), "algorithm": result.algorithm, "sketch": str(result.trace)}
    with torch.inference_mode(), torch.cuda.stream(torch.cuda.ExternalStream(device.stream)):
        calls = torch_calls(workload, inputs, "cuda")
        works = {"ours": bound.start, **{f"torch_{name}": call for name, call in calls.items()}}
        for state in ("warm", "cold"):
            watches = {
                name: Stopwatch(
                    device, _quiet(work), len(kernel.launches) if name == "ours" else PEER_LAUNCHES, state == "cold"
                )
                for name, work in works.items()
            }
            samples: dict[str, list[float]] = {name: [] for name in works}
            for turn in range(TURNS + 1):
                for name, watch in watches.items():
                    seconds = watch.time(SAMPLES)
                    samples[name] += seconds.tolist() if turn else []  # the first turn warms up
            found[state] = {name: float(np.median(s)) for name, s in samples.items()}
            best = min(s for name, s in found[state].items() if name != "ours")
            found[f"ratio_{state}"] = best / found[state]["ours"]
    return found


def _quiet(work: Any) -> Any:
    def start() -> None:
        work()

    return start


def lost(device: Device) -> bool:
    """Whether the device does no more work for this process."""
    try:
        device.sync()
    except DeviceLost:
        return True
    return False


def means(rows: dict[str, dict[str, Any]]) -> dict[str, float]:
    """Geometric mean of PyTorch's time over ours, by kind of row and state of the cache."""
    out = {}
    for kind in dict.fromkeys(row["kind"] for row in rows.values()):
        for state in ("warm", "cold"):
            ratios = [r[f"ratio_{state}"] for r in rows.values() if r["kind"] == kind and f"ratio_{state}" in r]
            if ratios:
                out[f"{kind}_{state}"] = math.exp(sum(map(math.log, ratios)) / len(ratios))
    return out


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures until the time is up; 1 where a row failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("--seconds", type=float, default=300.0, help="after which no row is begun")
    parser.add_argument("--trials", type=int, default=48, help="measured candidates a row")
    parser.add_argument("--rows", help="comma-separated names; default: all")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    names = [row.name for row in ROWS]
    wanted = options.rows.split(",") if options.rows else names
    if unknown := [name for name in wanted if name not in names]:
        sys.stderr.write(f"`--rows` must be among {', '.join(names)}, but got {unknown[0]!r}\n")
        return 2
    try:
        device = CudaDevice()
    except RunError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    begun, rows, failed = time.perf_counter(), {}, False
    document = {"device": device.name, "arch": device.arch, "date": datetime.now(UTC).date().isoformat()}
    for row in (r for r in ROWS if r.name in wanted):
        if time.perf_counter() - begun > options.seconds:
            sys.stderr.write(f"time is up before {row.name}\n")
            break
        try:
            rows[row.name] = compare(row, device, options.trials, options.seed)
        except Exception as error:  # time on a device is short: the other rows are measured, and the exit code tells
            traceback.print_exception(error)
            rows[row.name] = {"kind": row.kind, "problem": f"{type(error).__name__}: {error}"}
            failed = True
        results.save("gpu", {**document, "means": means(rows), "rows": {row.name: rows[row.name]}})
        shown = {
            key: value
            for key, value in rows[row.name].items()
            if key in ("warm", "ratio_warm", "ratio_cold", "problem")
        }
        sys.stderr.write(f"{row.name}: {shown}\n")
        if failed and lost(device):
            sys.stderr.write("the device takes no more work of this process\n")
            break
    sys.stdout.write("\n".join(f"{name}: {ratio:.2f}x" for name, ratio in means(rows).items()) + "\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())

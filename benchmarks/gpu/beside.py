"""One winner beside PyTorch, in this process: a header and a module on standard input, a line of JSON as the answer.

Both are timed in turns on one queue of the device, by the same marks. PyTorch is imported before anything is read,
while the search is still running.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np

from measure.steadiness import compute_spread

TURNS, SAMPLES = 7, 16
PEER_LAUNCHES = 8
"""Host time of a call of PyTorch, in launches of ours; if it were more, gaps would count as the peer's time."""


def compare(workload: Any, module: Any, seed: int) -> dict[str, Any]:
    """Computes the error of a module's output, and times it and PyTorch, warm and cold."""
    import torch

    from benchmarks.gpu.peer import CHOICES, record_graphs, settle, torch_calls
    from targets.cuda.device import CudaDevice
    from targets.cuda.kernel import CudaKernel
    from targets.cuda.stopwatch import Stopwatch

    device = CudaDevice()
    kernel = CudaKernel(module, device)
    inputs = workload.make_inputs(seed)
    bound = kernel.bind(inputs)
    wanted = workload.reference(*inputs).astype(np.float64)
    figures: dict[str, Any] = {
        "error": float(np.linalg.norm(bound.run().astype(np.float64) - wanted) / np.linalg.norm(wanted)),
        "metrics": bound.metrics(),
    }
    with torch.inference_mode(), torch.cuda.stream(torch.cuda.ExternalStream(device.stream)):
        calls = torch_calls(workload, inputs, "cuda")
        settle(calls)  # not between fills of the device's memory, where it would choose otherwise
        works = {"ours": bound.start, **{f"torch_{name}": call for name, call in calls.items()}}
        choices = CHOICES if workload.operator == "conv2d" else 1
        for name, call in calls.items():
            works |= {f"torch_{name}_graph_{n}": replay for n, replay in enumerate(record_graphs(call, choices))}
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
            figures[state] = {name: float(np.median(s)) for name, s in samples.items()}
            figures[f"spread_{state}"] = {name: compute_spread(s) for name, s in samples.items()}
            best = min(s for name, s in figures[state].items() if name != "ours")
            figures[f"ratio_{state}"] = best / figures[state]["ours"]
    return figures


def _quiet(work: Any) -> Any:
    def start() -> None:
        work()

    return start


def main() -> int:
    """Answers once."""
    import torch  # noqa: F401  (takes seconds)

    header = json.loads(sys.stdin.buffer.readline())
    module = sys.stdin.buffer.read()
    from search_space.workloads import Workload
    from targets.base import Module

    workload = Workload.from_json(header["workload"])
    sys.stdout.write(json.dumps(compare(workload, Module.from_bytes(module), header["seed"])) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""ResNet-50 and PyTorch's on this GPU: `python -m benchmarks.gpu.network [--trials 240] [--output FOLDER]`.

Writes `gpu_network.json`. `autotune run configs/resnet50_cuda.yaml` tunes and compiles the network, which is then timed
in turns with PyTorch's, all in float32 without TF32. Each inference is a recorded CUDA graph with its input on the
device, so Python's time to launch kernels counts for neither. The file is written after each of PyTorch's ways.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import autotune
from benchmarks import results
from benchmarks.gpu.beside import PEER_LAUNCHES
from benchmarks.gpu.ladder.__main__ import output_folder
from benchmarks.gpu.peer import record_graphs, settle
from benchmarks.provenance import EVERYWHERE
from targets.cuda.driver import devices, missing_device
from targets.cuda.hardware import own_arch
from targets.cuda.stopwatch import Stopwatch

CONFIG = Path(__file__).resolve().parents[2] / "configs" / "resnet50_cuda.yaml"
TURNS, SAMPLES = 9, 16
RUN_SECONDS = 400.0
"""Time limit of `autotune run`, in seconds."""
SUMMARY_KEYS = ("trials", "seed", "precision", "max_error", "tasks_seconds", "memory")
"""Entries of the summary's network that a row has."""


def run_tuning(folder: Path, arch: str, trials: int) -> dict[str, Any]:
    """Runs the configuration; returns the summary's facts about the network, and the run's seconds.

    Raises:
        RuntimeError: it wrote no network.
        TimeoutExpired: it did not end within `RUN_SECONDS`.
    """
    config, summary = folder / "resnet50.yaml", folder / "summary.json"
    config.write_text(CONFIG.read_text().replace("target: cuda:sm_90\n", f"target: cuda:{arch}\n"))
    command = [sys.executable, "-m", "autotune", "run", str(config), "--trials", str(trials), "--track", "none"]
    begun = time.perf_counter()
    done = subprocess.run(
        [*command, "--output", str(folder / "run"), "--json", str(summary)],
        timeout=RUN_SECONDS, stdout=sys.stderr,
    )  # fmt: skip
    if not (folder / "run" / "network" / "manifest.json").exists():
        raise RuntimeError(f"`autotune run` must write a network, but ended with {done.returncode}")
    seconds = time.perf_counter() - begun
    network = json.loads(summary.read_text())["network"]
    return {"code": done.returncode, "run_seconds": seconds, **{name: network[name] for name in SUMMARY_KEYS}}


def peer() -> Any:
    """Builds the same network in PyTorch: torchvision's, with the probabilities at its end."""
    from torch import nn
    from torchvision.models import resnet50

    return nn.Sequential(resnet50(weights=None), nn.Softmax(-1)).eval().cuda()


def multiply_adds(model: Any, data: Any) -> int:
    """Counts multiply-adds of the model's convolutions and products."""
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        model(data)
    return int(counter.get_total_flops()) // 2


def calls(data: Any) -> dict[str, Callable[[], Callable[[], Any]]]:
    """Lists PyTorch's ways, cheapest first; each makes its call."""
    import torch
    from torch._inductor import config

    config.freezing = True

    def make_call(form: Any, compiled: bool) -> Callable[[], Any]:
        model, given = peer().to(memory_format=form), data.contiguous(memory_format=form)
        run = torch.compile(model) if compiled else model
        return lambda: run(given)

    forms = {"": torch.contiguous_format, "_channels_last": torch.channels_last}
    return {
        f"{name}{suffix}": lambda form=form, compiled=compiled: make_call(form, compiled)
        for name, compiled in (("eager", False), ("inductor", True))
        for suffix, form in forms.items()
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 0, or 2 without a GPU."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.network", description=__doc__)
    parser.add_argument("--trials", type=int, default=240, help="measured candidates of all layers together")
    parser.add_argument("--output", type=Path, help="folder of results; $OUT by default, or runs/gpu")
    options = parser.parse_args(arguments)
    if why := missing_device():
        sys.stderr.write(f"{why}\n")
        return 2
    out = output_folder(options.output)
    found = devices()[0]
    arch = own_arch(found.target.removeprefix("cuda:"))
    document: dict[str, Any] = {"device": found.name, "arch": arch}
    with tempfile.TemporaryDirectory(prefix="autotune-gpu-") as place:
        row = run_tuning(Path(place), arch, options.trials)
        executable = autotune.load(Path(place) / "run" / "network")
        shutil.copy(Path(place) / "run" / "records.jsonl", out)
        document["rows"] = {"resnet50": row}
        _beside(executable, row, lambda: results.save("gpu_network", document, out, EVERYWHERE))
    return 0


def _beside(executable: Any, row: dict[str, Any], save: Callable[[], Any]) -> None:
    """Adds the seconds of an inference, ours in turns with each of PyTorch's ways."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    (given,) = executable.inputs
    array = np.random.default_rng(0).standard_normal(given.shape).astype(np.float32)
    executable(array)
    data = torch.from_numpy(array).cuda()
    stream = torch.cuda.ExternalStream(executable.device.stream)
    row |= {"torch": torch.__version__, "steps": np.median(executable.profile(9), axis=0).tolist(), "beside": {}}
    with torch.inference_mode():
        row["peer_multiply_adds"] = multiply_adds(peer(), data)
    for name, make in calls(data).items():
        try:
            with torch.no_grad():
                call = make()
                settle({name: call})  # compiles it, which a thread that records does not
                found = [_in_turns(executable, replay, stream) for replay in record_graphs(call)]
            row["beside"][name] = min(found, key=lambda turns: turns["torch"]["seconds"])
        except Exception as error:  # time on a device is short: the other ways are tried, and the row says so
            row["beside"][name] = {"problem": f"{type(error).__name__}: {error}"}
        sys.stderr.write(f"{name}: {row['beside'][name]}\n")
        save()


def _in_turns(executable: Any, replay: Callable[[], None], stream: Any) -> dict[str, dict[str, Any]]:
    """Times an inference, ours and PyTorch's: the median of turns, each the median of samples."""
    import torch

    seconds: dict[str, list[float]] = {"ours": [], "torch": []}
    with torch.cuda.stream(stream):
        watch = Stopwatch(executable.device, replay, PEER_LAUNCHES, cold=False)
        for turn in range(TURNS + 1):
            for who, time_of in (("ours", executable.time), ("torch", watch.time)):
                took = float(np.median(time_of(SAMPLES)))
                seconds[who] += [took] if turn else []  # the first turn warms up
    return {who: {"seconds": median(turns), "turns": turns} for who, turns in seconds.items()}


if __name__ == "__main__":
    sys.exit(main())

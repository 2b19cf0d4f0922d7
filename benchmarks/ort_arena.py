"""How large ONNX Runtime's arena of activations is: its allocator's own count, from a profile of it.

The profile has the allocator's counts after each node; what a kernel takes and gives back by itself is not seen.
Weights are kept out of the arena (`session.use_device_allocator_for_initializers`), and what it holds in front of the
first node of the first run (weights that kernels have packed) is taken off, so that activations are left, outputs among
them. The peak is that of the last run, by which time the memory of a run is planned and taken as one block.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune.graph.ir import Array


@dataclass(frozen=True)
class Arena:
    """ONNX Runtime's arena.

    Attributes:
        requested: bytes that were asked of it and not given back, at the worst node of the last run.
        used: the same with the arena's padding.
    """

    requested: int
    used: int


def measure_arena(model: Path, feeds: Mapping[str, Array], threads: int, runs: int = 10) -> Arena:
    """Runs a model on ONNX Runtime.

    Args:
        model: an .onnx file.
        feeds: inputs by name; they lie outside the arena.
        threads: of its kernels.
        runs: how many inferences; the last one counts.

    Raises:
        ValueError: a version whose profile does not have the counts.
    """
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    options.enable_profiling = True
    options.add_session_config_entry("session.use_device_allocator_for_initializers", "1")
    with tempfile.TemporaryDirectory(prefix="autotune-arena-") as place:
        options.profile_file_prefix = f"{place}/profile"
        session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        for _ in range(runs):
            session.run(None, dict(feeds))
        events = json.loads(Path(session.end_profiling()).read_text())
    return arena_of(events, runs)


def arena_of(events: Sequence[Mapping[str, Any]], runs: int) -> Arena:
    """The counts of the last of `runs` inferences in a profile.

    Raises:
        ValueError: a profile without them.
    """
    counts = [event["args"] for event in events if "mem_bytes_in_use" in event.get("args", {})]
    last = counts[len(counts) - len(counts) // runs :]
    if not last:
        raise ValueError("`events` must have mem_bytes_in_use of nodes, as newer versions of ONNX Runtime write it")

    def peak(total: str, delta: str) -> int:
        before = int(counts[0][total]) - int(counts[0][delta])
        return max(int(count[total]) for count in last) - before

    return Arena(
        peak("mem_bytes_requested_in_use", "mem_requested_in_use_delta"), peak("mem_bytes_in_use", "mem_in_use_delta")
    )

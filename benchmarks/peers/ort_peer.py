"""Peer ONNX Runtime: constant weights, the best of its graph optimisation levels.

With the option `blocked`, convolutions run in its own blocked layout instead, without the conversions around
them, as they do inside a network.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from autotune.graph import ort_runner
from benchmarks.peers.base import Array, Peer, PeerError, serve
from benchmarks.peers.calls import measure_seconds, medians
from search_space.workloads import Workload


class OrtPeer(Peer):
    """ONNX Runtime, sequential, inputs and outputs bound; the cost of an empty call is subtracted."""

    name = "onnxruntime"

    def __init__(self) -> None:
        self._overhead: float | None = None

    def prepare(
        self, workload: Workload, arrays: Sequence[Array], threads: int, options: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Makes a session of every variant and keeps the fastest."""
        if self._overhead is None:  # the thread pool is made once a process
            ort_runner.set_up(threads)
            self._overhead = ort_runner.call_seconds(threads)
        runners = ort_runner.candidates(workload, arrays, threads, np.random.default_rng(0))
        wanted = ("blocked",) if options.get("blocked") else ("all", "extended")
        runners = {name: runner for name, runner in runners.items() if name in wanted}
        if not runners:
            raise PeerError(f"`workload` must have an ONNX operator, but got {workload.key}")
        seconds = medians({name: runner.run for name, runner in runners.items()})
        best = min(seconds, key=seconds.__getitem__)
        self._runner = runners[best]
        return {
            "variant": best,
            "variants": seconds,
            "overhead": self._overhead,
            "version": onnxruntime.__version__,
        }

    def time(self, samples: int) -> NDArray[np.float64]:
        return measure_seconds(self._runner.run, samples, self._overhead or 0.0)

    def output(self) -> Array:
        self._runner.run()
        return self._runner.output()


if __name__ == "__main__":
    serve(OrtPeer())

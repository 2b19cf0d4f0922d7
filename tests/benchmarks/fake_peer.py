"""A peer that computes nothing: for tests of the protocol."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers.base import Array, Peer, PeerError, serve
from search_space.workloads import Workload


class FakePeer(Peer):
    """A peer that answers with the facts of its request; the option `fail` makes it misbehave."""

    name = "fake"

    def prepare(
        self, workload: Workload, arrays: Sequence[Array], threads: int, options: Mapping[str, Any]
    ) -> dict[str, Any]:
        print("a library that talks")
        failure = options.get("fail")
        if failure == "refuse":
            raise PeerError("`workload` must be another")
        if failure == "raise":
            raise ZeroDivisionError("a bug")
        if failure == "die":
            sys.stdout.flush()
            os._exit(3)
        self._seconds = options.get("seconds", 1e-3)
        leaked = [name for name in os.environ if name.startswith("OMP_")]
        return {
            "key": workload.key,
            "shapes": [array.shape for array in arrays],
            "threads": threads,
            "leaked": leaked,
        }

    def time(self, samples: int) -> NDArray[np.float64]:
        return np.full(samples, self._seconds)

    def output(self) -> Array:
        return np.zeros(1)


if __name__ == "__main__":
    serve(FakePeer())

"""Our own kernel as a peer: rebuilt from the trace that tuning found, timed in native code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers.base import Array, Peer, serve
from search_space.schedule.trace import Trace
from search_space.space import make_program
from search_space.workloads import Workload
from targets import registry


class OurPeer(Peer):
    """A schedule of ours, given as the options `algorithm`, `trace` and `target`."""

    name = "ours"

    def prepare(
        self, workload: Workload, arrays: Sequence[Array], threads: int, options: Mapping[str, Any]
    ) -> dict[str, Any]:
        target = registry.get(options.get("target", "cpu"))
        program = make_program(workload, options["algorithm"], Trace.from_json(options["trace"]))
        self._bound = target.load(target.build(program)).bind(arrays)
        self._threads = threads
        rtol, atol = workload.get_tolerance(options["algorithm"])
        np.testing.assert_allclose(self.output(), workload.reference(*arrays), rtol=rtol, atol=atol)
        return {"variant": options["algorithm"]}

    def time(self, samples: int) -> NDArray[np.float64]:
        self._bound.time(3, self._threads)
        return self._bound.time(samples, self._threads)

    def output(self) -> Array:
        return self._bound.run(self._threads)


if __name__ == "__main__":
    serve(OurPeer())

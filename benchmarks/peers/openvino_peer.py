"""OpenVINO as a peer: a model of one layer, constant weights, compiled for latency in float32."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import openvino
from numpy.typing import NDArray

from autotune.compiler.checking.runtimes import OPENVINO_FLOATS
from autotune.graph.single_op import SingleOp, UnsupportedOperator, single_op
from benchmarks.peers.base import Array, Peer, PeerError, serve
from benchmarks.peers.calls import measure_seconds
from search_space import workloads
from search_space.workloads import Workload


class OpenvinoPeer(Peer):
    """OpenVINO with its defaults, but not in bfloat16; the cost of an empty call is subtracted."""

    name = "openvino"

    def prepare(
        self, workload: Workload, arrays: Sequence[Array], threads: int, options: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Compiles the layer, and one with nothing to compute."""
        try:
            self._op = single_op(workload, arrays)
        except UnsupportedOperator as error:
            raise PeerError(f"`workload` must have an ONNX operator, but got {workload.key}: {error}") from None
        nothing = workloads.softmax(1, 1)
        self._request = _request(self._op, threads)
        empty = _request(single_op(nothing, nothing.make_inputs(0)), threads)
        self._overhead = float(np.median(measure_seconds(empty.infer, 500)))
        return {"overhead": self._overhead, "version": openvino.get_version()}

    def time(self, samples: int) -> NDArray[np.float64]:
        return measure_seconds(self._request.infer, samples, self._overhead)

    def output(self) -> Array:
        self._request.infer()
        return self._op.restore(np.array(self._request.get_output_tensor().data))


def _request(op: SingleOp, threads: int) -> Any:
    settings = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": threads, **OPENVINO_FLOATS}
    core = openvino.Core()
    request = core.compile_model(core.read_model(op.model), "CPU", settings).create_infer_request()
    for name, array in op.feeds.items():
        request.set_tensor(name, openvino.Tensor(array))  # a copy: a request does not keep what it shares alive
    return request


if __name__ == "__main__":
    serve(OpenvinoPeer())

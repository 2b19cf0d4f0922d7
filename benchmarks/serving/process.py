"""One runtime that serves a network in a process of its own: `python -m benchmarks.serving.process`.

Requests, as those of `benchmarks.peers.base`: `{"op": "open", "runtime": ..., "source": ..., "threads": n, "cores": n,
"inputs": FILE}`, then `{"op": "serve", "callers": n, "seconds": s}`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

from autotune.compiler.checking.runtimes import OPENVINO_FLOATS, ORT_FLOATS
from benchmarks.peers.base import Array, PeerError, answer_all
from benchmarks.serving.callers import Call, run_callers
from measure.host import cores_for

Inputs = Mapping[str, Array]


class Service(Protocol):
    """A network that callers share."""

    def caller(self, inputs: Inputs) -> Call:
        """Makes the call of one caller, with inputs of its own."""


class Ours:
    """An executable of ours, called by all."""

    def __init__(self, source: str, threads: int, cores: int) -> None:
        from autotune.compiler.executable.loading import load

        self._network = load(source, threads)

    def caller(self, inputs: Inputs) -> Call:
        network, arrays = self._network, [inputs[p.name] for p in self._network.inputs]

        def call() -> tuple[Array, ...]:
            out = network(*arrays)
            return out if isinstance(out, tuple) else (out,)

        return call


class OnnxRuntime:
    """A session of ONNX Runtime, run by all: with one thread each runs on its caller's."""

    def __init__(self, source: str, threads: int, cores: int) -> None:
        import onnxruntime as ort

        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 4
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
        options.add_session_config_entry(*ORT_FLOATS)
        self._session = ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])

    def caller(self, inputs: Inputs) -> Call:
        session, given = self._session, dict(inputs)
        return lambda: session.run(None, given)


class OpenVino:
    """A compiled model of OpenVINO, a request of its own for each caller, a stream for every `threads` cores."""

    def __init__(self, source: str, threads: int, cores: int) -> None:
        import openvino

        settings = {
            "PERFORMANCE_HINT": "LATENCY" if threads == cores else "THROUGHPUT",
            "NUM_STREAMS": max(1, cores // threads),
            "INFERENCE_NUM_THREADS": cores,
            **OPENVINO_FLOATS,
        }
        self._model = openvino.Core().compile_model(source, "CPU", settings)

    def caller(self, inputs: Inputs) -> Call:
        request, given = self._model.create_infer_request(), dict(inputs)
        return lambda: [np.array(value) for value in request.infer(given).values()]


RUNTIMES: Mapping[str, Callable[[str, int, int], Service]] = {
    "autotune": Ours,
    "onnxruntime": OnnxRuntime,
    "openvino": OpenVino,
}


class Server:
    """Answers requests."""

    def __init__(self) -> None:
        self._service: Service | None = None
        self._inputs: dict[str, Array] = {}
        self._expected: tuple[Array, ...] = ()
        self._calls: list[Call] = []

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Opens a network, or has it called."""
        if request["op"] == "open":
            return self._open(request)
        if request["op"] == "serve" and self._service is not None:
            return self._serve(request["callers"], request["seconds"])
        raise PeerError(f"`op` must be open, and then serve, but got op={request['op']!r}")

    def _open(self, request: Mapping[str, Any]) -> dict[str, Any]:
        os.sched_setaffinity(0, cores_for(request["cores"]))
        try:
            served = RUNTIMES[request["runtime"]](request["source"], request["threads"], request["cores"])
        except (ImportError, RuntimeError) as error:
            raise PeerError((str(error).strip() or type(error).__name__).splitlines()[0]) from error
        self._service, self._calls = served, []
        with np.load(request["inputs"], allow_pickle=False) as data:
            self._inputs = dict(data.items())
        self._expected = tuple(np.array(a) for a in served.caller(self._inputs)())
        return {"largest": [float(np.max(np.abs(a))) for a in self._expected]}

    def _serve(self, callers: int, seconds: float) -> dict[str, Any]:
        assert self._service is not None
        while len(self._calls) < callers:
            self._calls.append(self._service.caller({name: array.copy() for name, array in self._inputs.items()}))
        window = run_callers(self._calls[:callers], self._expected, seconds)
        return {"seconds": window.seconds, "latencies": window.latencies}


if __name__ == "__main__":
    answer_all(Server().answer)

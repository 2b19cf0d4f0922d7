"""Runtimes that run a network: our executable, or the same model elsewhere; and the process that serves one.

A process opens the model of its options on its first request, and answers `infer` with the outputs, `time` with
seconds, `median` with one number, `memory` with resident bytes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from measure.arrays import pack_arrays, unpack_arrays
from measure.child_main import Message, answer_requests, open_parent
from measure.host import cores_for

Array = NDArray[Any]
OPENVINO_FLOATS: Mapping[str, str] = {"INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0"}
"""Settings for float32 in OpenVINO; with the first alone it rounds the data of compressed weights to bytes."""
ORT_FLOATS = ("session.qdq_matmulnbits_accuracy_level", "0")
"""Entry for float32 products with weights of a DequantizeLinear; by default ONNX Runtime rounds data to bytes."""
_OPENVINO_TYPES = {"f32": "float32", "bf16": "bfloat16", "f16": "float16"}


class Runtime(Protocol):
    """A runtime that a process serves.

    Attributes:
        precision: type that it reports for its floats; "" if it is the type in the model.
    """

    precision: str

    def infer(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """Computes one inference; returns the outputs by name."""

    def time(self, iterations: int) -> Sequence[float]:
        """Times each of `iterations` inferences on the inputs of the last `infer`, in seconds."""


class Ours:
    """An executable of ours: `{"runtime": "autotune", "folder": ...}`."""

    precision = ""

    def __init__(self, facts: Mapping[str, Any]) -> None:
        import autotune  # public names alone: an older release may serve its own executables

        self._network = autotune.load(facts["folder"], facts["threads"])

    def infer(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        out = self._network(*(arrays[p.name] for p in self._network.inputs))
        outputs = out if isinstance(out, tuple) else (out,)
        return dict(zip((p.name for p in self._network.outputs), outputs, strict=True))

    def time(self, iterations: int) -> Sequence[float]:
        return [float(s) for s in self._network.time(iterations)]


class OnnxRuntime:
    """ONNX Runtime, graph optimised in full: `{"runtime": "onnxruntime", "model": FILE}`."""

    precision = ""

    def __init__(self, facts: Mapping[str, Any]) -> None:
        import onnxruntime as ort

        options = ort.SessionOptions()
        options.intra_op_num_threads = len(cores_for(facts["threads"]))
        options.inter_op_num_threads = 1
        options.log_severity_level = 4
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
        options.add_session_config_entry(*ORT_FLOATS)
        self._session = ort.InferenceSession(facts["model"], options, providers=["CPUExecutionProvider"])
        self._names = [output.name for output in self._session.get_outputs()]
        self._feeds: dict[str, Array] = {}

    def infer(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        self._feeds = dict(arrays)
        return dict(zip(self._names, self._session.run(None, self._feeds), strict=True))

    def time(self, iterations: int) -> Sequence[float]:
        return time_calls(lambda: self._session.run(None, self._feeds), iterations)


class OpenVino:
    """OpenVINO for latency, in float32: `{"runtime": "openvino", "model": FILE}`."""

    hint: Mapping[str, str] = OPENVINO_FLOATS

    def __init__(self, facts: Mapping[str, Any]) -> None:
        import openvino

        core = openvino.Core()
        settings = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": facts["threads"], **self.hint}
        self._model = core.compile_model(facts["model"], "CPU", settings)
        self._request = self._model.create_infer_request()
        taken = self._model.get_property("INFERENCE_PRECISION_HINT").to_string()
        self.precision = _OPENVINO_TYPES.get(taken, taken)

    def infer(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        found = self._request.infer(dict(arrays))
        return {port.get_any_name(): np.array(value) for port, value in found.items()}

    def time(self, iterations: int) -> Sequence[float]:
        return time_calls(self._request.infer, iterations)


class OpenVinoAsInstalled(OpenVino):
    """OpenVINO in the precision that it chooses, which is bfloat16 if the processor multiplies that."""

    hint: Mapping[str, str] = {}


Opener = Callable[[Mapping[str, Any]], Runtime]
"""Function that opens the model or executable that the facts name."""

RUNTIMES: dict[str, Opener] = {
    "autotune": Ours,
    "onnxruntime": OnnxRuntime,
    "openvino": OpenVino,
    "openvino-as-installed": OpenVinoAsInstalled,
}


def time_calls(run: Callable[[], Any], iterations: int) -> list[float]:
    """Times calls, in wall seconds each."""
    seconds = []
    for _ in range(iterations):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return seconds


class Server:
    """Answers requests to one runtime.

    Args:
        facts: `runtime`, a name of `runtimes`, and the facts that it opens.
        runtimes: runtimes that may be requested.
    """

    def __init__(self, facts: Mapping[str, Any], runtimes: Mapping[str, Opener] = RUNTIMES) -> None:
        self._facts, self._runtimes = facts, runtimes
        self._runtime: Runtime | None = None

    def answer(self, request: dict[str, Any], blob: bytes) -> Message:
        """Answers one request; the first one opens the runtime."""
        if self._runtime is None:
            self._runtime = self._runtimes[self._facts["runtime"]](self._facts)
        runtime, what = self._runtime, request["what"]
        if what == "infer":
            arrays = unpack_arrays(request["arrays"], blob)
            outputs = runtime.infer(dict(zip(request["names"], arrays, strict=True)))
            described, data = pack_arrays([np.asarray(array) for array in outputs.values()])
            return {"names": list(outputs), "arrays": described}, data
        if what == "time":
            return {"seconds": [float(seconds) for seconds in runtime.time(request["count"])]}, b""
        if what == "median":  # a small network has thousands of times: only their median is sent
            warm, count = request["warm"], request["count"]
            return {"seconds": float(np.median(runtime.time(warm + count)[warm:]))}, b""
        if what == "memory":
            pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1])
            return {"bytes": pages * os.sysconf("SC_PAGE_SIZE")}, b""
        return {"precision": runtime.precision}, b""


def main(runtimes: Mapping[str, Opener] = RUNTIMES) -> None:
    """Serves a runtime until the parent hangs up.

    Args:
        runtimes: runtimes that may be requested.
    """
    options, channel = open_parent()

    answer_requests(channel, Server(options, runtimes).answer, (Exception,))  # the parent raises it as a RuntimeFailure

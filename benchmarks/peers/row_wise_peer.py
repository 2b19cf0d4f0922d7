"""Peers PyTorch, ONNX Runtime and OpenVINO of row-wise operators, by their kind.

Options: `runtime`, a key of `RUNTIMES`, and `kind`, a key of `benchmarks.row_kinds.KINDS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.compiler.checking.runtimes import OPENVINO_FLOATS
from benchmarks.peers.base import Array, Peer, PeerError, serve
from benchmarks.peers.calls import seconds_above
from benchmarks.row_kinds import EPSILON
from search_space.workloads import Workload

ONNX: dict[str, tuple[str, dict[str, Any]]] = {
    "softmax": ("Softmax", {"axis": -1}),
    "log_softmax": ("LogSoftmax", {"axis": -1}),
    "layer_norm": ("LayerNormalization", {"axis": -1, "epsilon": EPSILON}),
    # Of ONNX Runtime's own; RMSNormalization came with operator set 23.
    "rms_norm": ("SimplifiedLayerNormalization", {"axis": -1, "epsilon": EPSILON}),
    "sum": ("ReduceSum", {"keepdims": 0}),
    "mean": ("ReduceMean", {"keepdims": 0}),
    "max": ("ReduceMax", {"keepdims": 0}),
}
"""Kind -> the node of ONNX, and its attributes."""
REDUCTIONS = ("sum", "mean", "max")


@dataclass(frozen=True)
class PreparedCall:
    """Calls of a runtime that are timed.

    Attributes:
        call: one execution.
        empty: execution of an empty network, whose time is subtracted.
        output: returns the output of the last call, or of another one.
    """

    call: Callable[[], object]
    empty: Callable[[], object]
    output: Callable[[], Array]


def of_torch(kind: str, workload: Workload, arrays: Sequence[Array], threads: int) -> PreparedCall:
    """Prepares eager PyTorch in inference mode."""
    import torch
    from torch.nn import functional

    torch.set_num_threads(threads)
    torch.inference_mode(True).__enter__()
    x, *others = map(torch.from_numpy, arrays)
    shape, one = x.shape[-1:], torch.ones(1)
    calls: dict[str, Callable[[], torch.Tensor]] = {
        "softmax": lambda: torch.softmax(x, -1),
        "log_softmax": lambda: torch.log_softmax(x, -1),
        "layer_norm": lambda: functional.layer_norm(x, shape, *others, EPSILON),
        "rms_norm": lambda: functional.rms_norm(x, shape, *others, EPSILON),
        "sum": lambda: x.sum(-1),
        "mean": lambda: x.mean(-1),
        "max": lambda: x.amax(-1),
    }
    call = calls[kind]
    return PreparedCall(call, lambda: torch.relu(one), lambda: call().numpy())


@cache
def _share(threads: int) -> None:
    """Sets up what all sessions of a process share, before the first one: it can be made only once."""
    from autotune.graph import ort_runner

    ort_runner.set_up(threads)


def of_onnxruntime(kind: str, workload: Workload, arrays: Sequence[Array], threads: int) -> PreparedCall:
    """Prepares ONNX Runtime, with bound inputs and outputs."""
    from autotune.graph import ort_runner
    from autotune.graph.single_op import SingleOp

    _share(threads)
    runners = []
    for name, given in ((kind, arrays), ("", [np.ones(1, np.float32)])):
        shape = workload.output.shape if name else (1,)
        op = SingleOp(build_model(name, given, shape), {"x": given[0]}, shape, lambda y: y)
        runners.append(ort_runner.OrtRunner([op], threads))
    return PreparedCall(runners[0].run, runners[1].run, runners[0].output)


def of_openvino(kind: str, workload: Workload, arrays: Sequence[Array], threads: int) -> PreparedCall:
    """Prepares OpenVINO for latency, in float32."""
    import openvino

    core, requests = openvino.Core(), []
    settings = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": threads, **OPENVINO_FLOATS}
    for name, given in ((kind, arrays), ("", [np.ones(1, np.float32)])):
        model = core.read_model(build_model(name, given, workload.output.shape if name else (1,)))
        request = core.compile_model(model, "CPU", settings).create_infer_request()
        request.set_input_tensor(openvino.Tensor(given[0]))  # a copy: a request does not keep what it shares alive
        requests.append(request)
    return PreparedCall(requests[0].infer, requests[1].infer, lambda: np.array(requests[0].get_output_tensor().data))


RUNTIMES = {"torch": of_torch, "onnxruntime": of_onnxruntime, "openvino": of_openvino}


def build_model(kind: str, arrays: Sequence[Array], shape: Sequence[int]) -> bytes:
    """Builds the ONNX model of a kind, from x to y of `shape`; an empty kind is a rectifier."""
    from onnx import TensorProto, helper, numpy_helper

    name, attributes = ONNX[kind] if kind else ("Relu", {})
    fixed = [np.array([1], np.int64)] if kind in REDUCTIONS else list(arrays[1:])
    initialisers = [numpy_helper.from_array(array, f"w{place}") for place, array in enumerate(fixed)]
    node = helper.make_node(name, ["x", *(one.name for one in initialisers)], ["y"], **attributes)
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, arrays[0].shape)
    made = helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)
    graph = helper.make_graph([node], "rows", [given], [made], initialisers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    found: bytes = model.SerializeToString()
    return found


class RowWisePeer(Peer):
    """One of the runtimes; the cost of a call is subtracted."""

    name = "row_wise"

    def prepare(
        self, workload: Workload, arrays: Sequence[Array], threads: int, options: Mapping[str, Any]
    ) -> dict[str, Any]:
        runtime, kind = options["runtime"], options["kind"]
        try:
            self._call = RUNTIMES[runtime](kind, workload, arrays, threads)
            self._call.call()
        except RuntimeError as error:
            raise PeerError(f"`kind` must be one that {runtime} has, but got kind={kind!r}: {error}") from None
        rtol, atol = workload.tolerance
        np.testing.assert_allclose(self._call.output(), workload.reference(*arrays), rtol=10 * rtol, atol=10 * atol)
        return {"variant": kind}

    def time(self, samples: int) -> NDArray[np.float64]:
        return seconds_above(self._call.call, self._call.empty, samples)

    def output(self) -> Array:
        return self._call.output()


if __name__ == "__main__":
    serve(RowWisePeer())

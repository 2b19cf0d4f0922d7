"""Chains of products with weights of a few bits, by one of several runtimes; or a plain read of as many bytes.

An inference reads the weights of all products once, so that none of them is in a core's cache from the last one.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

import autotune
from autotune.compiler.checking.runtimes import OPENVINO_FLOATS
from autotune.config import Measure, Model, Search
from autotune.tuner.settings import Settings
from autotune.tuner.task import Task
from autotune.tuner.untimed import select_by_roofline
from benchmarks.peers.base import PeerError, answer_all
from benchmarks.peers.calls import measure_seconds
from measure.host import cores_for
from search_space import te
from search_space.space import make_program
from search_space.workloads import Workload
from targets import registry

IN_BYTES = 4
"""The `accuracy_level` that lets data be rounded to bytes."""
BLOCKS = 64
"""Parts of the memory that is plainly read, each by one thread."""


def chain(rows: int, depth: int, columns: int, bits: int, group: int, count: int, level: int = 0) -> onnx.ModelProto:
    """Builds a model of `count` products of random weights, (depth, columns) and (columns, depth) alternately."""
    rng, nodes, constants = np.random.default_rng(0), [], []
    for index in range(count):
        k, n = (depth, columns) if index % 2 == 0 else (columns, depth)
        groups = -(-k // group)
        # As many below zero as above it: a mean would grow from product to product until nothing is a number.
        numbers = rng.integers(1, 1 << bits, (n, groups, group), np.uint8)
        weight = numbers if bits == 8 else numbers[..., 0::2] + 16 * numbers[..., 1::2]
        # Of a size that leaves activations as large as they are.
        scale = rng.uniform(0.5, 1.5, (n, groups)) * 12**0.5 / (2**bits * k**0.5)
        constants += [
            numpy_helper.from_array(weight, f"w{index}"),
            numpy_helper.from_array(scale.astype(np.float32), f"s{index}"),
        ]
        names, out = [f"x{index}", f"w{index}", f"s{index}"], [f"x{index + 1}"]
        attrs = {"K": k, "N": n, "bits": bits, "block_size": group, "accuracy_level": level}
        nodes.append(helper.make_node("MatMulNBits", names, out, f"p{index}", domain="com.microsoft", **attrs))
    ends = (("x0", depth), (f"x{count}", columns if count % 2 else depth))
    x, y = (helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, (rows, width)) for name, width in ends)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph(nodes, "chain", [x], [y], constants)
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def by_autotune(model: onnx.ModelProto, x: np.ndarray, threads: int) -> tuple[Callable[[], Any], np.ndarray]:
    network = autotune.compile(model, threads=threads)
    return lambda: network(x), network(x)


def by_onnxruntime(model: onnx.ModelProto, x: np.ndarray, threads: int) -> tuple[Callable[[], Any], np.ndarray]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, {"x0": x}), session.run(None, {"x0": x})[0]


def by_openvino(model: onnx.ModelProto, x: np.ndarray, threads: int) -> tuple[Callable[[], Any], np.ndarray]:
    """Compiles the model by OpenVINO; its default rounds data to bytes, which is kept only if the model allows it."""
    import io

    import openvino

    settings = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY", **OPENVINO_FLOATS}
    levels = {item.i for node in model.graph.node for item in node.attribute if item.name == "accuracy_level"}
    if IN_BYTES in levels:
        del settings["DYNAMIC_QUANTIZATION_GROUP_SIZE"]
    try:
        core = openvino.Core()
        compiled = core.compile_model(core.read_model(io.BytesIO(model.SerializeToString())), "CPU", settings)
    except RuntimeError as error:
        raise PeerError(f"OpenVINO does not take the model: {str(error).splitlines()[0]}") from None
    request = compiled.create_infer_request()
    return lambda: request.infer([x], share_inputs=True), np.array(request.infer([x])[compiled.outputs[0]])


RUNTIMES = {"autotune": by_autotune, "onnxruntime": by_onnxruntime, "openvino": by_openvino}


def plain_read(nbytes: int, threads: int) -> Callable[[], Any]:
    """Makes a sum over `nbytes` bytes of floats, the least work of a kernel that needs all of them."""
    extent = max(1, nbytes // 4 // BLOCKS)
    memory = te.placeholder((BLOCKS, extent), name="memory", constant=True)
    r = te.reduce_axis((0, extent), "r")
    workload = Workload.of([memory, te.compute((BLOCKS,), lambda p: te.sum(memory[p, r], axis=r), name="sums")])
    target = registry.get("cpu")
    settings = Settings(target, 0, 0, Search(), Model(), Measure(cache="network", threads=threads))
    found = select_by_roofline(Task("read", workload), settings)
    kernel = target.load(target.build(make_program(workload, found.algorithm, found.trace)))
    bound = kernel.bind(workload.make_inputs(0))
    return lambda: bound.run(threads)


class _Peer:
    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Prepares, warms up, or times."""
        if request["op"] == "prepare":
            threads = request["threads"]
            os.sched_setaffinity(0, cores_for(threads))
            if request["runtime"] == "read":
                self.run = plain_read(request["nbytes"], threads)
                return {}
            model = chain(**request["chain"])
            x = np.random.default_rng(1).standard_normal((request["chain"]["rows"], request["chain"]["depth"]))
            self.run, output = RUNTIMES[request["runtime"]](model, x.astype(np.float32), threads)
            return {"output": output.reshape(-1)[:256].tolist()}
        if request["op"] == "warm":
            measure_seconds(self.run, 2, 0.0)
            return {}
        return {"seconds": measure_seconds(self.run, request["samples"], 0.0).tolist()}


if __name__ == "__main__":
    answer_all(_Peer().answer)

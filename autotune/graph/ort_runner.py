"""Runs and times single-layer models on ONNX Runtime; imported only in separate processes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray
from onnxruntime.capi import onnxruntime_pybind11_state as state

from autotune.graph.single_op import SingleOp, UnsupportedOperator, blocked_op, single_op, with_weights_drawn
from measure.bench import Timeable
from measure.timing import rotation_copies
from search_space.workloads import Workload

Array = NDArray[Any]
_LEVELS = {
    "all": ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
    "extended": ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
}
VARIANTS = ("all", "extended", "blocked")
"""Variants of a graph: fully optimised (to blocked channels and back), without layout changes, or blocked."""
MOST_SESSIONS = 256
"""Maximum number of sets of weights, each of which needs a session of its own."""
REFUSALS = (state.NotImplemented, state.InvalidGraph, state.InvalidArgument, state.Fail)


class OrtRunner(Timeable):
    """Interleaved sessions of one layer, all with the same activations.

    Args:
        ops: the layer, once for each set of weights to rotate through.
        threads: number of cores used within the layer.
        level: a key of `_LEVELS`.
    """

    def __init__(self, ops: Sequence[SingleOp], threads: int, level: str = "all") -> None:
        options = _options(threads, level)
        self._restore = ops[0].restore
        self._output = ort.OrtValue.ortvalue_from_numpy(np.zeros(ops[0].output_shape, np.float32))
        self._inputs = {name: ort.OrtValue.ortvalue_from_numpy(array) for name, array in ops[0].feeds.items()}
        self._runs = [self._bound(op, options) for op in ops]
        self._turn = 0

    def _bound(self, op: SingleOp, options: ort.SessionOptions) -> Callable[[], None]:
        session = ort.InferenceSession(op.model, options, providers=["CPUExecutionProvider"])
        binding = session.io_binding()
        for name, value in self._inputs.items():
            binding.bind_ortvalue_input(name, value)
        binding.bind_ortvalue_output("y", self._output)
        run = session.run_with_iobinding
        return lambda: run(binding)

    def run(self) -> None:
        """Runs the layer once, with the next set of weights."""
        self._runs[self._turn]()
        self._turn = (self._turn + 1) % len(self._runs)

    def time(self, iterations: int) -> NDArray[np.float64]:
        """Returns the wall seconds of each execution, `(iterations,)`, including the cost of a call."""
        seconds = np.empty(iterations)
        for index in range(iterations):
            start = time.perf_counter()
            self.run()
            seconds[index] = time.perf_counter() - start
        return seconds

    def warm_up(self, seconds: float = 0.03) -> None:
        """Runs every session once, and continues for `seconds`."""
        end = time.perf_counter() + seconds
        for _ in self._runs:
            self.run()
        while time.perf_counter() < end:
            self.run()

    def output(self) -> Array:
        """Returns the last output, in the workload's layout."""
        return self._restore(self._output.numpy())


def call_seconds(threads: int) -> float:
    """Measures the seconds of a call with an empty computation, which a layer inside a network does not pay."""
    from onnx import TensorProto, helper

    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (1,)) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "call", values[:1], values[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    op = SingleOp(model.SerializeToString(), {"x": np.ones(1, np.float32)}, (1,), lambda y: y)
    runner = OrtRunner([op], threads)
    runner.warm_up()
    return float(np.median(runner.time(500)))


def build(workload: Workload, arrays: Sequence[Array], variant: str) -> SingleOp:
    """Builds the workload's model for one of `VARIANTS`."""
    return blocked_op(workload, arrays, channel_block()) if variant == "blocked" else single_op(workload, arrays)


def make_runner(
    workload: Workload,
    arrays: Sequence[Array],
    threads: int,
    variant: str,
    rng: np.random.Generator,
    copies: int = 1,
) -> OrtRunner:
    """Builds a warm runner with `copies` sets of weights, the first of them from `arrays`."""
    ops = [build(workload, arrays, variant)]
    for _ in range(1, copies):
        ops.append(build(workload, with_weights_drawn(workload, arrays, rng), variant))
    runner = OrtRunner(ops, threads, "extended" if variant == "blocked" else variant)
    runner.warm_up()
    return runner


def candidates(
    workload: Workload, arrays: Sequence[Array], threads: int, rng: np.random.Generator
) -> dict[str, OrtRunner]:
    """Builds warm runners of all variants that ONNX Runtime supports for this workload; may be empty."""
    runners = {}
    for variant in VARIANTS:
        try:
            runners[variant] = make_runner(workload, arrays, threads, variant, rng)
        except (UnsupportedOperator, *REFUSALS):
            continue
    return runners


def copies_for(workload: Workload, cache_bytes: int, rotation_bytes: int) -> int:
    """Returns the number of weight sets to rotate, at most `MOST_SESSIONS`; small sets leave only the inner caches."""
    constant = sum(int(np.prod(spec.shape)) * 4 for spec in workload.inputs if spec.constant)
    return min(MOST_SESSIONS, rotation_copies(constant, cache_bytes, rotation_bytes))


def channel_block() -> int:
    """Returns the number of channels in a block of ONNX Runtime's blocked layout on this host."""
    try:
        return 16 if " avx512f" in Path("/proc/cpuinfo").read_text() else 8
    except OSError:
        return 8


def _options(threads: int, level: str) -> ort.SessionOptions:
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    options.graph_optimization_level = _LEVELS[level]
    options.log_severity_level = 4
    options.use_per_session_threads = False
    # A session's own arena would be cold on each run; inside a network all layers share one.
    options.add_session_config_entry("session.use_env_allocators", "1")
    return options


def set_up(threads: int) -> None:
    """Creates the thread pool and memory arena that all sessions of a process share; call once, before the sessions."""
    ort.set_global_thread_pool_sizes(threads, 1)
    ort.set_default_logger_severity(4)
    ort.create_and_register_allocator(
        ort.OrtMemoryInfo("Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT), None
    )

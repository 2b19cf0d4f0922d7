"""Modules on a device, which a fake stands for: arguments, packing, cold runs, poisoned outputs, failures."""

from __future__ import annotations

import time

import numpy as np
import pytest

from measure.interface import Task
from measure.output_check import OutputCheck, References
from search_space import workloads
from search_space.ir.expr import var
from search_space.ir.stmt import Allocate, LoopProgram, Store, seq
from search_space.space import generate, make_program
from targets.base import Module, RunError
from targets.cuda.device import DeviceLost
from targets.cuda.kernel import CudaKernel
from targets.cuda.stopwatch import LEAD_BYTES, LEAD_SECONDS, MOST_RUNS, WAKE_SECONDS, Stopwatch
from targets.cuda.target import CudaTarget
from tests.golden.cases import HARDWARE
from tests.gpu.candidates import legal
from tests.targets.cuda.fake_device import FakeDevice
from tests.targets.cuda.programs import at, buffer, inputs, loop, matmul_program

TARGET = CudaTarget()


def load_kernel(program: LoopProgram) -> tuple[CudaKernel, FakeDevice]:
    """A kernel on a device that has just been timed."""
    device = FakeDevice(TARGET.device_program(program))
    Stopwatch(device, lambda: None, 0, cold=True).time(1)
    device.queue.clear()
    device.live -= LEAD_BYTES
    module = Module.from_bytes(TARGET.build(program).to_bytes())
    return CudaKernel(module, device), device


def test_a_product() -> None:
    program = matmul_program(16, 17, 9)
    arrays = inputs(program)
    kernel, _ = load_kernel(program)
    out = np.zeros((16, 17), np.float32)
    kernel(arrays["a"], arrays["b"], out)
    np.testing.assert_allclose(out, np.maximum(arrays["a"] @ arrays["b"], 0), rtol=1e-5, atol=1e-5)


def test_constants_are_packed_on_the_device_by_the_prologue() -> None:
    """A schedule for CPUs: packed constants, loops without threads, which are dealt out to some."""
    workload = workloads.matmul(8, 24, 12)
    sketch = next(s for s in generate(workload, HARDWARE).sketches if s.program.prologues)
    (row,) = legal(sketch, 1)
    program = make_program(workload, sketch.algorithm, sketch.trace(row))
    assert program.prologues
    kernel, device = load_kernel(program)
    given = workload.make_inputs(0)
    out = np.zeros((8, 24), np.float32)
    kernel(*given, out)
    np.testing.assert_allclose(out, workload.reference(*given), rtol=1e-4, atol=1e-4)
    assert device.queue[0].startswith("kernel_pack0")


def test_kernels_share_memory_that_no_caller_sees() -> None:
    t, u = var("t"), var("u")
    first = loop("t", 64, "threadIdx.x", Store("z", (t,), at("x", t) + at("x", t)))
    second = loop("u", 64, "threadIdx.x", Store("y", (u,), at("z", 63 - u)))
    body = Allocate(buffer("z", 64), seq(first, second))
    kernel, device = load_kernel(LoopProgram("twice", (buffer("x", 64), buffer("y", 64)), body, ("y",)))
    x, y = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    kernel(x, y)
    np.testing.assert_array_equal(y, 2 * x[::-1])
    assert device.queue == ["kernel_0", "kernel_1"] and device.live == 3 * 256


def test_an_element_that_no_kernel_writes_keeps_what_the_host_has_there() -> None:
    t = var("t")
    body = loop("t", 32, "threadIdx.x", Store("y", (t,), at("x", t)))
    kernel, _ = load_kernel(LoopProgram("half", (buffer("x", 64), buffer("y", 64)), body, ("y",)))
    bound = kernel.bind([np.ones(64, np.float32)])
    output = bound.run()
    output[...] = 7
    assert bound.run() is output
    np.testing.assert_array_equal(output, np.repeat(np.float32([1, 7]), 32))


def test_warm_runs_follow_each_other_and_short_ones_are_grouped() -> None:
    program = matmul_program(4, 4, 4)
    kernel, device = load_kernel(program)
    bound = kernel.bind(list(inputs(program).values()))
    np.testing.assert_allclose(bound.time(3), 1e-6)
    alone, grouped = ["mark", "kernel_0", "mark"] * 3, ["mark", *["kernel_0"] * MOST_RUNS, "mark"] * 3
    queued = [name for name in device.queue if name != "fill"]
    assert queued == ["kernel_0", *alone, "kernel_0", *grouped]
    for lead in (device.queue.index("mark") - 2, len(device.queue) - len(grouped) - 2):
        assert device.queue[lead : lead + 3] == ["fill", "kernel_0", "mark"]
    device.queue.clear()
    np.testing.assert_allclose(bound.time(2), 1e-6)
    assert device.queue.count("kernel_0") == 1 + 2 * MOST_RUNS


def test_a_first_sample_is_no_longer_than_those_after_it() -> None:
    """Marks take longer than this kernel; a search ends a candidate's trial by its first sample."""

    class SlowMarks(FakeDevice):
        def record(self) -> float:
            self._clock += 4e-6
            return super().record()

    program = matmul_program(4, 4, 4)
    device = SlowMarks(TARGET.device_program(program))
    bound = CudaKernel(Module.from_bytes(TARGET.build(program).to_bytes()), device).bind(list(inputs(program).values()))
    (first,), (second,) = bound.time(1), bound.time(1)
    np.testing.assert_allclose(first, second, rtol=0.15)
    assert 1e-6 < first < 1.5e-6


def test_a_device_that_was_idle_is_kept_busy_first(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    program = matmul_program(4, 4, 4)
    device = FakeDevice(TARGET.device_program(program))  # which nobody has timed
    kernel = CudaKernel(Module.from_bytes(TARGET.build(program).to_bytes()), device)
    bound = kernel.bind(list(inputs(program).values()), copies=2)
    fills = []
    for idle in (0.0, 0.5, 2.0, 0.5):
        now[0] += idle
        device.queue.clear()
        bound.time(1)
        fills.append(device.queue.count("fill"))
    assert fills[1] == fills[3] == 1 and min(fills[0], fills[2]) * LEAD_SECONDS >= WAKE_SECONDS


def test_long_runs_are_timed_once() -> None:
    program = matmul_program(4, 4, 4)
    kernel, device = load_kernel(program)
    device.kernel_seconds = 1e-3
    bound = kernel.bind(list(inputs(program).values()))
    np.testing.assert_allclose(bound.time(2), 1e-3)
    assert device.queue.count("kernel_0") == 1 + 2


def test_cold_runs_find_the_cache_filled_with_something_else() -> None:
    program = matmul_program(4, 4, 4)
    kernel, device = load_kernel(program)
    bound = kernel.bind(list(inputs(program).values()), copies=2)
    np.testing.assert_allclose(bound.time(3), 1e-6)
    assert device.queue == ["fill", "mark", "kernel_0", "mark"] * 3
    assert bound.copies == 1


def test_metrics_are_those_of_the_largest_kernel_and_of_the_device() -> None:
    kernel, _ = load_kernel(matmul_program(4, 4, 4))
    metrics = kernel.bind(list(inputs(matmul_program(4, 4, 4)).values())).metrics()
    assert metrics["registers"] > 8 and metrics["spill_bytes"] == 0 and metrics["kernels"] == 1
    assert metrics["shared_bytes"] > 0 and metrics["sm_mhz"] == 1980


def test_a_kernel_that_fails_ends_what_the_process_can_do() -> None:
    program = matmul_program(4, 4, 4)
    kernel, device = load_kernel(program)
    bound = kernel.bind(list(inputs(program).values()))
    device.fails = True
    with pytest.raises(DeviceLost, match="illegal address") as caught:
        bound.run()
    assert caught.value.fatal


def test_wrong_arguments_are_refused() -> None:
    kernel, _ = load_kernel(matmul_program(4, 5, 4))
    a, b, out = (np.zeros(shape, np.float32) for shape in ((4, 4), (4, 5), (4, 5)))
    with pytest.raises(RunError, match="must be given its inputs and outputs"):
        kernel(a, b)
    with pytest.raises(RunError, match=r"input `b` must be float32 of shape \(4, 5\)"):
        kernel(a, a, out)
    with pytest.raises(RunError, match=r"output `out` must be float32 of shape \(4, 5\)"):
        kernel(a, b, a)
    with pytest.raises(RunError, match="must be given its 2 inputs"):
        kernel.bind([a])


class Lying(FakeDevice):
    """A device that idles from some launch on, or touches bytes behind the last array of each; new memory is zero."""

    def __init__(self, program: LoopProgram, idle_from: int = 1 << 30, behind: bool = False) -> None:
        super().__init__(TARGET.device_program(program))
        self.idle_from, self.behind, self.launches = idle_from, behind, 0

    def allocate(self, size: int) -> np.ndarray:
        found = super().allocate(size)
        found[...] = 0
        return found

    def launch(self, kernel, grid, block, dynamic_shared_bytes, arguments) -> None:  # type: ignore[no-untyped-def]
        self.launches += 1
        if self.launches < self.idle_from:
            super().launch(kernel, grid, block, dynamic_shared_bytes, arguments)
        if self.behind:
            arguments[-1][64 * 4] = 7


def examine(program: LoopProgram, device: FakeDevice) -> str:
    """Returns the error of a kernel that is to compute twice its input; "" if it is right."""
    module = Module.from_bytes(TARGET.build(program).to_bytes())
    x, others = np.random.default_rng(0).random((2, 64), np.float32)
    task = Task([x], 2 * x, 1e-6, 0.0, others=[others], others_expected=2 * others)
    bound = CudaKernel(module, device).bind([x], fenced=True)
    check = OutputCheck(bound, task, References(task), 1)
    before = check.before()
    if not before.ok:
        return before.message
    check.begin()
    bound.time(1)
    return check.after().message


def test_kernels_that_seem_right_are_found_out() -> None:
    t, u = var("t"), var("u")
    double = loop("t", 64, "threadIdx.x", Store("y", (t,), at("x", t) + at("x", t)))
    honest = LoopProgram("double", (buffer("x", 64), buffer("y", 64)), double, ("y",))
    relying = Store("y", (t,), at("x", t) + at("x", t) + at("z", t))
    leaving = loop("u", 64, "threadIdx.x", Store("z", (u,), at("x", u)))
    body = Allocate(buffer("z", 64), seq(loop("t", 64, "threadIdx.x", relying), leaving))
    zero = LoopProgram("zero", (buffer("x", 64), buffer("y", 64)), body, ("y",))
    assert examine(honest, Lying(honest)) == ""
    assert "after timing, `output` must match" in examine(honest, Lying(honest, idle_from=3))
    assert "it changed 1 bytes behind `y`" in examine(honest, Lying(honest, behind=True))
    assert "`output` must match the reference" in examine(zero, Lying(zero))

"""Errors of a driver and their classes: a lost device, one that has too little memory, memory that is freed."""

from __future__ import annotations

import gc
import weakref
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from measure import kernel_call
from measure.errors import ErrorClass, TrialFailure
from measure.executor import KernelExecutor
from measure.interface import Task
from measure.pool import Trial
from measure.wire import unpack
from measure.worker import Runner, _outcome
from targets import registry
from targets.base import Module
from targets.cuda.device import CudaDevice, DeviceLost, DeviceMemoryError
from targets.cuda.kernel import CudaKernel
from targets.cuda.stopwatch import LEAD_BYTES
from targets.cuda.target import CudaTarget
from tests.targets.cuda.fake_device import FakeDevice
from tests.targets.cuda.programs import inputs, matmul_program

TARGET = CudaTarget()


class FailingDriver:
    """Stands for a device of `cuda.core`, its stream, a buffer and a module, of which each call fails.

    Args:
        is_lost: whether waiting fails, too, as it does when a kernel failed before.
    """

    def __init__(self, lost: bool) -> None:
        self.is_lost = lost

    def fail(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("CUDA_ERROR: said the driver")

    allocate = fill = record = get_kernel = fail

    def sync(self) -> None:
        if self.is_lost:
            self.fail()


def failing(lost: bool) -> tuple[CudaDevice, FailingDriver]:
    device, driver = CudaDevice.__new__(CudaDevice), FailingDriver(lost)
    device.arch = "sm_90"
    parts = {"_device": driver, "_stream": driver, "_core": SimpleNamespace(), "_timing_options": None}
    for name, value in parts.items():
        setattr(device, name, value)
    return device, driver


def test_too_little_memory_is_no_lost_device() -> None:
    device, _ = failing(lost=False)
    with pytest.raises(DeviceMemoryError, match="must hold 1024 bytes more"):
        device.allocate(1024)


@pytest.mark.parametrize("call", ["allocate", "fill", "record", "kernel"])
def test_a_kernel_that_failed_is_told_by_whatever_comes_next(call: str) -> None:
    """The process would take the next trials otherwise, and fail all of them."""
    device, driver = failing(lost=True)
    calls: dict[str, Any] = {
        "allocate": lambda: device.allocate(16),
        "fill": lambda: device.fill(driver, 0),
        "record": device.record,
        "kernel": lambda: device.kernel(driver, "k", 0),
    }
    with pytest.raises(DeviceLost, match="said the driver"):
        calls[call]()


def test_memory_is_free_as_soon_as_nobody_uses_it() -> None:
    """Workers look for cycles rarely, and what a trial holds here is half a gigabyte."""
    program = matmul_program(4, 4, 4)
    device = FakeDevice(TARGET.device_program(program))
    kernel = CudaKernel(Module.from_bytes(TARGET.build(program).to_bytes()), device)
    gc.disable()
    try:
        bound = kernel.bind(list(inputs(program).values()))
        bound.time(1)
        memory = weakref.ref(bound.memory["a"])
        del bound
        assert memory() is None
    finally:
        gc.enable()


def test_what_is_filled_is_there_once_however_many_are_timed() -> None:
    program = matmul_program(4, 4, 4)
    device = FakeDevice(TARGET.device_program(program))
    kernel = CudaKernel(Module.from_bytes(TARGET.build(program).to_bytes()), device)
    bounds = [kernel.bind(list(inputs(program).values()), copies) for copies in (1, 2, 1)]
    arrays = device.live
    for bound in bounds:
        bound.time(1)
    assert device.live == arrays + LEAD_BYTES


def test_a_device_that_is_lost_in_a_call_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    class LostTarget:
        def load(self, module: Module) -> Any:
            raise DeviceLost("a kernel must run to its end")

    monkeypatch.setattr(registry, "get", lambda spec: LostTarget())
    monkeypatch.setattr(Module, "from_bytes", lambda data: None)
    call = {"target": "cuda", "module_bytes": 0, "iterations": 1, "threads": 1, "arrays": []}
    with pytest.raises(DeviceLost):
        kernel_call.handle(call, b"")


class _Full:
    """A target whose device has no memory left: when arrays are bound, or when they are timed."""

    def __init__(self, at: str) -> None:
        self.at = at

    def load(self, module: Module) -> _Full:
        return self

    def bind(self, arrays: Any, copies: int, fenced: bool) -> Any:
        if self.at == "bind":
            raise DeviceMemoryError("device memory must hold 7 bytes more")
        nothing = np.zeros(1)
        return SimpleNamespace(
            run=self.run, fetch=lambda: nothing, feed=lambda *given: None, deterministic=False, copies=1
        )

    def run(self, threads: int) -> Any:
        raise DeviceMemoryError("device memory must hold 7 bytes more")


@pytest.mark.parametrize("at", ["bind", "run"])
def test_a_full_device_is_a_class_of_its_own(at: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fresh process, whose memory is free again, takes the next trial after such an error."""
    monkeypatch.setattr(registry, "get", lambda spec: _Full(at))
    monkeypatch.setattr(Module, "from_bytes", lambda data: None)
    executor = KernelExecutor()
    trial = Trial({}, "direct", (), workload_key="w", trace_key="t", target="cuda")
    task = Task((np.zeros(1, np.float32),), np.zeros(1, np.float32), 1e-4, 1e-4, 0, 0)
    if at == "bind":
        with pytest.raises(TrialFailure) as failure:
            executor.bind(trial, b"", task, 1)
        assert failure.value.error is ErrorClass.out_of_memory
    monkeypatch.setattr(executor, "prepare", lambda *given: task)
    request = {"trial": trial.to_json(), "timing": {}}
    header, _ = unpack(_outcome(Runner(executor, 1 << 20), request, b"", lambda: None))
    assert (header["error"], header["message"][:13]) == (ErrorClass.out_of_memory, "device memory")

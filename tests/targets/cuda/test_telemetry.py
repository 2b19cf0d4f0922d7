"""Figures of NVIDIA's management library, which a fake stands for."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from measure.host import describe_host
from targets.cuda import telemetry as module
from targets.cuda.telemetry import gpu_name, telemetry


class FakeLibrary:
    """A GPU at 1980 MHz and 41 degrees that does not tell its power, slowed down by heat."""

    def __init__(self, present: bool = True) -> None:
        self.present = present
        self.index = -1

    def nvmlDeviceGetHandleByIndex_v2(self, number: int, handle: Any) -> int:
        self.index = number
        return 0 if self.present else 6

    def nvmlDeviceGetHandleByPciBusId_v2(self, bus: bytes, handle: Any) -> int:
        return 0 if self.present and bus == b"0000:3B:00.0" else 6

    def nvmlDeviceGetHandleByUUID(self, uuid: bytes, handle: Any) -> int:
        return 0 if self.present and uuid == b"GPU-1" else 6

    def nvmlDeviceGetName(self, handle: Any, name: Any, size: int) -> int:
        name.value = b"NVIDIA H200"
        return 0

    def nvmlDeviceGetClockInfo(self, handle: Any, kind: int, value: Any) -> int:
        ctypes.cast(value, ctypes.POINTER(ctypes.c_uint))[0] = {1: 1980, 2: 3201}[kind]
        return 0

    def nvmlDeviceGetTemperature(self, handle: Any, sensor: int, value: Any) -> int:
        ctypes.cast(value, ctypes.POINTER(ctypes.c_uint))[0] = 41
        return 0

    def nvmlDeviceGetPowerUsage(self, handle: Any, value: Any) -> int:
        return 3

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: Any, value: Any) -> int:
        ctypes.cast(value, ctypes.POINTER(ctypes.c_ulonglong))[0] = 0x40
        return 0


def test_what_the_driver_tells_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_library", FakeLibrary)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert telemetry("0000:3B:00.0") == {"sm_mhz": 1980, "memory_mhz": 3201, "celsius": 41, "slowed": 1}
    assert gpu_name() == "NVIDIA H200" and describe_host()["gpu"] == "NVIDIA H200"


def test_without_a_gpu_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    for library in (lambda: None, lambda: FakeLibrary(present=False)):
        monkeypatch.setattr(module, "_library", library)
        assert telemetry("0000:3B:00.0") == {} and gpu_name() == "" and "gpu" not in describe_host()


def test_the_gpu_is_the_first_that_cuda_may_see(monkeypatch: pytest.MonkeyPatch) -> None:
    library = FakeLibrary()
    monkeypatch.setattr(module, "_library", lambda: library)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,1")
    assert gpu_name() == "NVIDIA H200" and library.index == 3
    for visible, name in (("GPU-1", "NVIDIA H200"), ("GPU-2", ""), ("", ""), ("-1", "")):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        assert gpu_name() == name, visible


def test_a_figure_that_the_library_does_not_know_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_library", FakeLibrary)
    monkeypatch.delattr(FakeLibrary, "nvmlDeviceGetCurrentClocksThrottleReasons")
    monkeypatch.delattr(FakeLibrary, "nvmlDeviceGetTemperature")
    assert telemetry("0000:3B:00.0") == {"sm_mhz": 1980, "memory_mhz": 3201}

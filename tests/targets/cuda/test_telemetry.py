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

    def __init__(self, found: bool = True) -> None:
        self.found = found

    def nvmlDeviceGetHandleByIndex_v2(self, number: int, handle: Any) -> int:
        return 0 if self.found else 6

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
    assert telemetry(0) == {"sm_mhz": 1980, "memory_mhz": 3201, "celsius": 41, "slowed": 1}
    assert gpu_name() == "NVIDIA H200" and describe_host()["gpu"] == "NVIDIA H200"


def test_without_a_gpu_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    for library in (lambda: None, lambda: FakeLibrary(found=False)):
        monkeypatch.setattr(module, "_library", library)
        assert telemetry(0) == {} and gpu_name() == "" and "gpu" not in describe_host()

"""What NVIDIA's management library says of a GPU: how fast it runs, how warm it is, why it is slowed down."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

_LIBRARY = "libnvidia-ml.so.1"
_SM_CLOCK, _MEMORY_CLOCK = 1, 2
_SLOWED = 0x8 | 0x20 | 0x40 | 0x80  # hardware, software thermal, hardware thermal, power brake


@cache
def _library() -> Any:
    """None where it is not there: a record then has no such figures."""
    try:
        library = ctypes.CDLL(_LIBRARY)
    except OSError:
        return None
    return library if library.nvmlInit_v2() == 0 else None


def gpu_name(number: int = 0) -> str:
    """Of a GPU of this machine; empty where there is none."""
    library = _library()
    handle, name = ctypes.c_void_p(), ctypes.create_string_buffer(96)
    if library is None or library.nvmlDeviceGetHandleByIndex_v2(number, ctypes.byref(handle)):
        return ""
    return "" if library.nvmlDeviceGetName(handle, name, len(name)) else name.value.decode()


def telemetry(number: int) -> dict[str, float]:
    """Of a GPU: `sm_mhz`, `memory_mhz`, `celsius`, `watts`, and `slowed`, 1 where heat or power hold it back."""
    library = _library()
    if library is None:
        return {}
    handle = ctypes.c_void_p()
    if library.nvmlDeviceGetHandleByIndex_v2(number, ctypes.byref(handle)):
        return {}
    found: dict[str, float] = {}

    def ask(name: str, function: str, *arguments: int, scale: float = 1.0) -> None:
        value = ctypes.c_uint(0)
        if getattr(library, function)(handle, *arguments, ctypes.byref(value)) == 0:
            found[name] = value.value * scale

    ask("sm_mhz", "nvmlDeviceGetClockInfo", _SM_CLOCK)
    ask("memory_mhz", "nvmlDeviceGetClockInfo", _MEMORY_CLOCK)
    ask("celsius", "nvmlDeviceGetTemperature", 0)
    ask("watts", "nvmlDeviceGetPowerUsage", scale=1e-3)
    reasons = ctypes.c_ulonglong(0)
    if library.nvmlDeviceGetCurrentClocksThrottleReasons(handle, ctypes.byref(reasons)) == 0:
        found["slowed"] = float(bool(reasons.value & _SLOWED))
    return found

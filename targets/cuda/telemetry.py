"""State of a GPU by NVIDIA's management library: clocks, temperature, and reasons of slowing down."""

from __future__ import annotations

import ctypes
import os
from functools import cache
from typing import Any

_LIBRARY = "libnvidia-ml.so.1"
_SM_CLOCK, _MEMORY_CLOCK = 1, 2  # of nvmlClockType_t
_SLOWDOWN_REASONS = 0x8 | 0x20 | 0x40 | 0x80  # hardware, software thermal, hardware thermal, power brake


@cache
def _library() -> Any:
    """Loads the library; None if it is missing: a record then has no such figures."""
    try:
        library = ctypes.CDLL(_LIBRARY)
    except OSError:
        return None
    return library if library.nvmlInit_v2() == 0 else None


def _handle(name: str) -> ctypes.c_void_p | None:
    """Returns the handle of a GPU by its PCI bus id, its UUID or its number on this machine; None if unknown."""
    library, handle = _library(), ctypes.c_void_p()
    if library is None:
        return None
    if name.isdecimal():
        status = library.nvmlDeviceGetHandleByIndex_v2(int(name), ctypes.byref(handle))
    elif name.startswith("GPU-"):
        status = library.nvmlDeviceGetHandleByUUID(name.encode(), ctypes.byref(handle))
    else:
        status = library.nvmlDeviceGetHandleByPciBusId_v2(name.encode(), ctypes.byref(handle))
    return None if status else handle


def gpu_name() -> str:
    """Returns the name of the first GPU of this machine that CUDA may see; empty if there is no such GPU."""
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "0").partition(",")[0].strip()
    handle, name = _handle(first) if first else None, ctypes.create_string_buffer(96)
    if handle is None:
        return ""
    return "" if _library().nvmlDeviceGetName(handle, name, len(name)) else name.value.decode()


def telemetry(bus: str) -> dict[str, float]:
    """Reads `sm_mhz`, `memory_mhz`, `celsius`, `watts`, and `slowed`, 1 if heat or power slow the GPU down.

    Args:
        bus: its PCI bus id, by which CUDA and the library mean the same GPU; their numbers differ where CUDA may see
            some only.
    """
    handle = _handle(bus)
    if handle is None:
        return {}

    def ask(
        function: str, *arguments: int, kind: type[ctypes.c_uint | ctypes.c_ulonglong] = ctypes.c_uint
    ) -> int | None:
        """Asks the library for a number; None if this GPU, or this version of the library, does not tell."""
        value, call = kind(0), getattr(library, function, None)
        return value.value if call is not None and call(handle, *arguments, ctypes.byref(value)) == 0 else None

    library = _library()
    readings = {
        "sm_mhz": ask("nvmlDeviceGetClockInfo", _SM_CLOCK),
        "memory_mhz": ask("nvmlDeviceGetClockInfo", _MEMORY_CLOCK),
        "celsius": ask("nvmlDeviceGetTemperature", 0),
    }
    figures = {name: float(value) for name, value in readings.items() if value is not None}
    if (milliwatts := ask("nvmlDeviceGetPowerUsage")) is not None:
        figures["watts"] = milliwatts * 1e-3
    if (reasons := ask("nvmlDeviceGetCurrentClocksThrottleReasons", kind=ctypes.c_ulonglong)) is not None:
        figures["slowed"] = float(bool(reasons & _SLOWDOWN_REASONS))
    return figures

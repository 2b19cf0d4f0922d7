"""What is missing on this machine for kernels to be built or run, asked without loading more than the driver itself."""

from __future__ import annotations

import ctypes
from functools import cache

_LIBRARY = "libcuda.so.1"


def missing_packages(error: ImportError) -> str:
    """The sentence for packages that are not installed."""
    return f"target cuda must have the packages of the extra `gpu` (pip install 'autotune-tensor[gpu]'), but {error}"


@cache
def missing_device() -> str:
    """Why no kernel can be run here, as a sentence; empty where there is a GPU."""
    rule = "target cuda must run on a machine with an NVIDIA GPU"
    try:
        driver = ctypes.CDLL(_LIBRARY)
    except OSError:
        return (
            f"{rule}, but this one has no driver ({_LIBRARY}); `autotune lower` prints and compiles kernels without one"
        )
    count = ctypes.c_int(0)
    status = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
    if status:
        return f"{rule}, but its driver says error {status}"
    return "" if count.value else f"{rule}, but its driver finds none"

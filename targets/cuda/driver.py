"""The driver: reasons why kernels cannot be built or run here, and GPUs, without any other library."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cache

from search_space.extras import sentence

_LIBRARY = "libcuda.so.1"
CUDA = 13
"""Major version of NVRTC and the bindings; drivers of this version or a later one run their code."""


def missing_packages(error: ImportError) -> str:
    """Returns the sentence for packages that are not installed."""
    return sentence("target cuda", "gpu", error)


def library() -> ctypes.CDLL:
    """Loads the driver.

    Raises:
        OSError: the machine has no driver.
    """
    return ctypes.CDLL(_LIBRARY)


@cache
def missing_device() -> str:
    """Explains in a sentence why no kernel can be run here; empty if there is a GPU."""
    rule = "target cuda must run on a machine with an NVIDIA GPU"
    try:
        driver = library()
    except OSError:
        return (
            f"{rule}, but this one has no driver ({_LIBRARY}); `autotune lower` prints and compiles kernels without one"
        )
    count, version = ctypes.c_int(0), ctypes.c_int(0)
    status = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
    status = status or driver.cuDriverGetVersion(ctypes.byref(version))
    if status:
        return f"{rule}, but its driver says error {status}"
    if version.value < 1000 * CUDA:
        theirs = f"{version.value // 1000}.{version.value % 1000 // 10}"
        return (
            f"target cuda must run with a driver of CUDA {CUDA} (580 or newer), but this machine's is of CUDA {theirs}"
        )
    return "" if count.value else f"{rule}, but its driver finds none"


def driver_version() -> str:
    """Returns the version of CUDA that the driver, which exists (`missing_device`), is made for, such as 13.0."""
    version = ctypes.c_int(0)
    _check(library().cuDriverGetVersion(ctypes.byref(version)))
    return f"{version.value // 1000}.{version.value % 1000 // 10}"


@dataclass(frozen=True)
class Device:
    """A GPU of this machine.

    Attributes:
        target: key of its architecture in `targets.registry`.
        name: the maker's.
        memory_bytes: bytes of its own memory.
    """

    target: str
    name: str
    memory_bytes: int


def devices() -> list[Device]:
    """Lists the GPUs of this machine, which has some (`missing_device`), in the driver's order."""
    driver, count = library(), ctypes.c_int(0)
    _check(driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)))
    return [_device(driver, number) for number in range(count.value)]


def _device(driver: ctypes.CDLL, number: int) -> Device:
    device, name, memory = ctypes.c_int(0), ctypes.create_string_buffer(256), ctypes.c_size_t(0)
    _check(driver.cuDeviceGet(ctypes.byref(device), number))
    _check(driver.cuDeviceGetName(name, len(name), device))
    _check(driver.cuDeviceTotalMem_v2(ctypes.byref(memory), device))
    return Device(f"cuda:{_read_architecture(driver, device)}", name.value.decode(errors="replace"), memory.value)


def _read_architecture(driver: ctypes.CDLL, device: ctypes.c_int) -> str:
    numbers = [ctypes.c_int(0), ctypes.c_int(0)]
    for number, attribute in zip(numbers, (_MAJOR, _MINOR), strict=True):
        _check(driver.cuDeviceGetAttribute(ctypes.byref(number), attribute, device))
    return f"sm_{numbers[0].value}{numbers[1].value}"


def _check(status: int) -> None:
    if status:
        from targets.base import RunError  # what else is here must say what is missing where no package is installed

        raise RunError(f"the driver must tell what a GPU is, but it says error {status}")


_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*


@cache
def device_arch() -> str:
    """Returns the architecture of the first GPU of this machine, which has one (`missing_device`), such as sm_90."""
    driver, device = library(), ctypes.c_int(0)
    _check(driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(device), 0))
    return _read_architecture(driver, device)


def runs_on(code_arch: str, arch: str) -> bool:
    """Tells whether machine code for `code_arch` runs on a GPU of `arch`: of the same major version, and not an older
    one.

    Code for an architecture with a suffix, such as sm_90a, runs on that one alone.
    """
    (major, minor, suffix), (theirs, newest, _) = (_version(name) for name in (code_arch, arch))
    return major == theirs and (minor == newest if suffix else minor <= newest)


def _version(arch: str) -> tuple[int, int, str]:
    digits = arch.removeprefix("sm_").rstrip("abcdefghijklmnopqrstuvwxyz")
    return int(digits[:-1]), int(digits[-1]), arch.removeprefix("sm_")[len(digits) :]

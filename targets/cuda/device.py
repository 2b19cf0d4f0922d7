"""The GPU of this machine, through `cuda.core`: memory, modules, launches, events. As small as kernels need it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Protocol

from numpy.typing import NDArray

from targets.base import RunError
from targets.cuda.driver import library, missing_device, missing_packages
from targets.cuda.packed import Arguments, Map, encode
from targets.cuda.telemetry import telemetry

_HARMLESS = (
    *("CUDA_ERROR_INVALID_VALUE", "CUDA_ERROR_INVALID_HANDLE", "CUDA_ERROR_NOT_FOUND", "CUDA_ERROR_NOT_SUPPORTED"),
    *("CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "CUDA_ERROR_INVALID_IMAGE", "CUDA_ERROR_NO_BINARY_FOR_GPU"),
    "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE",
)
"""Errors for a call that the driver refuses; the device works on."""
_BUS_BYTES = 16
"""Bytes of a PCI bus id, the zero at its end included."""


class DeviceLost(RunError):
    """The device refuses all further work of this process: an address out of bounds, a fault, a reset."""

    fatal = True


class DeviceMemoryError(RunError, MemoryError):
    """The device's memory does not suffice; it works on."""


class Device(Protocol):
    """The operations of a GPU that kernels need. Work is queued in order; `sync` waits for it.

    Attributes:
        arch: such as sm_90.
        l2_bytes: bytes of its second-level cache.
    """

    arch: str
    l2_bytes: int

    def use(self) -> None:
        """Makes it the device of the calling thread, which need not be the one that made this object."""

    def allocate(self, size: int) -> Any:
        """Allocates memory of so many bytes, freed with the object that is returned.

        Raises:
            DeviceMemoryError: the device has too little memory.
        """

    def part(self, memory: Any, start: int) -> Any:
        """Returns memory from its byte `start` on, as an argument of launches; `memory` must outlive it."""

    def upload(self, memory: Any, array: NDArray[Any]) -> None:
        """Copies a contiguous array to the device."""

    def download(self, memory: Any, array: NDArray[Any]) -> None:
        """Copies memory to a contiguous array, after all work before."""

    def fill(self, memory: Any, value: int) -> None:
        """Sets every byte."""

    def load(self, cubin: bytes) -> Any:
        """Loads a module.

        Raises:
            RunError: the device does not take it.
        """

    def kernel(self, module: Any, name: str, dynamic_shared_bytes: int) -> Any:
        """Returns a kernel of a module, whose launches may ask for so much shared memory."""

    def tensor_map(self, memory: Any, facts: Mapping[str, Any]) -> Any:
        """Encodes the tensor map of an array in `memory`, as an argument of launches.

        Args:
            facts: `dtype`, `shape`, `strides` (bytes, the last dimension's left out), `box` and `swizzle` (bytes).
        """

    def prepare_launch(
        self,
        kernel: Any,
        grid: Sequence[int],
        block: Sequence[int],
        dynamic_shared_bytes: int,
        arguments: Sequence[Any],
    ) -> Callable[[], None]:
        """Prepares a launch and returns a function that queues it.

        The function may be called any number of times; arguments are memory, then tensor maps.

        Raises (when it is called):
            RunError: the device refuses it, as it has too few registers or too little shared memory for a block.
            DeviceLost: a kernel before it failed.
        """

    def capture(self, start: Callable[[], None]) -> Callable[[], None]:
        """Records the launches of `start` and returns a function that queues them at once.

        The function may be called any number of times. Kernels and memory must outlive it.
        """

    def record(self) -> Any:
        """Puts a mark into the queue."""

    def seconds(self, first: Any, second: Any) -> float:
        """Returns the seconds between two marks that were passed."""

    def sync(self) -> None:
        """Waits until the queue is empty.

        Raises:
            DeviceLost: something in it failed.
        """

    def telemetry(self) -> dict[str, float]:
        """Reads clock, temperature, power and reasons of slowing down, as far as the driver reports them."""


def encode_maps(device: Device, maps: Sequence[Mapping[str, Any]], arguments: Sequence[Any]) -> list[Any]:
    """Encodes the tensor maps of a launch whose arrays are `arguments`."""
    return [device.tensor_map(arguments[facts["argument"]], facts) for facts in maps]


class CudaDevice:
    """A GPU through `cuda.core` and, for copies and attributes, the driver's binding.

    Raises:
        RunError: there is no GPU, or the packages are missing.
    """

    def __init__(self, number: int = 0) -> None:
        if why := missing_device():
            raise RunError(why)
        try:
            from cuda import core
            from cuda.bindings import driver
        except ImportError as error:
            raise RunError(missing_packages(error)) from error
        self._core, self._driver, self.number = core, driver, number
        self._device = core.Device(number)
        self._device.set_current()
        self._stream = self._device.create_stream()
        self._timing_options = core.EventOptions(timing_enabled=True)
        self.name = str(self._device.name)
        self.arch = f"sm_{self._device.arch}"
        # by which others mean the same GPU: numbers are those of the devices that this process may see
        self._bus = self._value(driver.cuDeviceGetPCIBusId(_BUS_BYTES, number)).partition(b"\0")[0].decode()
        self.l2_bytes = int(self._device.properties.l2_cache_size)

    @property
    def stream(self) -> int:
        """The driver's handle of the queue, for libraries that shall use it."""
        return int(self._stream.handle)

    def use(self) -> None:
        self._device.set_current()

    def allocate(self, size: int) -> Any:
        try:
            return self._device.allocate(max(size, 16), stream=self._stream)
        except Exception as error:
            self.sync()  # any call may be the first to tell that a kernel before it failed
            raise DeviceMemoryError(f"device memory must hold {size} bytes more, but {error}") from error

    def part(self, memory: Any, start: int) -> Any:
        return int(memory.handle) + start

    def upload(self, memory: Any, array: NDArray[Any]) -> None:
        _check_dense(array)
        address, source, stream = int(memory.handle), array.ctypes.data, self._stream.handle
        # in the stream: it does not wait for copies outside of it, which may go on when their call has returned
        self._check(self._driver.cuMemcpyHtoDAsync(address, source, array.nbytes, stream))
        self.sync()  # the array may be gone or changed from here on

    def download(self, memory: Any, array: NDArray[Any]) -> None:
        _check_dense(array)
        self.sync()
        self._check(self._driver.cuMemcpyDtoH(array.ctypes.data, int(memory.handle), array.nbytes))

    def fill(self, memory: Any, value: int) -> None:
        try:
            memory.fill(value, stream=self._stream)
        except Exception as error:
            raise DeviceLost(f"memory must be filled, but the driver says: {error}") from error

    def load(self, cubin: bytes) -> Any:
        return self._core.ObjectCode.from_cubin(cubin)

    def kernel(self, module: Any, name: str, dynamic_shared_bytes: int) -> Any:
        try:
            kernel = module.get_kernel(name)
        except Exception as error:
            self.sync()
            raise RunError(f"a module must be for {self.arch}, but the driver says: {error}") from error
        if dynamic_shared_bytes:
            attribute = self._driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            self._check(self._driver.cuKernelSetAttribute(attribute, dynamic_shared_bytes, kernel.handle, self.number))
        return kernel

    def tensor_map(self, memory: Any, facts: Mapping[str, Any]) -> Map:
        return encode(library(), _address(memory), facts)

    def prepare_launch(
        self,
        kernel: Any,
        grid: Sequence[int],
        block: Sequence[int],
        dynamic_shared_bytes: int,
        arguments: Sequence[Any],
    ) -> Callable[[], None]:
        packed = Arguments([a if isinstance(a, Map) else _address(a) for a in arguments])
        function, stream = self._driver.CUfunction(int(kernel.handle)), self._driver.CUstream(self.stream)
        given = (function, *grid, *block, dynamic_shared_bytes, stream, packed.address, 0)
        return _Launch(self, given, (kernel, packed, tuple(arguments)))

    def capture(self, start: Callable[[], None]) -> Callable[[], None]:
        self.sync()
        try:
            builder = self._stream.create_graph_builder().begin_building()  # from here on the stream records
            try:
                start()
                graph = builder.end_building().complete()
            finally:
                builder.close()
            graph.upload(self._stream)
        except RunError:
            raise
        except Exception as error:
            raise DeviceLost(f"launches must be recorded, but the driver says: {error}") from error

        def replay() -> None:
            try:
                graph.launch(self._stream)
            except Exception as error:
                raise DeviceLost(f"recorded launches must be accepted, but the driver says: {error}") from error

        return replay

    def record(self) -> Any:
        try:
            return self._stream.record(options=self._timing_options)
        except Exception as error:
            raise DeviceLost(f"a mark must be put in the queue, but the driver says: {error}") from error

    def seconds(self, first: Any, second: Any) -> float:
        return float(second - first) * 1e-3

    def sync(self) -> None:
        try:
            self._stream.sync()
        except Exception as error:
            raise DeviceLost(f"a kernel must run to its end, but the driver says: {error}") from error

    def telemetry(self) -> dict[str, float]:
        return telemetry(self._bus)

    def _value(self, answer: tuple[Any, ...]) -> Any:
        """Returns the value of a successful driver call."""
        self._check(answer)
        return answer[1]

    def queue(self, arguments: tuple[Any, ...]) -> None:
        """Queues a launch as `cuLaunchKernel` takes it."""
        self._check(self._driver.cuLaunchKernel(*arguments))

    def _check(self, answer: tuple[Any, ...]) -> None:
        """Raises RunError where the driver refused a call; DeviceLost where it tells that a kernel failed."""
        status = answer[0]
        if status != self._driver.CUresult.CUDA_SUCCESS:
            error = RunError if status.name in _HARMLESS else DeviceLost
            raise error(f"a call of the driver must succeed, but it says {status.name}")


class _Launch:
    """A launch of a kernel with arguments that were packed before.

    Args:
        arguments: arguments of `cuLaunchKernel`.
        keepalive: objects that must live as long.
    """

    def __init__(self, device: CudaDevice, arguments: tuple[Any, ...], keepalive: tuple[Any, ...]) -> None:
        self._device, self._arguments, self._keepalive = device, arguments, keepalive

    def __call__(self) -> None:
        self._device.queue(self._arguments)


def _address(memory: Any) -> int:
    """Returns the address of memory on the device, which is an allocation or a part of one."""
    return int(getattr(memory, "handle", memory))


@cache
def first_device() -> Device:
    """Returns the first GPU of this machine; one object for the whole process."""
    return CudaDevice()


__all__ = ["CudaDevice", "Device", "DeviceLost", "DeviceMemoryError", "encode_maps", "first_device"]


def _check_dense(array: NDArray[Any]) -> None:
    """Refuses an array that is not dense, as copies need it.

    Raises:
        ValueError: the array is not dense and row-major.
    """
    if not array.flags.c_contiguous:
        raise ValueError(f"an array must be dense and row-major to be copied, but got strides={array.strides}")

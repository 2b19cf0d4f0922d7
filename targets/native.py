"""Kernels as native functions of this process: bound arrays, fences for trials, and native timing loops.

Targets share this module if their kernels are `void kernel(void **arguments, int32_t threads, void *workspace)` here.
Behind the arrays follow the values of the open sizes, a word each.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from targets.arrays import allocate_aligned, contiguous
from targets.base import Bound, Kernel, Module, check_array, sizes_in
from targets.fences import FENCE_BYTE, Fences

KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p)
COLD_TIMER = ctypes.CFUNCTYPE(
    None,
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_int64,
    ctypes.c_int32,
    ctypes.c_void_p,
    ctypes.c_void_p,
)
TIMER = ctypes.CFUNCTYPE(
    None,
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_int64,
    ctypes.c_int64,
    ctypes.c_int32,
    ctypes.c_void_p,
    ctypes.c_void_p,
)


class NativeKernel(Kernel):
    """A module linked into this process.

    Args:
        module: the linked module.
        find: symbol of the module → address of its function: `module.name`, and `module.name` followed by `_pack0`,
            `_pack1`, ... for each of the program's prologues, which takes the prologue's parameters.
        threads: number of threads of a run that names none.
        timer: address of `void timer(kernel, void ***tables, int64_t count, int64_t iterations, int32_t threads,
            void *workspace, int64_t *nanoseconds)`. Run i takes the arguments `tables[i % count]`, and its time is
            written to `nanoseconds[i]`.
        cold_timer: address of a timer that takes constants to flush in place of a count; 0: copies of constants rotate
            to be cold.
    """

    def __init__(
        self, module: Module, find: Callable[[str], int], threads: int, timer: int, cold_timer: int = 0
    ) -> None:
        self.module, self.threads, self._find = module, threads, find
        self.address = find(module.name)
        self.run = KERNEL(self.address)
        self.timer = TIMER(timer)
        self.cold_timer = COLD_TIMER(cold_timer) if cold_timer else None

    def workspace_bytes(self, threads: int) -> int:
        """Returns bytes of 64-byte aligned memory that intermediate buffers of `threads` threads need."""
        facts = self.module.metadata
        return int(facts["shared_bytes"] + threads * facts["scratch_bytes"])

    def pack(self, index: int, sources: Sequence[NDArray[Any]], target: NDArray[Any]) -> None:
        """Fills the constant that prologue `index` makes of its sources."""
        table = _table([*sources, target])
        KERNEL(self._find(f"{self.module.name}_pack{index}"))(table.ctypes.data, 1, 0)

    def bind(self, inputs: Sequence[NDArray[Any]], copies: int = 1, fenced: bool = False) -> NativeBound:
        sizes = self.check(inputs)
        return NativeBound(self, inputs, copies, Fences() if fenced else None, sizes)


class NativePacker:
    """A packer of a module's constants; it loads the kernel when a prologue has to run.

    Args:
        module: module of the kernel.
        load: gives the kernel.
    """

    def __init__(self, module: Module, load: Callable[[], NativeKernel]) -> None:
        self._module, self._load = module, cache(load)

    def __call__(self, inputs: Sequence[NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Computes all constants of the kernel from all of its inputs, by parameter; unpacked ones are not copied.

        Raises:
            RunError: other inputs than the kernel takes.
        """
        module = self._module
        sizes = sizes_in(inputs, module.sources, module.sizes)
        for source, array in zip(module.sources, inputs, strict=True):
            check_array(array, source.at(sizes), "input")
        by_source = {source.name: array for source, array in zip(module.sources, inputs, strict=True)}
        constants = {p.name: by_source[p.name] for p in module.parameters if p.constant and not p.packed_from}
        for index, parameter in enumerate(p for p in module.parameters if p.packed_from):
            array = constants[parameter.name] = allocate_aligned(parameter.at(sizes).shape, parameter.dtype)
            self._load().pack(index, [contiguous(by_source[name]) for name in parameter.packed_from], array)
        return constants


def _table(arrays: Sequence[NDArray[Any]], sizes: Iterable[int] = ()) -> NDArray[np.uint64]:
    """Makes the table of a kernel's arguments: the addresses of its arrays, then the values of its open sizes."""
    return np.array([*(a.ctypes.data for a in arrays), *sizes], np.uint64)


class NativeBound(Bound):
    """Arrays in place. Activations are shared; constants are cold in every timed run where there are to be copies.

    On x86 the caches are flushed of them before each run; elsewhere they exist `copies` times and rotate.

    Args:
        fences: allocator of the arrays, the first set of constants included; None: arrays without fences.
        sizes: values of the module's open sizes for these inputs, in the module's order.

    Attributes:
        copies: sets of constants that rotate.
        outputs: written by every run.
        constants: constants in the kernel's layout, packed if it packs them, by name of the parameter.
    """

    def __init__(
        self,
        kernel: NativeKernel,
        inputs: Sequence[NDArray[Any]],
        copies: int,
        fences: Fences | None = None,
        sizes: Mapping[str, int] | None = None,
    ) -> None:
        self.kernel, self._fences = kernel, fences
        flushes = copies > 1 and kernel.cold_timer is not None
        self.copies = copies = 1 if flushes else copies
        module = kernel.module
        by_source = {p.name: a for p, a in zip(module.sources, inputs, strict=True)}
        order = [p.name for p in module.parameters if p.packed_from]
        parameters = [p.at(sizes or {}) for p in module.parameters]
        by_name = {p.name: p for p in parameters}
        self.constants: dict[str, NDArray[Any]] = {}
        self.outputs = [self._array(n, by_name[n].shape, by_name[n].dtype) for n in module.outputs]
        outputs = dict(zip(module.outputs, self.outputs, strict=True))
        shared: dict[str, NDArray[Any]] = dict(outputs)
        self._tables: list[NDArray[np.uint64]] = []
        self._arrays: list[list[NDArray[Any]]] = []
        packed = self.constants  # as the kernel takes them, by parameter
        for parameter in parameters:
            if parameter.name in outputs:
                continue
            made = FENCE_BYTE if parameter.packed_from else 0
            array = self._array(parameter.name, parameter.shape, parameter.dtype, made)
            if parameter.packed_from:
                sources = [contiguous(by_source[name]) for name in parameter.packed_from]
                kernel.pack(order.index(parameter.name), sources, array)
                packed[parameter.name] = array
            else:
                array[...] = by_source[parameter.name]
                (packed if parameter.constant else shared)[parameter.name] = array
        for copy in range(copies):
            mine = packed if copy == 0 else {name: _copy(a) for name, a in packed.items()}
            arrays = [{**shared, **mine}[p.name] for p in parameters]
            self._arrays.append(arrays)
            self._tables.append(_table(arrays, (sizes or {}).values()))
        self._pointers = np.array([t.ctypes.data for t in self._tables], np.uint64)
        places = [word for a in packed.values() for word in (a.ctypes.data, a.nbytes)]
        self._cold = np.array([len(packed), *places], np.int64) if flushes else None
        self._workspace: tuple[int, NDArray[np.uint8]] = (0, np.zeros(0, np.uint8))
        self._fill = FENCE_BYTE

    def _array(self, name: str, shape: Sequence[int], dtype: str, fill: int = 0) -> NDArray[Any]:
        """Allocates zeros, or, if fences are on, bytes that are `fill` between fences."""
        return allocate_aligned(shape, dtype) if self._fences is None else self._fences.array(name, shape, dtype, fill)

    def _space(self, threads: int) -> int:
        if self._workspace[0] < threads:
            size = self.kernel.workspace_bytes(threads)
            self._workspace = (threads, self._array("workspace", (max(64, size),), "uint8", self._fill))
        return int(self._workspace[1].ctypes.data)

    def feed(self, inputs: Sequence[NDArray[Any]], fill: int) -> None:
        module, arrays = self.kernel.module, self._arrays[0]
        given = {p.name: a for p, a in zip(module.sources, inputs, strict=True)}
        for parameter, array in zip(module.parameters, arrays, strict=True):
            if not (parameter.packed_from or parameter.constant or parameter.name in module.outputs):
                array[...] = given[parameter.name]
        self._fill = fill
        self._workspace[1][:] = fill

    def fetch(self) -> NDArray[Any]:
        return self.outputs[0]

    def damage(self) -> str:
        return "" if self._fences is None else self._fences.damage()

    def run(self, threads: int | None = None) -> NDArray[Any]:
        threads = threads or self.kernel.threads
        self.kernel.run(self._tables[0].ctypes.data, threads, self._space(threads))
        return self.outputs[0]

    def metrics(self) -> dict[str, float]:
        """Returns the share of spilling instructions, if any spill."""
        share = self.kernel.module.metadata.get("spilled", 0.0)
        return {"spilled": share} if share else {}

    def time(self, iterations: int, threads: int | None = None) -> NDArray[np.float64]:
        threads = threads or self.kernel.threads
        out = np.zeros(iterations, np.int64)
        if self._cold is not None and self.kernel.cold_timer is not None:
            table, cold, space = self._tables[0].ctypes.data, self._cold.ctypes.data, self._space(threads)
            self.kernel.cold_timer(self.kernel.address, table, cold, iterations, threads, space, out.ctypes.data)
            return np.multiply(out, 1e-9, dtype=np.float64)
        self.kernel.timer(
            self.kernel.address,
            self._pointers.ctypes.data,
            len(self._pointers),
            iterations,
            threads,
            self._space(threads),
            out.ctypes.data,
        )
        return np.multiply(out, 1e-9, dtype=np.float64)


def _copy(array: NDArray[Any]) -> NDArray[Any]:
    out = allocate_aligned(array.shape, str(array.dtype))
    out[...] = array
    return out

"""Loaded kernels: object code linked into this process, with the runtime that its kernels share."""

from __future__ import annotations

import ctypes
from functools import cache

import llvmlite.binding as llvm

from targets.base import Module
from targets.cpu.runtime import cold_timer_text, initialise, runtime_text
from targets.jit import LinkedObjects
from targets.native import NativeKernel

_PARALLEL_FOR = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32)


@cache
def _runtime() -> LinkedObjects:
    """The native side of this process: one pool of threads for all kernels, who find it by its symbol."""
    initialise()
    machine = llvm.Target.from_default_triple().create_target_machine(opt=2, reloc="pic", codemodel="default")
    cold = cold_timer_text()
    text = runtime_text(llvm.get_process_triple()) + (cold or "")
    symbols = ["autotune_parallel_for", "autotune_time", *(["autotune_time_cold"] if cold else [])]
    return LinkedObjects([machine.emit_object(llvm.parse_assembly(text))], symbols)


def parallel_for(body: int, context: int, extent: int, threads: int) -> None:
    """Runs the native function at `body` over [0, extent), as generated code does; see `targets.cpu.pool`."""
    function = _PARALLEL_FOR(_runtime().address("autotune_parallel_for"))
    function(body, context, extent, threads)


class CpuKernel(NativeKernel):
    """A module linked into this process."""

    def __init__(self, module: Module, cores: int) -> None:
        runtime = _runtime()
        packed = sum(bool(p.packed_from) for p in module.parameters)
        symbols = [module.name, *(f"{module.name}_pack{i}" for i in range(packed))]
        given = {"autotune_parallel_for": runtime.address("autotune_parallel_for")}
        self._linked = LinkedObjects([module.object_code], symbols, given)
        cold = runtime.address("autotune_time_cold") if cold_timer_text() is not None else 0
        super().__init__(module, self._linked.address, cores, runtime.address("autotune_time"), cold)

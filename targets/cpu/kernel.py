"""Loaded kernels: object code linked into this process, with the runtime that its kernels share."""

from __future__ import annotations

from functools import cache

import llvmlite.binding as llvm

from targets.base import Module
from targets.blas import blas_symbols
from targets.cpu.runtime import cold_timer_text, initialise, runtime_text
from targets.jit import LinkedObjects
from targets.native import NativeKernel


@cache
def runtime() -> LinkedObjects:
    """Loads the native runtime of this process: one pool of threads for all kernels, which find it by its symbol."""
    initialise()
    machine = llvm.Target.from_default_triple().create_target_machine(opt=2, reloc="pic", codemodel="default")
    cold = cold_timer_text()
    text = runtime_text(llvm.get_process_triple()) + (cold or "")
    symbols = ["autotune_parallel_for", "autotune_time", *(["autotune_time_cold"] if cold else [])]
    return LinkedObjects([machine.emit_object(llvm.parse_assembly(text))], symbols)


class CpuKernel(NativeKernel):
    """A module linked into this process."""

    def __init__(self, module: Module, cores: int) -> None:
        shared = runtime()
        packed = sum(bool(p.packed_from) for p in module.parameters)
        symbols = [module.name, *(f"{module.name}_pack{i}" for i in range(packed))]
        given = {**blas_symbols(), "autotune_parallel_for": shared.address("autotune_parallel_for")}
        self._linked_objects = LinkedObjects([module.object_code], symbols, given)
        cold = shared.address("autotune_time_cold") if cold_timer_text() is not None else 0
        super().__init__(module, self._linked_objects.address, cores, shared.address("autotune_time"), cold)

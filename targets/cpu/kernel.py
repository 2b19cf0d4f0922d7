"""Loaded kernels: object code linked into this process, with the runtime that its kernels share."""

from __future__ import annotations

import ctypes
from functools import cache

import llvmlite.binding as llvm

from targets.base import Module
from targets.cpu.runtime import cold_timer_text, initialise, runtime_text
from targets.jit import engine_of
from targets.native import NativeKernel

_PARALLEL_FOR = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32)


def _machine(opt: int = 1) -> llvm.TargetMachine:
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=opt, codemodel="default"
    )


@cache
def _runtime() -> llvm.ExecutionEngine:
    """The native side of this process: one pool of threads for all kernels, who find it by its symbol."""
    initialise()
    machine = llvm.Target.from_default_triple().create_target_machine(opt=2, reloc="pic", codemodel="default")
    engine = engine_of(llvm.parse_assembly(""), machine)
    text = runtime_text(llvm.get_process_triple()) + (cold_timer_text() or "")
    engine.add_object_file(llvm.ObjectFileRef.from_data(machine.emit_object(llvm.parse_assembly(text))))
    engine.finalize_object()
    llvm.add_symbol("autotune_parallel_for", engine.get_function_address("autotune_parallel_for"))
    return engine


def parallel_for(body: int, context: int, extent: int, threads: int) -> None:
    """Runs the native function at `body` over [0, extent), as generated code does; see `targets.cpu.pool`."""
    function = _PARALLEL_FOR(_runtime().get_function_address("autotune_parallel_for"))
    function(body, context, extent, threads)


class CpuKernel(NativeKernel):
    """A module linked into this process."""

    def __init__(self, module: Module, cores: int) -> None:
        runtime = _runtime()
        self._engine = engine_of(llvm.parse_assembly(""), _machine())
        self._object = llvm.ObjectFileRef.from_data(module.object_code)
        self._engine.add_object_file(self._object)
        self._engine.finalize_object()
        cold = runtime.get_function_address("autotune_time_cold") if cold_timer_text() is not None else 0
        find = self._engine.get_function_address
        super().__init__(module, find, cores, runtime.get_function_address("autotune_time"), cold)

"""LLVM's just-in-time engines, as all of this process's native code is loaded by them."""

from __future__ import annotations

from typing import Any

import llvmlite.binding as llvm


def engine_of(module: Any, machine: Any) -> Any:
    """An engine that loads a parsed module, and objects that are added to it.

    Sections of an object refer to each other by 32 bits. LLVM's own memory manager maps each where the system finds
    room, which in a process with many mappings may be further apart: then LLVM aborts the process. llvmlite's reserves
    room for all of them side by side.
    """
    return llvm.create_mcjit_compiler(module, machine, use_lmm=True)

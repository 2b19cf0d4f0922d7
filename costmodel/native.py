"""Compilation of LLVM text to callable functions, for the few inner loops over whole populations."""

from __future__ import annotations

import ctypes
from typing import Any

import llvmlite.binding as llvm

from targets.jit import LinkedObjects

_LINKED_OBJECTS: list[LinkedObjects] = []  # code lives as long as the process


def compile_function(text: str, name: str, *arguments: Any) -> Any:
    """Compiles an LLVM module and returns its function `name`, which returns nothing.

    Args:
        text: text of the module.
        arguments: ctypes of its parameters.
    """
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    module = llvm.parse_assembly(text)
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=2, reloc="pic"
    )
    linked = LinkedObjects([machine.emit_object(module)], [name])
    _LINKED_OBJECTS.append(linked)
    return ctypes.CFUNCTYPE(None, *arguments)(linked.address(name))


ATTRIBUTES = 'nounwind "prefer-vector-width"="512" "min-legal-vector-width"="512"'
"""Attributes of functions whose vectors may fill 512-bit registers; narrower machines split them."""

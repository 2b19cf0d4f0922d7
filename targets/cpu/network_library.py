"""A linked network in this process. Nothing of the compiler is imported where there is a shared object."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path

SCHEMA = "autotune.network/1"
"""Of the manifest of a linked network."""
_LINKED: list[object] = []


class NetworkLibrary:
    """The functions of a linked network, from its shared object, or from its objects where nothing could link them.

    Args:
        folder: that `link` wrote to.
        name: of the network.
        files: that `link` said it wrote.
    """

    def __init__(self, folder: Path, name: str, files: Sequence[str]) -> None:
        call = [ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p]
        time = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int32]
        kinds = {name: call, f"{name}_profile": [*call, ctypes.c_void_p]}
        kinds["autotune_time"] = [*time, ctypes.c_void_p, ctypes.c_void_p]
        if f"{name}.so" in files:
            library = ctypes.CDLL(str((folder / f"{name}.so").resolve()))
            addresses = {symbol: _address(library, symbol) for symbol in kinds}
        else:
            addresses = self._linked([folder / file for file in files if file.endswith(".o")], list(kinds))
        self.address = addresses[name]
        self.run, self.profile, self.time = (
            ctypes.CFUNCTYPE(None, *kinds[symbol])(addresses[symbol]) for symbol in kinds
        )

    def _linked(self, objects: Sequence[Path], symbols: Sequence[str]) -> dict[str, int]:
        import llvmlite.binding as llvm

        from targets.cpu.runtime import initialise

        initialise()
        machine = llvm.Target.from_default_triple().create_target_machine(codemodel="default")
        engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
        for path in objects:
            engine.add_object_file(llvm.ObjectFileRef.from_data(path.read_bytes()))
        engine.finalize_object()
        _LINKED.append(engine)  # the threads of its pool run in it
        return {symbol: int(engine.get_function_address(symbol)) for symbol in symbols}


def _address(library: ctypes.CDLL, symbol: str) -> int:
    address = ctypes.cast(getattr(library, symbol), ctypes.c_void_p).value
    assert address is not None
    return address

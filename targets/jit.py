"""Native code in this process: objects linked by LLVM's just-in-time linker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import count
from typing import Any

import llvmlite.binding as llvm

_NUMBERS = count()


class LinkedObjects:
    """Objects that are linked with each other and with this process; the code lives as long as this object.

    All sections of an object are loaded side by side. Their references to each other have 32 bits. LLVM's older engines
    map each section by itself, so a process with many mappings may have no room within reach.

    Args:
        objects: ELF or Mach-O images for this host.
        symbols: names of the functions whose addresses are wanted.
        addresses: symbols that the objects take from elsewhere → their addresses.

    Raises:
        RuntimeError: an invalid object, or an undefined symbol.
    """

    def __init__(
        self, objects: Sequence[bytes], symbols: Iterable[str], addresses: Mapping[str, int] | None = None
    ) -> None:
        builder = llvm.JITLibraryBuilder().add_current_process()
        for code in objects:
            builder.add_object_img(code)
        for symbol in symbols:
            builder.export_symbol(symbol)
        for symbol, address in (addresses or {}).items():
            builder.import_symbol(symbol, address)
        self._library = builder.link(_linker(), f"objects{next(_NUMBERS)}")

    def address(self, symbol: str) -> int:
        """Returns the address of a wanted symbol's code."""
        return int(self._library[symbol])


@cache
def _linker() -> Any:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.create_lljit_compiler(use_jit_link=True)

"""Native code in this process: objects linked by LLVM's just-in-time linker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import count
from typing import Any

import llvmlite.binding as llvm

_NUMBERS = count()


class LinkedObjects:
    """Objects that are linked with each other and with what this process has; the code is there for as long as this is.

    All sections of an object lie side by side. Their references to each other have 32 bits, and where a linker maps
    each section by itself, as LLVM's older engines do, a process with many mappings may have no room within reach.

    Args:
        objects: ELF or Mach-O images for this host.
        symbols: of functions whose addresses are wanted.
        given: symbols that the objects take from elsewhere → their addresses.

    Raises:
        RuntimeError: an object that is none, or a symbol that nobody has.
    """

    def __init__(
        self, objects: Sequence[bytes], symbols: Iterable[str], given: Mapping[str, int] | None = None
    ) -> None:
        builder = llvm.JITLibraryBuilder().add_current_process()
        for code in objects:
            builder.add_object_img(code)
        for symbol in symbols:
            builder.export_symbol(symbol)
        for symbol, address in (given or {}).items():
            builder.import_symbol(symbol, address)
        self._library = builder.link(_linker(), f"objects{next(_NUMBERS)}")

    def address(self, symbol: str) -> int:
        """Where the code of a wanted symbol is."""
        return int(self._library[symbol])


@cache
def _linker() -> Any:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.create_lljit_compiler(use_jit_link=True)

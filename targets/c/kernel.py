"""Kernels in this process: a shared library, loaded from memory and let go of with its kernel."""

from __future__ import annotations

import _ctypes
import ctypes
import weakref

from targets.base import Module
from targets.native import NativeKernel
from targets.network_library import function_at, open_library


class CKernel(NativeKernel):
    """A module's shared library, whose functions run on the thread that calls them."""

    def __init__(self, module: Module) -> None:
        library = open_library(module.object_code)
        weakref.finalize(self, _ctypes.dlclose, library._handle)

        def find(symbol: str) -> int:
            return function_at(library, f"{symbol}_entry")

        super().__init__(module, find, 1, function_at(library, "autotune_time"))
        self._library: ctypes.CDLL = library

"""The BLAS that NumPy brings, for kernels that call it."""

from __future__ import annotations

import ctypes
import importlib.metadata
from functools import cache
from pathlib import Path

SGEMM_SYMBOL = "scipy_cblas_sgemm64_"
BLAS_THREADS_SYMBOL = "scipy_openblas_set_num_threads64_"


@cache
def blas_library() -> str | None:
    """Returns the path of the BLAS in NumPy's wheel, or None if it lacks the entry points that kernels call."""
    for file in importlib.metadata.files("numpy") or []:
        if Path(str(file)).name.startswith("libscipy_openblas64_"):
            path = str(file.locate())
            found = ctypes.CDLL(path)
            return path if hasattr(found, SGEMM_SYMBOL) and hasattr(found, BLAS_THREADS_SYMBOL) else None
    return None


@cache
def blas_symbols() -> dict[str, int]:
    """Returns the addresses of the BLAS's entry points that kernels call, by name; empty if there is no BLAS.

    Objects are linked with these, and the library stays local. If it were global, as libraries that LLVM loads by
    itself are, it would clash with SciPy's OpenBLAS. SciPy would call functions of the same name with integers of 32
    bits, which have 64 here.
    """
    path = blas_library()
    if path is None:
        return {}
    library = ctypes.CDLL(path)
    found = {name: ctypes.cast(library[name], ctypes.c_void_p).value for name in (SGEMM_SYMBOL, BLAS_THREADS_SYMBOL)}
    return {name: address for name, address in found.items() if address is not None}

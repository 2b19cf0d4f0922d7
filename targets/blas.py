"""The BLAS that NumPy brings, for kernels that call it."""

from __future__ import annotations

import ctypes
import importlib.metadata
from functools import cache
from pathlib import Path

import llvmlite.binding as llvm

SGEMM_SYMBOL = "scipy_cblas_sgemm64_"
BLAS_THREADS_SYMBOL = "scipy_openblas_set_num_threads64_"


@cache
def blas_library() -> str | None:
    """Path of the BLAS that NumPy's wheel brings, if it has the entry points that kernels call; or None."""
    for file in importlib.metadata.files("numpy") or []:
        if Path(str(file)).name.startswith("libscipy_openblas64_"):
            path = str(file.locate())
            found = ctypes.CDLL(path)
            return path if hasattr(found, SGEMM_SYMBOL) and hasattr(found, BLAS_THREADS_SYMBOL) else None
    return None


@cache
def load_blas() -> None:
    """Lets code that is linked in this process find it, where there is one."""
    blas = blas_library()
    if blas is not None:
        llvm.load_library_permanently(blas)

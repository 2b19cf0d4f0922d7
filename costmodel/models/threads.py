"""Numerical libraries held to one thread: kernels are timed beside the models."""

from __future__ import annotations

from typing import Any


def one_thread() -> Any:
    """A context in which BLAS and OpenMP use one thread."""
    from threadpoolctl import threadpool_limits

    return threadpool_limits(1)

"""A kernel that ends its process is one failed test, which prints its program; the next one runs in a fresh process."""

from __future__ import annotations

import os
import signal

import numpy as np
import pytest

from search_space import te
from search_space.lower import lower
from targets.base import RunError
from targets.registry import get
from tests import native


def test_a_crash_names_its_program_and_the_next_kernel_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    x = te.placeholder((4,), name="x")
    program = lower(te.create_schedule([te.compute((4,), lambda i: x[i] + 1, "y").op]).state)
    arrays = [np.arange(4, dtype=np.float32)]
    np.testing.assert_array_equal(native.run_program(get("cpu"), program, arrays)[0], arrays[0] + 1)
    (child,) = native._children
    os.kill(child.pid, signal.SIGSEGV)
    with pytest.raises(native.KernelCrash, match=r"the process died \(SIGSEGV\)[^$]*y\[y\.i\] = "):
        native.run_program(get("cpu"), program, arrays)
    native.run_program(get("cpu"), program, arrays)
    (child,) = native._children
    os.kill(child.pid, signal.SIGSTOP)
    monkeypatch.setattr(native, "SECONDS", 0.2)
    with pytest.raises(native.KernelCrash, match=r"the process was killed after its time-out of 0\.2 s"):
        native.run_program(get("cpu"), program, arrays)
    monkeypatch.setattr(native, "SECONDS", 120.0)
    with pytest.raises(RunError, match="must be given its 1 inputs"):
        native.run_program(get("cpu"), program, [])
    np.testing.assert_array_equal(native.run_program(get("cpu"), program, arrays)[0], arrays[0] + 1)

"""Code is loaded in processes whose memory is full of mappings, as long-lived ones become."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

FRAGMENTING_PROGRAM = """
import ctypes, mmap
import numpy as np
from autotune import build
from search_space import te
from targets import registry

x = te.placeholder((4, 33), name="x")
y = te.compute((4, 33), lambda i, j: te.exp(x[i, j]) + 2.5, name="y")
schedule = te.create_schedule(y.op)

libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 4]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]

def taken(nbytes):
    return libc.mmap(None, nbytes, 0, 0x4022, -1, 0)  # private, anonymous, with no memory behind it

build(schedule, [x, y])  # what loading needs besides is there
gap = 4 << 30
region = taken(64 * gap)
while taken(mmap.PAGESIZE) > region:
    pass  # room above is used up
for place in range(1, 64):  # single pages that are free, further apart than 32 bits reach
    libc.munmap(region + place * gap, mmap.PAGESIZE)
kernel = build(schedule, [x, y])
given, made = np.ones((4, 33), np.float32), np.empty((4, 33), np.float32)
kernel(given, made)
np.testing.assert_allclose(made, np.exp(1) + 2.5, rtol=1e-6)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="lays out the memory of a Linux process")
def test_sections_of_a_kernel_lie_within_reach_of_each_other(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FRAGMENTING_PROGRAM], capture_output=True, text=True, timeout=60, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr

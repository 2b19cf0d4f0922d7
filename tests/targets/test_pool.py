"""Parallel loops run every iteration once, whoever calls, however many threads, and without the threads."""

import ctypes
import itertools
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from targets.cpu.kernel import runtime

ROOT = Path(__file__).resolve().parents[2]

_PARALLEL_FOR = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32)
_BODY = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64, ctypes.c_int64)


def run(body: Callable[[int, int, int], None], extent: int, threads: int) -> None:
    failures: list[BaseException] = []

    def call_body(_: int, thread: int, low: int, high: int) -> None:
        try:
            body(thread, low, high)
        except BaseException as error:  # a callback cannot raise through native code: it is raised below
            failures.append(error)

    native = _BODY(call_body)
    parallel_for = _PARALLEL_FOR(runtime().address("autotune_parallel_for"))
    parallel_for(ctypes.cast(native, ctypes.c_void_p).value or 0, 0, extent, threads)
    if failures:
        raise failures[0]


@given(st.integers(0, 400), st.integers(1, 20))
def test_every_iteration_runs_once(extent: int, threads: int) -> None:
    seen = np.zeros(extent, int)

    def body(thread: int, low: int, high: int) -> None:
        assert 0 <= thread < threads and 0 <= low <= high <= extent
        seen[low:high] += 1

    run(body, extent, threads)
    assert (seen == 1).all()


def test_an_extent_beyond_32_bits_is_cut() -> None:
    parts: list[tuple[int, int]] = []
    run(lambda _, low, high: parts.append((low, high)), 1 << 40, 3)
    parts.sort()
    assert parts[0][0] == 0 and parts[-1][1] == 1 << 40 and len(parts) == 24
    assert all(a[1] == b[0] for a, b in itertools.pairwise(parts))


def test_two_threads_work_at_the_same_time() -> None:
    """Each of two iterations waits for the other to have begun."""
    begun = [threading.Event(), threading.Event()]

    def body(_: int, low: int, high: int) -> None:
        assert high == low + 1
        begun[low].set()
        assert begun[1 - low].wait(20)

    run(body, 2, 2)


def test_a_thread_takes_over_what_another_has_not_begun() -> None:
    """The holder of the first chunk waits until all the others are done: only the other thread can have done them."""
    chunks, done, stuck = 16, threading.Semaphore(0), threading.Event()
    by: dict[int, int] = {}

    def body(thread: int, low: int, high: int) -> None:
        by[low] = thread
        if not stuck.is_set():
            stuck.set()
            for _ in range(chunks - 1):
                assert done.acquire(timeout=20)
        else:
            done.release()

    run(body, chunks, 2)
    assert sorted(by) == list(range(chunks)) and len(set(by.values())) == 2
    assert sorted(list(by.values()).count(t) for t in (0, 1)) == [1, chunks - 1]


def test_a_loop_within_a_loop_and_callers_at_once_work_alone() -> None:
    seen = np.zeros((8, 50), int)

    def outer(_: int, low: int, high: int) -> None:
        for row in range(low, high):

            def inner(thread: int, first: int, end: int, row: int = row) -> None:
                assert thread == 0
                seen[row, first:end] += 1

            run(inner, 50, 4)

    run(outer, 8, 4)
    assert (seen == 1).all()

    counts = np.zeros((4, 1000), int)

    def call(caller: int) -> None:
        for _ in range(20):
            run(lambda _, low, high: counts[caller, low:high].__iadd__(1), 1000, 3)

    callers = [threading.Thread(target=call, args=(i,)) for i in range(4)]
    for thread in callers:
        thread.start()
    for thread in callers:
        thread.join(60)
    assert (counts == 20).all()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_has_no_threads_and_waits_for_none(tmp_path: Path) -> None:
    script = tmp_path / "child.py"
    script.write_text(
        "import os\n"
        "from tests.targets.test_pool import run\n"
        "import numpy as np\n"
        "run(lambda *_: None, 100, 4)\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    seen = np.zeros(100, int)\n"
        "    def body(thread, low, high):\n"
        "        assert thread == 0\n"
        "        seen[low:high] += 1\n"
        "    for _ in range(10):\n"
        "        run(body, 100, 4)\n"
        "    os._exit(0 if (seen == 10).all() else 1)\n"
        "assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0\n"
    )
    done = subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=60,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(autouse=True)
def _free_pool() -> Iterator[None]:
    """Loops of other tests in this process have ended: the pool is free."""
    yield
    threads: set[int] = set()
    run(lambda thread, low, high: threads.add(thread), 64, 2)
    assert threads <= {0, 1}

"""Networks that nobody has any more: their code is unloaded, their threads end, their memory is given back."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from autotune.graph.evaluate import evaluate
from autotune.graph.ir import Graph, GraphBuilder, TensorType
from targets import network_library
from targets.native_executable import NativeExecutable
from tests.autotune.compiler.test_compile import compile_into

pytestmark = pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs Linux, which tells what is mapped")
ROOT = Path(__file__).parents[3]


def product(seed: int = 0) -> Graph:
    """A product that is large enough for two threads."""
    factors = np.random.default_rng(seed).standard_normal((128, 64)).astype(np.float32)
    b = GraphBuilder("product", {"x": TensorType((512, 128))})
    return b.finish([b.add("matmul", ["x", b.constant(factors)])])


X = np.random.default_rng(1).standard_normal((512, 128)).astype(np.float32)
EXPECTED = evaluate(product(), {"x": X})[product().outputs[0]]


def right(network: NativeExecutable) -> bool:
    return np.allclose(network(X), EXPECTED, rtol=1e-3, atol=1e-3)


def count_mappings() -> int:
    """Mappings of networks' code."""
    return sum("autotune-network" in line for line in Path("/proc/self/maps").read_text().splitlines())


def threads() -> int:
    return len(os.listdir("/proc/self/task"))


def until(done: Callable[[], bool]) -> bool:
    """Waits for what the system does in its own time."""
    end = time.monotonic() + 100
    while not done() and time.monotonic() < end:
        time.sleep(0.01)
    return done()


@pytest.fixture(scope="module", params=["a shared object", "objects"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "objects":
            patch.setattr(shutil, "which", lambda name: None)
        place = tmp_path_factory.mktemp("product")
        compile_into(product(), place, threads=2)
        return place / "network"


@pytest.fixture(autouse=True)
def no_collection() -> Iterator[None]:
    """References alone are counted, and nothing lingers from before."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def test_code_and_threads_go_with_the_last_that_has_them(folder: Path) -> None:
    known, code, before = set(network_library._LIBRARIES), count_mappings(), threads()
    one, other = NativeExecutable(folder, 2), NativeExecutable(folder, 2)
    assert right(one) and right(other)
    assert threads() > before
    if (folder / "product.so").exists():
        assert len(set(network_library._LIBRARIES) - known) == 1 and count_mappings() > code
    del one
    assert right(other) and threads() > before
    weights = weakref.ref(other.weights)
    del other
    assert weights() is None and set(network_library._LIBRARIES) == known and count_mappings() == code
    assert until(lambda: threads() == before)


def test_it_is_loaded_again_and_again(folder: Path) -> None:
    code, before = count_mappings(), threads()
    for _ in range(20):
        assert right(NativeExecutable(folder, 2))
    assert count_mappings() == code and until(lambda: threads() == before)


def test_it_stays_while_others_call_it(folder: Path) -> None:
    code, before = count_mappings(), threads()

    def call_often(network: NativeExecutable) -> bool:
        return all(right(network) for _ in range(30))

    network = NativeExecutable(folder, 2)
    with ThreadPoolExecutor(3) as pool:
        results = [pool.submit(call_often, network) for _ in range(3)]
        del network
        assert all(result.result(60) for result in results)
    del results
    assert count_mappings() == code and until(lambda: threads() == before)


CHILD = """
import os, sys, threading
import numpy as np
from targets.native_executable import NativeExecutable
x = np.zeros((512, 128), np.float32)
network = NativeExecutable(sys.argv[1], 2)
network(x)
child = os.fork()
if child == 0:
    network(x)
    del network
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
def call():
    while True:
        network(x)
for _ in range(2):
    threading.Thread(target=call, daemon=True).start()
network(x)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_children_and_processes_that_end_wait_for_no_thread(folder: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-c", CHILD, str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_shape_that_is_dropped_is_let_go() -> None:
    torch = pytest.importorskip("torch")
    from autotune.pytorch.backend import autotune_backend

    torch._dynamo.reset()
    gc.collect()  # libraries of earlier tests that only cycles hold
    known, code = set(network_library._LIBRARIES), count_mappings()
    run = torch.compile(torch.nn.ReLU(), backend=autotune_backend, dynamic=True, options={"threads": 2, "shapes": 1})
    with torch.no_grad():
        for rows in (2, 3, 4):
            x = torch.randn(rows, 4)
            torch.testing.assert_close(run(x), torch.relu(x))
            assert len(set(network_library._LIBRARIES) - known) == 1
    del run
    torch._dynamo.reset()
    gc.collect()
    assert set(network_library._LIBRARIES) == known and count_mappings() == code

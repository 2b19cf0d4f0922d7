"""Executables among others: folders written anew, calls from threads, pickles, arrays of other packages."""

from __future__ import annotations

import pickle
import shutil
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autotune
from autotune.graph.evaluate import evaluate
from autotune.graph.ir import Graph, GraphBuilder, TensorType
from search_space import workloads
from search_space.space import generate, make_program
from targets import registry
from targets.base import RunError
from targets.manifest import ExecutableError
from targets.native_executable import NativeExecutable
from tests.autotune.compiler.test_compile import compile_into
from tests.autotune.graph.nets import feeds, residual


def make_two_layers(width: int, seed: int) -> Graph:
    """Two products with weights of their own; graphs of all widths and seeds have one name."""
    rng = np.random.default_rng(seed)
    b = GraphBuilder("layered", {"x": TensorType((4, width))})
    first, second = (b.constant(rng.standard_normal((width, width)).astype(np.float32)) for _ in range(2))
    return b.finish([b.add("matmul", [b.add("relu", [b.add("matmul", ["x", first])]), second])])


def right(graph: Graph, call: Callable[..., Any], seed: int = 0) -> bool:
    given = feeds(graph, seed)
    wanted = evaluate(graph, given)[graph.outputs[0]]
    return bool(np.allclose(call(*given.values()), wanted, rtol=1e-3, atol=1e-3))


@pytest.mark.parametrize("how", ["read", "mapped", "objects"])
def test_a_folder_written_anew_leaves_what_was_loaded_as_it_was(
    tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if how == "objects":
        monkeypatch.setattr(shutil, "which", lambda name: None)
    graphs = [make_two_layers(16, 0), make_two_layers(48, 1), make_two_layers(48, 2)]
    alive = []
    for graph in graphs:
        compile_into(graph, tmp_path)
        alive.append(autotune.load(tmp_path / "network", mapped=how == "mapped"))
    for seed in range(2):
        for graph, network in zip(graphs, alive, strict=True):
            assert right(graph, network, seed)
    assert not list((tmp_path / "network").glob(".*")), "nothing is left behind"


def test_the_same_shared_object_is_loaded_once(tmp_path: Path) -> None:
    network = compile_into(make_two_layers(16, 0), tmp_path)
    shutil.copytree(network.folder, tmp_path / "copy")
    again = NativeExecutable(tmp_path / "copy")
    assert again._library.address == network._library.address and right(make_two_layers(16, 0), again)


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> NativeExecutable:
    return compile_into(residual(), tmp_path_factory.mktemp("residual"))


def together(call: Callable[..., Any], inputs: list[Any], callers: int = 4) -> list[Any]:
    """Returns the results of a call for each of the inputs, by `callers` threads at a time."""
    with ThreadPoolExecutor(callers) as pool:
        return list(pool.map(lambda given: call(*given), inputs))


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_may_call_one_executable(network: NativeExecutable, threads: int) -> None:
    again = NativeExecutable(network.folder, threads)
    inputs = [(feeds(residual(), seed)["x"],) for seed in range(80)]
    wanted = [network(*given) for given in inputs]
    for found, expected in zip(together(again, inputs), wanted, strict=True):
        np.testing.assert_array_equal(found, expected)
    assert 1 <= len(again._contexts) <= 4
    again(*inputs[3])
    again.run()
    np.testing.assert_array_equal(again._last[0], inputs[3][0])


def test_threads_may_call_one_kernel() -> None:
    workload = workloads.matmul(65, 96, 64)
    target = registry.get("cpu")
    sketch = generate(workload, target.hardware).sketches[0]
    rows = np.stack([np.random.default_rng(0).integers(len(g.table), size=500) for g in sketch.groups], axis=1)
    row = rows[sketch.legal(rows.astype(np.int32))][0]
    kernel = target.load(target.build(make_program(workload, sketch.algorithm, sketch.trace(row))))

    def call(*arrays: Any) -> Any:
        out = np.empty(workload.output.shape, np.float32)
        kernel(*arrays, out)
        return out

    inputs = [workload.make_inputs(seed) for seed in range(40)]
    for given, found in zip(inputs, together(call, inputs), strict=True):
        np.testing.assert_allclose(found, workload.reference(*given), rtol=1e-3, atol=1e-3)
    with pytest.raises(RunError, match="must be given arrays, but got list"):
        kernel([1.0], [2.0], [3.0])


C_THREADS = """
#include <string.h>
#include "residual.h"
#define CALLERS 4
static residual_network network;
static float x[CALLERS][1024], y[CALLERS][10];
static int failed;
static void *serve(void *argument) {
  long caller = (long)argument;
  float out[10];
  for (int i = 0; i < 200; i++) {
    if (residual_infer(&network, x[caller], out) || memcmp(out, y[caller], sizeof out)) failed = 1;
  }
  return NULL;
}
int main(int count, char **argument) {
  pthread_t threads[CALLERS];
  FILE *file = fopen(argument[2], "rb");
  if (count != 3 || !file || fread(x, 4, sizeof x / 4, file) != sizeof x / 4) return 2;
  if (residual_open(&network, argument[1], 2)) return 3;
  for (int i = 0; i < CALLERS; i++) residual_infer(&network, x[i], y[i]);
  for (long i = 0; i < CALLERS; i++) pthread_create(&threads[i], NULL, serve, (void *)i);
  for (int i = 0; i < CALLERS; i++) pthread_join(threads[i], NULL);
  residual_close(&network);
  residual_close(&network);
  fwrite(y, 4, sizeof y / 4, stdout);
  return failed;
}
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs cc, a C compiler")
def test_threads_of_a_c_program_may_call_one_network(network: NativeExecutable, tmp_path: Path) -> None:
    inputs = [feeds(residual(), seed)["x"] for seed in range(4)]
    np.stack(inputs).tofile(tmp_path / "x.bin")
    (tmp_path / "main.c").write_text(C_THREADS)
    folder = network.folder.resolve()
    built = ["cc", "-O1", "-Wall", "-Werror", "-std=c11", "-pthread", f"-I{folder}", str(tmp_path / "main.c")]
    built += [str(folder / "residual.so"), f"-Wl,-rpath,{folder}", "-o", str(tmp_path / "main")]
    subprocess.run(built, check=True)
    command = [str(tmp_path / "main"), str(folder / "residual.weights"), str(tmp_path / "x.bin")]
    out = subprocess.run(command, check=True, capture_output=True, timeout=60).stdout
    wanted = np.concatenate([network(x).reshape(-1) for x in inputs])
    np.testing.assert_allclose(np.frombuffer(out, np.float32), wanted, rtol=1e-6)
    assert "Threads may call residual_infer on one network at the same time" in (folder / "residual.h").read_text()


def test_it_is_pickled_as_its_folder(tmp_path: Path) -> None:
    graph = make_two_layers(16, 0)
    network = compile_into(graph, tmp_path, threads=1)
    data = pickle.dumps(network)
    assert len(data) < 1000
    again = pickle.loads(data)
    assert right(graph, again) and again.threads == 1
    compile_into(make_two_layers(16, 1), tmp_path)
    with pytest.raises(ExecutableError, match="must be the one that was pickled, but another was written there"):
        pickle.loads(data)
    assert right(graph, network)
    shutil.rmtree(tmp_path / "network")
    with pytest.raises(ExecutableError, match="a network must have a manifest"):
        pickle.loads(data)


class OnlyDlpack:
    """An array of some package that knows DLPack and nothing else."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()


def test_arrays_of_other_packages_are_taken(network: NativeExecutable) -> None:
    x = feeds(residual())["x"]
    wanted = network(x)
    np.testing.assert_array_equal(network(OnlyDlpack(x)), wanted)
    np.testing.assert_array_equal(network(memory := _Array(x)), wanted)
    assert memory.was_asked
    for given in (x.tolist(), "x", None):
        with pytest.raises(ExecutableError, match=f"input `x` must be an array, but got {type(given).__name__}"):
            network(given)
    with pytest.raises(ExecutableError, match=r"input `x` must be float32 of shape \(1, 8, 8, 16\), but got float64"):
        network(_Array(x.astype(np.float64)))


class _Array:
    was_asked = False

    def __init__(self, array: np.ndarray) -> None:
        self._array = array

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        self.was_asked = True
        return self._array


def test_tensors_of_pytorch_are_taken(network: NativeExecutable) -> None:
    torch = pytest.importorskip("torch")
    x = feeds(residual())["x"]
    wanted = network(x)
    np.testing.assert_array_equal(network(torch.from_numpy(x)), wanted)
    np.testing.assert_array_equal(
        network(torch.from_numpy(x).permute(0, 2, 1, 3).contiguous().permute(0, 2, 1, 3)), wanted
    )
    with pytest.raises(ExecutableError, match=r"must be an array, but Can't call numpy\(\) on Tensor that requires"):
        network(torch.from_numpy(x).requires_grad_())

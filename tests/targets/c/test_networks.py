"""Networks in C: one source and one header, which a program compiles and calls, and which are loaded here, too."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autotune
from autotune.compiler.executable.compile import Schedule
from autotune.graph.evaluate import evaluate
from autotune.graph.ir import Graph, GraphBuilder, TensorType
from autotune.tuner.settings import Settings
from autotune.tuner.task import Task
from autotune.tuner.untimed import select_by_roofline
from search_space.workloads import Workload
from targets.c import network
from targets.c.compiler import Compiler
from targets.registry import get as get_target
from tests.aarch64 import rootfs
from tests.autotune.graph.nets import branches, compile_graph, feeds, residual, weight
from tests.targets.c.strict import WARNINGS

MAIN = """
#include <stdint.h>
#include <stdio.h>
#include "{name}.h"

static float input[{given}];
static float output[{made}];
{weights}
int main(int count, char **arguments) {{
  FILE *file = fopen(arguments[1], "rb");
  size_t got = 0U;
  if ((count > 1) && (file != NULL)) {{
    got = fread(input, sizeof(float), {given}U, file);
    (void)fclose(file);
  }}
  {read}
  if ((got != {given}U) || ({name}_run({passed}NULL, output) != -1) || ({name}_run({passed}input, output) != 0)) {{
    return 1;
  }}
  return (fwrite(output, sizeof(float), {made}U, stdout) == {made}U) ? 0 : 1;
}}
"""


@cache
def choose_schedule(workload: Workload) -> Schedule:
    found = select_by_roofline(Task(workload.operator, workload), Settings(get_target("c")))
    return Schedule(found.algorithm, found.trace)


def write_network(graph: Graph, folder: Path) -> tuple[dict[str, Any], Any]:
    """The inputs of a network that was compiled into a folder, and what the loaded one makes of them."""
    loaded = compile_graph(graph, choose_schedule, folder, "c")
    given = feeds(graph, 1)
    wanted = [evaluate(graph, given)[name] for name in graph.outputs]
    made = autotune.load(folder)(*given.values())
    for found, right in zip(made if isinstance(made, tuple) else (made,), wanted, strict=True):
        np.testing.assert_allclose(found, right, rtol=1e-4, atol=1e-5)
    assert loaded.time(3).shape == (3,) and loaded.profile(2).shape[0] == 2
    return given, wanted[0]


@dataclass(frozen=True)
class CompiledNetwork:
    """A network with its weights in the source: its folder, an input, and the output that is wanted."""

    folder: Path
    weights: Any
    expected: Any


@pytest.fixture(scope="module", autouse=True)
def texts_are_compiled_once() -> Iterator[None]:
    """Networks of these tests have kernels in common: the same text by the same compiler is the same library."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Compiler, "_compile", cache(Compiler._compile))
        yield


@pytest.fixture(scope="module")
def compiled_network(tmp_path_factory: pytest.TempPathFactory) -> CompiledNetwork:
    folder = tmp_path_factory.mktemp("residual")
    given, wanted = write_network(residual(), folder)
    return CompiledNetwork(folder, given["x"], wanted)


@pytest.fixture
def its_own(compiled_network: CompiledNetwork, tmp_path: Path) -> CompiledNetwork:
    """A copy for one test, whose program is compiled beside it."""
    return replace(compiled_network, folder=Path(shutil.copytree(compiled_network.folder, tmp_path / "network")))


def call_program(
    folder: Path, name: str, weights: Any, count: int, compile: list[str], run: list[str], by: bool
) -> Any:
    """Compiles a program of nothing but the source and the header; returns what it prints, as float32."""
    passed = "weights, " if by else ""
    size = (folder / f"{name}.weights").stat().st_size
    declared = f"static float weights[{size // 4}];\n" if by else ""
    read = f'file = fopen("{name}.weights", "rb");\n  got += fread(weights, {size}U, 1U, file) - 1U;' if by else ""
    main = MAIN.format(name=name, given=weights.size, made=count, weights=declared, read=read, passed=passed)
    (folder / "main.c").write_text(main)
    (folder / "input").write_bytes(weights.tobytes())
    command = [*compile, "-std=c99", "-O2", *WARNINGS, "-o", "program", "main.c", f"{name}.c", "-lm"]
    subprocess.run(command, cwd=folder, check=True)
    printed = subprocess.run([*run, "./program", "input"], cwd=folder, check=True, capture_output=True).stdout
    return np.frombuffer(printed, np.float32)


def test_a_network_is_a_source_and_a_header(its_own: CompiledNetwork) -> None:
    folder, given, wanted = its_own.folder, its_own.weights, its_own.expected
    text = (folder / "residual.c").read_text()
    assert "alloc" not in text and "fopen" not in text and "_pack" not in text.replace("_packed", "")
    found = call_program(folder, "residual", given, wanted.size, ["cc"], [], False)
    np.testing.assert_allclose(found, wanted.ravel(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["case", "expf", "memset", "3d"])
def test_a_network_may_be_called_what_c_has_a_meaning_for(name: str, tmp_path: Path) -> None:
    b = GraphBuilder(name, {"x": TensorType((1, 16))})
    graph = b.finish([b.add("relu", [b.add("matmul", ["x", weight(b, np.random.default_rng(0), 16, 10)])])])
    write_network(graph, tmp_path)
    assert (tmp_path / f"n{name}.h").is_file()


def test_many_weights_are_handed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "MOST_WEIGHTS", 1000)
    given, wanted = write_network(residual(), tmp_path)
    header = (tmp_path / "residual.h").read_text()
    assert "residual_run(const void *weights, const float *x, float *softmax);" in header
    found = call_program(tmp_path, "residual", given["x"], wanted.size, ["cc"], [], True)
    np.testing.assert_allclose(found, wanted.ravel(), rtol=1e-4, atol=1e-5)


def test_branches_and_concatenations(tmp_path: Path) -> None:
    graph = branches()
    write_network(graph, tmp_path)
    command = ["cc", "-std=c99", "-O1", *WARNINGS, "-c", f"{graph.name}.c"]
    subprocess.run(command, cwd=tmp_path, check=True)


def test_a_network_runs_on_an_emulated_processor(its_own: CompiledNetwork) -> None:
    compiler, emulator = shutil.which("aarch64-linux-gnu-gcc"), rootfs.emulator()
    if compiler is None or emulator is None:
        pytest.skip("the cross compiler for ARM64 and qemu-user-static must be installed")
    folder, given, wanted = its_own.folder, its_own.weights, its_own.expected
    found = call_program(folder, "residual", given, wanted.size, [compiler, "-static"], [emulator], False)
    np.testing.assert_allclose(found, wanted.ravel(), rtol=1e-4, atol=1e-5)

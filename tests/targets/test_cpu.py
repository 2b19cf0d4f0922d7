"""The CPU target: accuracy of its math, exported kernels in C, tensor instructions, and what it refuses."""

from __future__ import annotations

import math
import platform
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from search_space import te, workloads
from search_space.ir.stmt import LoopProgram
from search_space.lower import cleanup, lower
from search_space.schedule.steps import Annotate, Split
from search_space.space import generate, make_program
from targets import registry
from targets.base import BuildError, Module, RunError

FUNCTIONS = {
    "exp": (np.exp, (-100, 88)),
    "log": (np.log, (1e-30, 1e30)),
    "tanh": (np.tanh, (-12, 12)),
    "sigmoid": (lambda x: 1 / (1 + np.exp(-x)), (-60, 60)),
    "sqrt": (np.sqrt, (0, 1e20)),
    "rsqrt": (lambda x: 1 / np.sqrt(x), (1e-20, 1e20)),
}


LANES = sorted({8, registry.get("cpu").hardware.float_lanes})
"""AVX-512 has instructions of its own for some functions."""


def make_kernel(function: str, count: int, lanes: int = 8):
    """An element-wise kernel in vectors."""
    x = te.placeholder((count,), name="x")
    y = te.compute((count,), lambda i: getattr(te, function)(x[i]), name="y")
    s = te.create_schedule(y.op)
    s.apply(Split("y", "i", (lanes,), "guard"))
    s.apply(Annotate("y", "i.1", "vectorize"))
    target = registry.get("cpu")
    return target.load(target.build(cleanup(lower(s.state))))


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_math_is_within_four_units_in_the_last_place(name: str, lanes: int) -> None:
    exact, (low, high) = FUNCTIONS[name]
    x = np.linspace(low, high, 20_001, dtype=np.float32)
    if name in ("log", "rsqrt", "sqrt"):
        x = np.concatenate([x, np.geomspace(max(low, 1e-30), high, 20_000, dtype=np.float32)])
    expected = exact(x.astype(np.float64))
    found = make_kernel(name, len(x), lanes).bind([x]).run().astype(np.float64)
    unit = np.spacing(np.abs(expected).astype(np.float32)).astype(np.float64)
    assert (np.abs(found - expected) / unit).max() <= 4


def test_erf_is_within_a_millionth() -> None:
    x = np.linspace(-6, 6, 20_001, dtype=np.float32)
    found = make_kernel("erf", len(x)).bind([x]).run()
    assert np.abs(found - np.vectorize(math.erf)(x)).max() < 1e-6


@pytest.mark.parametrize("lanes", LANES)
def test_special_values(lanes: int) -> None:
    x = np.array([0.0, np.inf, -np.inf, np.nan], np.float32)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(make_kernel("exp", 4, lanes).bind([x]).run(), [1, np.inf, 0, np.nan])
        np.testing.assert_array_equal(make_kernel("log", 4, lanes).bind([x]).run(), [-np.inf, np.inf, np.nan, np.nan])
        np.testing.assert_array_equal(make_kernel("tanh", 4, lanes).bind([x]).run(), [0, 1, -1, np.nan])
        np.testing.assert_array_equal(make_kernel("sigmoid", 4, lanes).bind([x]).run(), [0.5, 1, 0, np.nan])
        np.testing.assert_allclose(make_kernel("erf", 4, lanes).bind([x]).run(), [0, 1, -1, np.nan], rtol=1e-6)


def make_extremum(reducer: str, lanes: int) -> LoopProgram:
    """The least or the greatest of each of some rows, which are one vector."""
    x, r = te.placeholder((5, lanes), name="x"), te.reduce_axis((0, lanes), "r")
    y = te.compute((5,), lambda i: getattr(te, reducer)(x[i, r], axis=r), name="y")
    s = te.create_schedule(y.op)
    s[y].vectorize("r")
    return cleanup(lower(s.state))


@pytest.mark.parametrize("reducer", ["max", "min"])
@pytest.mark.parametrize("lanes", [2, 3, 4, 5, 7, 8, 12, 16])
def test_a_vector_is_reduced_by_halves(reducer: str, lanes: int) -> None:
    target, program = registry.get("cpu"), make_extremum(reducer, lanes)
    rng, wanted = np.random.default_rng(lanes), {"max": np.max, "min": np.min}[reducer]
    x = np.stack([np.roll(np.arange(lanes), i) for i in rng.integers(lanes, size=5)]).astype(np.float32)
    kernel = target.load(target.build(program))
    for turned in range(lanes):
        rolled = np.roll(x, turned, 1) - 3
        rolled[1, turned] = np.nan
        np.testing.assert_array_equal(kernel.bind([rolled]).run(), wanted(rolled, 1))
    text, *_ = target.llvm_ir(program)
    for compared in ("fcmp o", "fcmp uno"):  # a choice, and a test for NaN
        assert text.count(compared) <= math.ceil(math.log2(lanes)) + 1  # and one with what is there
    assert "vector.reduce" not in text


def build_module(workload: workloads.Workload) -> Module:
    """The module of some legal candidate."""
    target = registry.get("cpu")
    sketch = generate(workload, target.hardware).sketches[0]
    rng = np.random.default_rng(0)
    choices = np.stack([rng.integers(len(g.table), size=500) for g in sketch.groups], axis=1).astype(np.int32)
    choice = choices[sketch.legal(choices)][0]
    return target.build(make_program(workload, sketch.algorithm, sketch.trace(choice)))


def test_modules_survive_the_wire() -> None:
    module = build_module(workloads.matmul(7, 33, 5))
    assert Module.from_bytes(module.to_bytes()) == module


@pytest.mark.skipif(platform.machine() != "x86_64", reason="needs x86")
def test_a_library_for_processors_without_multiply_add_names_what_it_needs(tmp_path: Path) -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs the system package that has cc")
    workload, target = workloads.matmul(4, 8, 4), registry.get("cpu:x86-64")
    sketch = generate(workload, target.hardware).sketches[0]
    module = target.build(make_program(workload, sketch.algorithm, sketch.trace([0] * len(sketch.groups))))
    target.export(module, tmp_path, "product")
    (tmp_path / "main.c").write_text("int main(void) { return 0; }\n")
    command = [compiler, "-o", "main", "main.c", "-Wl,--no-as-needed", "./product.so"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_an_exported_kernel_runs_from_c(tmp_path: Path) -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs the system package that has cc")
    workload = workloads.matmul(7, 33, 5)
    module = build_module(workload)
    files = registry.get("cpu").export(module, tmp_path, "product")
    assert {"product.o", "product_runtime.o", "product.h", "product.so"} <= set(files)
    a, b = workload.make_inputs(0)
    for name, array in (("a", a), ("b", b)):
        (tmp_path / f"{name}.bin").write_bytes(array.tobytes())
    packed = next(math.prod(p.shape) for p in module.parameters if p.packed_from)
    (tmp_path / "main.c").write_text(
        f"""
#include <stdio.h>
#include <stdlib.h>
#include "product.h"
static void read_file(const char *path, float *to, size_t count) {{
  FILE *f = fopen(path, "rb");
  if (!f || fread(to, 4, count, f) != count) exit(2);
  fclose(f);
}}
int main(void) {{
  float *a = malloc({a.nbytes}), *b = malloc({b.nbytes}), *c = malloc(4 * 7 * 33);
  float *packed = aligned_alloc(64, ({packed} * 4 + 63) / 64 * 64);
  void *workspace = aligned_alloc(64, (PRODUCT_WORKSPACE_BYTES(2) + 63) / 64 * 64);
  read_file("a.bin", a, {a.size});
  read_file("b.bin", b, {b.size});
  product_pack_b(b, packed);
  product_run(a, packed, c, 2, workspace);
  fwrite(c, 4, 7 * 33, stdout);
  return 0;
}}
"""
    )
    link = [compiler, "main.c", "-o", "main", "./product.so", "-Wall", "-Werror"]
    subprocess.run(link, cwd=tmp_path, check=True)
    out = subprocess.run(["./main"], cwd=tmp_path, check=True, capture_output=True, timeout=60).stdout
    np.testing.assert_allclose(np.frombuffer(out, np.float32).reshape(7, 33), a @ b, rtol=1e-5, atol=1e-5)


def test_assembly_is_text() -> None:
    assert "kernel:" in registry.get("cpu").assembly(build_module(workloads.matmul(7, 33, 5)))


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([np.zeros((7, 5), np.float32)], "a kernel must be given its 2 inputs"),
        ([np.zeros((7, 5), np.float64), np.zeros((5, 33), np.float32)], "input `a` must be float32"),
        ([np.zeros((7, 5), np.float32), np.zeros((5, 34), np.float32)], r"input `b` must be .* of shape \(5, 33\)"),
    ],
)
def test_wrong_arrays_are_refused(inputs: list[np.ndarray], message: str) -> None:
    target = registry.get("cpu")
    with pytest.raises(RunError, match=message):
        target.load(build_module(workloads.matmul(7, 33, 5))).bind(inputs)


def test_nested_vectors_are_refused() -> None:
    x = te.placeholder((8, 8), name="x")
    y = te.compute((8, 8), lambda i, j: x[i, j] + 1.0, name="y")
    s = te.create_schedule(y.op)
    s[y].vectorize("i")
    s[y].vectorize("j")
    with pytest.raises(BuildError, match="vectorized loops must not nest"):
        registry.get("cpu").build(cleanup(lower(s.state)))


@pytest.mark.parametrize("spec", ["cpu:", "cuda:", "vta:", "cpu:aarch64:"])
def test_a_colon_with_nothing_behind_it_names_no_target(spec: str) -> None:
    with pytest.raises(registry.UnknownTarget, match=f"`target` must have a variant .* but got target='{spec}'"):
        registry.get(spec)


def test_an_unknown_target_is_named() -> None:
    with pytest.raises(registry.UnknownTarget, match="`target` must be one of cpu"):
        registry.get("tpu")


def test_a_processor_is_known_by_its_code() -> None:
    hardware = registry.get("cpu:sapphirerapids").hardware
    assert (hardware.vector_bytes, hardware.vector_registers) == (64, 32)
    assert {"avx512vnni", "avx512bf16"} <= set(hardware.features)
    assert "avx512vnni" not in registry.get("cpu:skylake-avx512").hardware.features
    assert registry.get("cpu:bdver2").hardware.peak_flops > 0  # whose code may not run here
    with pytest.raises(ValueError, match="`target` must name a processor that LLVM knows, but got 'nonsense'"):
        registry.get("cpu:nonsense")


def test_another_processor_can_be_built_for() -> None:
    target = registry.get("cpu:x86-64-v3")
    assert target.hardware.vector_bytes == 32
    workload = workloads.matmul(8, 16, 4)
    sketch = generate(workload, target.hardware).sketches[0]
    choices = np.zeros((1, len(sketch.groups)), np.int32)
    text = target.assembly(target.build(make_program(workload, "direct", sketch.trace(choices[0]))))
    assert "ymm" in text and "zmm" not in text


@pytest.mark.parametrize("constant", [True, False])
def test_cold_constants_leave_the_output_as_it_is(constant: bool) -> None:
    workload = workloads.matmul(8, 32, 16, constant_b=constant)
    kernel = registry.get("cpu").load(build_module(workload))
    inputs = workload.make_inputs(0)
    warm, cold = kernel.bind(inputs), kernel.bind(inputs, copies=4)
    seconds = cold.time(5, 2)
    assert seconds.shape == (5,) and (seconds > 0).all()
    np.testing.assert_array_equal(cold.run(), warm.run())
    assert cold.copies == (1 if kernel.cold_timer is not None else 4)

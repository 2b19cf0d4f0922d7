"""Kernels in C compute what the interpreter says, and their text keeps to what it promises, with no warning at all."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, note, settings
from hypothesis import strategies as st

from search_space import te, workloads
from search_space.hardware import Hardware
from search_space.ir.stmt import LoopProgram
from search_space.lower import cleanup, lower
from search_space.schedule.errors import ScheduleError
from search_space.schedule.state import initial_state
from search_space.schedule.trace import Trace
from search_space.space import generate, make_program
from search_space.workloads import Workload
from targets import registry
from targets.base import BuildError, Module, RunError
from targets.c.compiler import Compiler
from targets.c.emit import MOST_WRITTEN
from targets.c.names import Names
from targets.c.source import Source, make_source
from targets.c.target import CTarget, get_target
from targets.c.values import float_literal
from tests.golden.cases import HARDWARE as VNNI
from tests.golden.cases import find_sketch, program
from tests.gpu import candidates
from tests.native import run_module
from tests.properties.running import MOST_STORES, examples, run_compiled, same, stores
from tests.properties.test_random_traces import CASES, HypothesisDraw, start
from tests.properties.traces import random_trace
from tests.search_space.operators.cases import SMALL
from tests.search_space.operators.test_definitions import check
from tests.targets.c.strict import WARNINGS, strict, variant_target, variants


@cache
def target() -> CTarget:
    return strict()


@pytest.mark.parametrize(("name", "dtype"), CASES)
@settings(deadline=None, print_blob=True, max_examples=examples(2), suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_random_programs_are_what_the_interpreter_says(name: str, dtype: str, data: st.DataObject) -> None:
    state, arrays, wanted = start(name, dtype)
    trace, scheduled = random_trace(HypothesisDraw(data), state)
    note(str(trace))
    try:
        program = cleanup(lower(scheduled))
    except ScheduleError:
        assume(False)
    assume(stores(program.body) <= MOST_STORES)
    note(make_source(program, "kernel").text)
    for output, found in run_compiled(target(), program, arrays).items():
        same(found, wanted[output], program.buffers[output].dtype, "kernel")


# ------------------------------------------------------------------ what compilers make of it
MISPLACED_TRACE = [
    {"step": "cache_write", "stage": "B", "scope": "local"},
    {"step": "compute_inline", "stage": "B.local"},
    {"step": "fuse", "stage": "B.local", "axes": ["i", "j"]},
    {"step": "split", "stage": "B.local", "axis": "i_j", "factors": [3, 5], "tail": "guard"},
    {"step": "fuse", "stage": "B.local", "axes": ["i_j.0", "i_j.1"]},
    {"step": "split", "stage": "B.local", "axis": "i_j.2", "factors": [13], "tail": "guard"},
    {"step": "compute_at", "stage": "B.local", "target": "B", "axis": "i"},
]
"""Steps of a program whose array of 48 bytes GCC 12 places at 8 modulo 16, and copies by moves that want 16."""


def _make_misplaced() -> tuple[LoopProgram, dict[str, Any], dict[str, Any]]:
    state, arrays, wanted = start("scale", "int64")
    return cleanup(lower(Trace.from_json(MISPLACED_TRACE).apply(state))), arrays, wanted


def test_automatic_arrays_are_aligned_in_what_is_built_and_what_is_exported(tmp_path: Path) -> None:
    """The stack is realigned for them, as an alignment of its own does."""
    module = target().build(_make_misplaced()[0])
    target().export(module, tmp_path, "layer")
    for text in (Source.of(module).library, (tmp_path / "layer.c").read_text()):
        assert re.search(r"^ +AUTOTUNE_LOCAL int64_t B_local\[6\];", text, re.MULTILINE)
        assert "#define AUTOTUNE_LOCAL __attribute__((aligned(32)))" in text.partition("void kernel(")[0]
    assert "AUTOTUNE_LOCAL" not in make_source(lower(start("scale", "int64")[0]), "kernel").text


@pytest.mark.parametrize("variant", variants(), ids=" ".join)
def test_no_compiler_misplaces_an_automatic_array(variant: tuple[str, ...]) -> None:
    program, arrays, wanted = _make_misplaced()
    for output, found in run_compiled(variant_target(variant), program, arrays).items():
        np.testing.assert_array_equal(found, wanted[output])


def test_an_array_that_nobody_reads_costs_no_warning() -> None:
    x = te.placeholder((6,), "int32", "x")
    y = te.compute((6,), lambda i: x[i] * 2, "y")
    z = te.compute((6,), lambda i: te.if_then_else(i < 6, x[i], y[i]), "z")
    schedule = te.create_schedule([z.op])
    schedule[y].set_scope("local")
    program = lower(schedule.state)
    assert "(void)y;" in make_source(program, "kernel").text
    np.testing.assert_array_equal(
        run_compiled(target(), program, {"x": np.arange(6, dtype=np.int32)})["z"], np.arange(6)
    )


@pytest.mark.parametrize("workload", SMALL, ids=str)
def test_every_operator_means_its_reference(workload: Workload) -> None:
    inputs = workload.make_inputs(1)
    rng = np.random.default_rng(list(workload.key.encode()))
    space = generate(workload, target().hardware)
    sketches = [sketch for sketch in space.sketches if sketch.algorithm != "library"]
    sketch, row = next(candidates.some_legal(sketches, rng))
    module = target().build(make_program(workload, sketch.algorithm, sketch.trace(row)))
    check(workload, run_module(target(), module, inputs)[0], inputs)


# ------------------------------------------------------------------ numbers
EDGES = np.array([0.0, 0.5, 1.0, 65504.0, 65519.0, 65520.0, 1e30, 6e-8, 2.98e-8, 2.99e-8, 6.1e-5, 3.4e38], np.float32)


def _convert(source: str, dtype: str, values: Any) -> Any:
    x = te.placeholder(values.shape, source, "x")
    out = te.compute(values.shape, lambda i: x[i].astype(dtype), "out")
    loops = lower(initial_state([out]))
    return run_compiled(target(), loops, {"x": values})["out"]


@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16])
def test_halves_are_those_of_numpy(kind: Any) -> None:
    """Every half, and floats at, above and below the middle between two."""
    dtype = np.dtype(kind).name
    halves = np.arange(1 << 16, dtype=np.uint16).view(kind)
    wide = halves.astype(np.float32)
    found = _convert(dtype, "float32", halves)
    np.testing.assert_array_equal(found.view(np.uint32)[~np.isnan(wide)], wide.view(np.uint32)[~np.isnan(wide)])
    assert np.isnan(found[np.isnan(wide)]).all()
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 1 << 32, 200_000, dtype=np.uint32)
    bits[::2] = bits[::2] & 0xFFFF0000 | rng.choice(np.array([0x0FFF, 0x1000, 0x1001, 0x7FFF, 0x8000, 0x8001]), 100_000)
    floats = np.concatenate([bits.view(np.float32), EDGES, -EDGES, np.array([np.inf, -np.inf, np.nan], np.float32)])
    with np.errstate(all="ignore"):
        wanted = floats.astype(kind)
    narrow = _convert("float32", dtype, floats)
    number = ~np.isnan(floats)
    np.testing.assert_array_equal(narrow.view(np.uint16)[number], wanted.view(np.uint16)[number])
    assert np.isnan(narrow[~number].astype(np.float32)).all()


def test_constants_are_read_back_as_they_are() -> None:
    rng = np.random.default_rng(1)
    for value in [*rng.integers(0, 1 << 32, 3000, dtype=np.uint32).view(np.float32), *EDGES, np.float32(1e-45)]:
        if np.isfinite(value):
            text = float_literal(float(value))
            assert text.endswith("F") and np.float32(text[:-1]) == value
    assert [float_literal(v) for v in (float("inf"), -float("inf"), 3.0)] == ["INFINITY", "-INFINITY", "3.0F"]
    assert float_literal(float("nan")) == "NAN"


INTEGERS: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
    "shift": lambda a, b: (a << b) - (a >> b),
}


@pytest.mark.parametrize("name", INTEGERS)
def test_integers_wrap_around_and_round_down(name: str) -> None:
    rng = np.random.default_rng(2)
    a = np.concatenate([rng.integers(-(2**31), 2**31, 500), [-(2**31), 2**31 - 1, -7, 7]]).astype(np.int32)
    b = rng.choice(np.array([-3, -1, 0, 2, 3, 31, 100_003], np.int32), a.shape)
    a[::50], b[::50] = -(2**31), -1
    if name == "shift":
        b = rng.integers(0, 32, a.shape).astype(np.int32)
    x, y = te.placeholder(a.shape, "int32", "x"), te.placeholder(a.shape, "int32", "y")
    out = te.compute(a.shape, lambda i: INTEGERS[name](x[i], y[i]), "out")
    with np.errstate(all="ignore"):
        wanted = INTEGERS[name](a, b)
    found = run_compiled(target(), lower(initial_state([out])), {"x": a, "y": b})["out"]
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("name", ["sin", "cos", "log1p", "expm1", "exp2", "rint"])
def test_functions_keep_their_digits(name: str) -> None:
    x = np.array([1e-10, -1e-10, 0.3, -0.9, 20.0, 1e5, 2e9, 1e12, 8388609, np.inf, np.nan, -0.0], np.float32)
    given = te.placeholder(x.shape, name="x")
    out = te.compute(x.shape, lambda i: te.const(0.0, "float32") + getattr(te, name)(given[i]), "out")
    with np.errstate(all="ignore"):
        wanted = getattr(np, name)(x.astype(np.float64)).astype(np.float32)
    found = run_compiled(target(), lower(initial_state([out])), {"x": x})["out"]
    np.testing.assert_allclose(found, wanted, rtol=3e-7)


@pytest.mark.parametrize("name", ["fmod", "floor_mod", "floor_divide"])
def test_remainders_of_floats_are_those_of_numpy(name: str) -> None:
    pairs = [(1, 0.1), (6, 0.2), (5.5, np.inf), (-np.inf, 2), (2.0**31, 3), (1e20, -3), (7, 0.7), (1, 0), (-1, 1e-45)]
    a, b = (np.array(side, np.float32) for side in zip(*pairs, strict=True))
    x, z = (te.placeholder(a.shape, name=n) for n in "xz")
    out = te.compute(a.shape, lambda i: getattr(te, name)(x[i], z[i]), "out")
    with np.errstate(all="ignore"):
        wanted = {"floor_mod": np.mod}.get(name, getattr(np, name, None))(a, b)
    np.testing.assert_array_equal(run_compiled(target(), lower(initial_state([out])), {"x": a, "z": b})["out"], wanted)


# ------------------------------------------------------------------ the text
def _source(name: str, workload: Workload, of: str) -> Source:
    return make_source(program(workload, find_sketch(workload, of)), name)


CONV = workloads.conv2d(height=6, width=6, in_channels=4, out_channels=20, padding=1, bias=True, activation="relu")


def test_the_text_allocates_nothing_and_calls_only_what_stands_before() -> None:
    for of in ("direct:h.1>w.0>k.1/rh>rw>rc/pad_at_h.1", "winograd2:block/pad_inline"):
        text = _source("kernel", CONV, of).text
        assert not re.search(r"alloc|\bfree\b|\bgoto\b|\bwhile\b|\bunion\b", text)
        defined: list[str] = []
        for line in text.splitlines():
            head = re.match(r"(?:static inline )?\w+ (\w+)\(", line)
            if head:
                defined.append(head.group(1))
            elif defined:
                assert not re.search(rf"\b{defined[-1]}\(", line), "nothing calls itself"
        assert len(set(defined)) == len(defined) and "kernel" in defined
        assert max(map(len, text.splitlines())) <= 120
        assert all(line.count(";") <= 1 for line in text.splitlines() if "for (" not in line)


def test_the_same_program_is_the_same_text_whatever_was_made_before() -> None:
    program_text = (
        "from tests.golden.cases import CASES, program, find_sketch;"
        "from targets.c.source import make_source;{before}"
        "w, of = CASES['conv2d']; print(make_source(program(w, find_sketch(w, of)), 'kernel').text)"
    )
    before = ("", "w, of = CASES['softmax']; program(w, find_sketch(w, of));")
    root = Path(__file__).parents[3]
    texts = {
        subprocess.run(
            [sys.executable, "-c", program_text.format(before=b)], cwd=root, capture_output=True, text=True, check=True
        ).stdout
        for b in before
    }
    assert len(texts) == 1


def test_names_are_identifiers_that_nobody_has() -> None:
    names = Names("kernel")
    given = ["x.0", "x_0", "float", "exp", "kernel", "7", "uint8_t", "_a", "f32_max", "linux", "\u00e9"]
    found = [names(name) for name in given]
    assert found[:6] == ["x_0", "x_0_2", "float_2", "exp_2", "kernel_2", "v7"] and len(set(found)) == len(found)
    assert all(re.fullmatch(r"[A-Za-z]\w*", name, re.ASCII) for name in found) and "f32_max" not in found
    assert [names(name) for name in given] == found


def test_long_unrolled_loops_stay_loops() -> None:
    for extent, loops in ((MOST_WRITTEN, False), (MOST_WRITTEN + 1, True)):
        x = te.placeholder((extent,), name="x")
        out = te.compute(x.shape, lambda i: x[i] + 1, "out")  # noqa: B023  (called here and now)
        schedule = te.create_schedule([out.op])
        schedule[out].unroll(out.op.axis[0])
        assert ("for (" in make_source(lower(schedule.state), "kernel").text) is loops


def test_exported_kernels_compile_alone(tmp_path: Path) -> None:
    module = target().build(program(CONV, find_sketch(CONV, "winograd2:block/pad_inline")), "winograd")
    assert target().export(module, tmp_path, "layer") == ["layer.c", "layer.h"]
    assert "winograd_workspace" in (tmp_path / "layer.h").read_text()
    for standard in ("c99", "c11"):
        command = ["cc", f"-std={standard}", "-O1", *WARNINGS, "-c", "layer.c"]
        subprocess.run(command, cwd=tmp_path, check=True)


# ------------------------------------------------------------------ what is refused
def test_a_compiler_that_is_missing_is_said_to_be() -> None:
    absent = get_target("c:no-such-arch-gcc")
    assert absent.unavailable() == "the compiler `no-such-arch-gcc` must be installed, but there is none of that name"
    assert absent.hardware.vector_bytes == 16
    with pytest.raises(BuildError, match="the compiler `no-such-arch-gcc` must be installed"):
        absent.build(lower(start("matmul", "float32")[0]))


def test_what_a_compiler_says_is_the_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken-gcc").write_text("#!/bin/sh\necho no space left >&2\nexit 1\n")
    (tmp_path / "broken-gcc").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with pytest.raises(BuildError, match="`broken-gcc` must compile, but said: no space left"):
        CTarget(Compiler("broken-gcc")).build(lower(start("matmul", "float32")[0]))


@pytest.mark.parametrize("command", ["reboot", "/usr/bin/gcc", "gcc -o/etc/passwd", "gcc -fplugin=x", "gcc @file"])
def test_what_is_no_compiler_is_refused(command: str) -> None:
    with pytest.raises(ValueError, match="`c:COMPILER`.* must"):
        registry.get(f"c:{command}")


def test_instructions_are_refused() -> None:
    workload = workloads.matmul(4, 32, 8, dtype="int8")
    loops = program(workload, find_sketch(workload, "direct:j.1>i.1/r"))
    assert "avx512vnni" in VNNI.features
    with pytest.raises(BuildError, match="a program must be made of loops, buffers and stores, but got"):
        target().build(loops)
    assert not target().hardware.features


def test_a_module_for_another_machine_is_not_loaded() -> None:
    built = target().build(lower(start("matmul", "float32")[0]))
    other = Module.from_bytes(built.to_bytes())
    other.metadata["machine"] = "riscv32-none-elf"
    with pytest.raises(RunError, match="a module must be for .* to run here, but got one for riscv32-none-elf"):
        target().load(other)


def test_the_machine_is_what_the_compiler_says() -> None:
    here: Hardware = get_target("c").hardware
    plain = get_target("c:gcc -mno-avx").hardware if "__x86_64__" in Compiler().macros else here
    assert plain.vector_bytes == 16 and here.vector_bytes >= 16
    assert here.cores == 1 and here.kind == "cpu" and not here.features

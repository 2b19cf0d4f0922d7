"""The contract of the table of operators: folding, evaluation, bounds and emitted code agree on every row.

A new row of `search_space.ir.semantics` is held to this with no edit here.
"""

from __future__ import annotations

import math
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from search_space import te
from search_space.dtypes import FLOATS, numpy_dtype
from search_space.ir.columns import compile_columns
from search_space.ir.expr import BOOL, Expr, call, cast, const, load, make, var
from search_space.ir.intervals import DTYPE_RANGES
from search_space.ir.semantics import BINARY, FUNCTIONS, apply_function
from search_space.ir.stmt import LoopProgram, Store, seq
from search_space.operators.evaluation import evaluate
from targets import registry
from targets.c.values import CALLS as IN_C
from targets.cpu.vector_math import _EMIT as ON_CPU
from targets.cuda.kernels import device_program
from targets.cuda.program_text import emit_program
from targets.cuda.values import CALLS as ON_GPU
from tests.interpreter import interpret
from tests.targets.c.strict import strict
from tests.targets.cuda.emulator import emulate
from tests.targets.cuda.on_host import HostPrograms
from tests.targets.cuda.programs import LIMITS, buffer, loop

EDGES = (0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.3, 1e-30, -1e-30, 1e30, 1e-45, 88.0, -100.0)
SPECIAL = (math.inf, -math.inf, math.nan)
BOUNDS = ((-3.0, 3.0), (-1.0, 1.0), (0.0, 4.0), (0.25, 60.0), (1e-3, 2.0), (-8.0, -0.5))
INTEGERS = ("int8", "uint8", "int32")
NUMBERS = {
    **dict.fromkeys(FLOATS, (0.0, 1.0, -1.0, 0.5, -2.5, 3.25, 100.0, -7.0)),
    "int8": (-128, -7, -1, 0, 1, 2, 100, 127),
    "uint8": (0, 1, 2, 7, 100, 127, 128, 255),
    "int32": (-(2**31), -7, -1, 0, 1, 2, 33, 2**31 - 1),
    BOOL: (False, True) * 4,
}
DIVIDES = ("div", "floordiv", "mod", "fmod")
PAIRS = [(op, dtype) for op, row in BINARY.items() for dtype in NUMBERS if dtype in row.operands[1]]


def program(value: Expr, kind: str, count: int, *dtypes: str) -> LoopProgram:
    """`y[i] = value` over the elements of x (and z), in one loop of a kind."""
    params = [buffer(name, count, dtype=dtype) for name, dtype in zip("xz", dtypes, strict=False)]
    body = loop("i", count, kind, Store("y", (var("i"),), value))
    return LoopProgram("test", (*params, buffer("y", count, dtype=value.dtype)), body, ("y",))


def on_cpu(value: Expr, lanes: str, *arrays: np.ndarray) -> np.ndarray:
    target = registry.get("cpu")
    dtypes = [str(a.dtype) for a in arrays]
    return target.load(target.build(program(value, lanes, len(arrays[0]), *dtypes))).bind(list(arrays)).run()


def emulate_value(value: Expr, *arrays: np.ndarray) -> np.ndarray:
    dtypes = [str(a.dtype) for a in arrays]
    made = device_program(program(value, "threadIdx.x", len(arrays[0]), *dtypes), LIMITS)
    return emulate(made, dict(zip("xz", arrays, strict=False)))["y"]


def interpret_value(value: Expr, *arrays: np.ndarray) -> np.ndarray:
    dtypes = [str(a.dtype) for a in arrays]
    made = program(value, "serial", len(arrays[0]), *dtypes)
    return interpret(made, dict(zip("xz", arrays, strict=False)))["y"]


def element(name: str, dtype: str) -> Expr:
    return load(name, (var("i"),), dtype)


def compute_reference(op: Any, *arrays: np.ndarray) -> np.ndarray:
    """Evaluates an operator by its definition."""
    given = [te.placeholder(a.shape, str(a.dtype), name) for name, a in zip("xz", arrays, strict=False)]
    out = te.compute(arrays[0].shape, lambda i: op(*(x[i] for x in given)), name="y")
    return evaluate([*given, out], list(arrays))


def test_every_function_is_emitted_and_no_other() -> None:
    assert set(ON_CPU) == set(FUNCTIONS) == set(ON_GPU) == set(IN_C)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_means_the_same_to_all(name: str, dtype: str) -> None:
    with np.errstate(over="ignore"):
        x = np.array([*EDGES, *SPECIAL], np.float32).astype(numpy_dtype(dtype))
    wanted = apply_function(name, x, dtype)
    assert wanted.dtype == x.dtype
    value = call(name, element("x", dtype))
    for found in (interpret_value(value, x), emulate_value(value, x), compute_reference(getattr(te, name), x)):
        assert found.dtype == x.dtype
        np.testing.assert_array_equal(found.astype(np.float32), wanted.astype(np.float32))
    step = {"float32": 2.0**-21, "float16": 2.0**-10, "bfloat16": 2.0**-7}[dtype]
    for lanes in ("serial", "vectorize"):
        found = on_cpu(value, lanes, x)
        near = found.astype(np.float64), wanted.astype(np.float64)
        np.testing.assert_allclose(*near, rtol=step, atol=0.0 if FUNCTIONS[name].exact else 1e-6)


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if hasattr(math, name)])
def test_a_function_is_what_its_name_says(name: str) -> None:
    x = np.array([0.25, 0.5, 1.5, 2.5, 3.3, 20.0])
    np.testing.assert_allclose(FUNCTIONS[name].array(x), [getattr(math, name)(v) for v in x], rtol=1e-11)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_estimates_hold_every_value(name: str) -> None:
    row, looked_at = FUNCTIONS[name], 0
    for low, high in BOUNDS:
        if not row.defined(low):
            continue
        looked_at += 1
        found = row.array(np.linspace(low, high, 501))
        least, greatest, size, slope = row.estimate(low, high, max(abs(low), abs(high)))
        slack = max(row.step, 2.0**-23) * np.abs(found).max()
        assert least - slack <= found.min() and found.max() <= greatest + slack and size > 0 and slope > 0
    assert looked_at and row.cost >= 1


def test_functions_in_cuda_text(tmp_path: Path) -> None:
    x = np.array([*EDGES, *SPECIAL], np.float32)
    made = {
        name: device_program(
            program(call(name, element("x", "float32")), "threadIdx.x", len(x), "float32"), LIMITS, f"f_{name}"
        )
        for name in FUNCTIONS
    }
    host = HostPrograms(list(made.values()), tmp_path)
    for name, of in made.items():
        arrays = {"x": x, "y": np.zeros_like(x)}
        host.run(of, arrays)
        wanted = apply_function(name, x, "float32")
        np.testing.assert_allclose(arrays["y"], wanted, rtol=2.0**-21, atol=1e-37, err_msg=name)


@pytest.mark.parametrize(("op", "dtype"), PAIRS)
def test_an_operator_means_the_same_to_all(op: str, dtype: str) -> None:
    row, kind = BINARY[op], numpy_dtype(dtype)
    numbers = (*NUMBERS[dtype], *(SPECIAL if dtype in FLOATS and op not in DIVIDES else ()))
    pairs = list(product(numbers, repeat=2))
    x, z = (np.array(side).astype(kind) for side in zip(*pairs, strict=True))
    value = make(op, element("x", dtype), element("z", dtype))
    assert (value.dtype == BOOL) == (row.truth or dtype == BOOL)
    with np.errstate(all="ignore"):  # of quotients by zero, and of the least number by -1
        wanted = np.asarray(row.array(x, z)).astype(numpy_dtype(value.dtype))
        found = {"interpreter": interpret_value(value, x, z), "emulator": emulate_value(value, x, z)}
        found["reference"] = compute_reference(lambda a, b: make(op, a, b), x, z)
    if dtype not in ("float16", "bfloat16") and op not in DIVIDES:
        folded = [make(op, const(a, dtype), const(b, dtype)).value for a, b in zip(x.tolist(), z.tolist(), strict=True)]
        found["folding"] = np.array(folded).astype(wanted.dtype)
    found |= {f"CPU, {lanes}": on_cpu(value, lanes, x, z) for lanes in ("serial", "vectorize")}
    for name, values in found.items():
        assert values.dtype == wanted.dtype, name
        wide = (np.float64 if dtype in FLOATS else wanted.dtype) if wanted.dtype != np.bool_ else np.bool_
        np.testing.assert_array_equal(values.astype(wide), wanted.astype(wide), err_msg=name)


def limited_pairs(dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns pairs of finite numbers, infinities and NaN, (256,) each, so that vectors of 16 divide them."""
    # The instruction that rounds to bfloat16 makes zeros of denormal numbers.
    small = 2.0**-20 if dtype == "bfloat16" else 2.0**-8 * float(np.finfo(dtype).tiny)
    numbers = np.array([*NUMBERS["float32"], -0.0, small, 3.0, -1.5, 65504.0, *SPECIAL]).astype(numpy_dtype(dtype))
    x, z = np.meshgrid(numbers, numbers)
    return x.reshape(-1), z.reshape(-1)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("op", ["min", "max"])
def test_extremes_keep_nan_in_vectors_of_any_width(op: str, dtype: str) -> None:
    x, z = limited_pairs(dtype)
    half = x.dtype.type(0.5)
    with np.errstate(all="ignore"):
        pair, one = BINARY[op].array(x, z), BINARY[op].array(x, half)
        wanted = np.stack([pair, one, one, np.full_like(x, math.nan), BINARY[op].array(pair, half)]).astype(float)
    target = registry.get("cpu")
    for lanes in (16, 8, 4, 1):
        at = var("o") * lanes + var("i")
        a, b = (load(name, (at,), dtype) for name in "xz")
        values = [make(op, a, b), make(op, a, 0.5), make(op, const(0.5, dtype), a), make(op, a, math.nan)]
        values.append(make(op, make(op, a, b), make(op, 0.5, b)))
        stores = [loop("i", lanes, "vectorize", Store("y", (const(k), at), value)) for k, value in enumerate(values)]
        params = [*(buffer(name, len(x), dtype=dtype) for name in "xz"), buffer("y", len(values), len(x), dtype=dtype)]
        made = LoopProgram("test", tuple(params), loop("o", len(x) // lanes, "serial", *stores), ("y",))
        found = target.load(target.build(made)).bind([x, z]).run()
        np.testing.assert_array_equal(found.astype(float), wanted, err_msg=f"{lanes} lanes")


@pytest.mark.parametrize("count", [5, 16, 37])
@pytest.mark.parametrize("op", ["min", "max"])
def test_the_extreme_of_a_row_is_nan_wherever_that_stands(op: str, count: int) -> None:
    x = np.random.default_rng(0).uniform(-1, 1, (count + 2, count)).astype(np.float32)
    np.fill_diagonal(x, math.nan)
    x[count], x[count + 1] = math.inf, -math.inf
    row, nothing = (var("row"),), -math.inf if op == "max" else math.inf

    def make_reduction(kind: str) -> LoopProgram:
        each = loop("k", count, kind, Store("y", row, load("x", (*row, var("k")), "float32"), op))
        body = loop("row", len(x), "serial", seq(Store("y", row, const(nothing, "float32")), each))
        return LoopProgram("test", (buffer("x", *x.shape), buffer("y", len(x))), body, ("y",))

    found = {"interpreter": interpret(make_reduction("serial"), {"x": x})["y"]}
    for target, kind in ((registry.get("cpu"), "serial"), (registry.get("cpu"), "vectorize"), (strict(), "serial")):
        found[f"{target}, {kind}"] = target.load(target.build(make_reduction(kind))).bind([x]).run()
    for name, values in found.items():
        np.testing.assert_array_equal(values, x.max(1) if op == "max" else x.min(1), err_msg=name)


def test_extremes_in_text_of_c_and_cuda(tmp_path: Path) -> None:
    x, z = limited_pairs("float32")
    a, b = element("x", "float32"), element("z", "float32")
    whole = make("min", make("max", a, -128.0), 127.0)
    values = {op: make(op, a, b) for op in ("min", "max")} | {"const": make("max", a, 0.5), "cast": cast(whole, "int8")}
    right = {"min": np.minimum(x, z), "max": np.maximum(x, z), "const": np.maximum(x, np.float32(0.5))}
    right["cast"] = np.fmin(np.fmax(x, -128), 127).astype(np.int8)
    threads = {
        name: device_program(program(value, "threadIdx.x", len(x), "float32", "float32"), LIMITS, f"f_{name}")
        for name, value in values.items()
    }
    host = HostPrograms(list(threads.values()), tmp_path)
    for name, value in values.items():
        arrays = {"x": x, "z": z, "y": np.zeros_like(right[name])}
        host.run(threads[name], arrays)
        in_c = strict().load(strict().build(program(value, "serial", len(x), "float32", "float32")))
        ways = {"CUDA": arrays["y"], "C": in_c.bind([x, z]).run(), "emulator": emulate_value(value, x, z)}
        ways |= {"interpreter": interpret_value(value, x, z)}
        ways |= {lanes: on_cpu(value, lanes, x, z) for lanes in ("serial", "vectorize")}
        for way, found in ways.items():
            np.testing.assert_array_equal(found, right[name], err_msg=f"{name}, {way}")
    assert "max.NaN.f32" in emit_program(threads["max"])


def test_quotients_are_folded_as_they_are_computed() -> None:
    pairs = {"floordiv": "int32", "mod": "int32", "div": "float32", "fmod": "float32"}
    assert set(pairs) == set(DIVIDES)
    for op, dtype in pairs.items():
        for a, b in product(NUMBERS[dtype], repeat=2):
            if b and (a, b) != (-(2**31), -1):
                with np.errstate(all="ignore"):
                    wanted = BINARY[op].array(numpy_dtype(dtype).type(a), numpy_dtype(dtype).type(b))
                np.testing.assert_array_equal(make(op, const(a, dtype), const(b, dtype)).value, wanted)
    assert math.isnan(make("fmod", const(1.0, "float32"), const(0.0, "float32")).value)
    for op in ("floordiv", "mod"):
        with pytest.raises(TypeError, match=rf"operands of `{op}` must be integers \(use te.floor_divide"):
            make(op, const(1.0, "float32"), const(2.0, "float32"))


@pytest.mark.parametrize("op", [op for op, row in BINARY.items() if row.column is not None])
def test_columns_mean_what_folding_does(op: str) -> None:
    dtype = "float32" if op == "div" else BOOL if op in ("and", "or") else "int64"
    numbers = (False, True) if dtype == BOOL else range(-6, 7)
    pairs = [(a, b) for a in numbers for b in numbers if b or op not in DIVIDES]
    value = make(op, var("x", dtype), var("z", dtype))
    found = compile_columns([value], ["x", "z"])(np.array(pairs, np.float64).T)
    np.testing.assert_array_equal(found[0], [float(BINARY[op].number(a, b)) for a, b in pairs])


@pytest.mark.parametrize("op", [op for op, row in BINARY.items() if row.operands[1] >= set(INTEGERS)])
def test_intervals_hold_every_value(op: str) -> None:
    row, rng = BINARY[op], np.random.default_rng(0)
    for _ in range(300):
        a, b = (tuple(sorted(rng.integers(-12, 13, 2).tolist())) for _ in "ab")
        found = row.interval(a, b)
        left, right = (range(side[0], side[1] + 1) for side in (a, b))
        values = [row.number(x, y) for x in left for y in right if y or op not in DIVIDES]
        least, greatest = found if found is not None else DTYPE_RANGES["int64"]
        assert all(least <= value <= greatest for value in values), (a, b, found)

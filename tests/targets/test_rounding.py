"""Floats rounded to bytes by an addition: the same as rounding, limiting and converting, whatever the float is."""

from __future__ import annotations

import numpy as np
import pytest

from search_space import te
from search_space.ir.expr import Expr
from search_space.space import generate, make_program
from search_space.workloads import Workload
from targets import registry
from targets.base import Module
from targets.cpu.rounding import match_byte_form

ENDS = {"uint8": (0, 255), "int8": (-128, 127)}


def byte(number: Expr, dtype: str, low: float, high: float) -> Expr:
    return te.minimum(te.maximum(number, low), high).astype("int32").astype(dtype)


def build_module(workload: Workload) -> Module:
    target = registry.get("cpu")
    sketch = generate(workload, target.hardware).sketches[0]
    choices = np.zeros((1, len(sketch.groups)), np.int32)
    return target.build(make_program(workload, sketch.algorithm, sketch.trace(choices[0])))


def draw_floats() -> np.ndarray:
    """Floats around every byte, ties among them, around every power of two, and beyond all numbers."""
    halves = np.arange(-1100, 1101, dtype=np.float32) / 2
    powers = np.ldexp(np.float32(1), np.arange(-30, 128)).astype(np.float32)
    near = np.concatenate([halves, powers, -powers, powers * np.float32(1.5), -powers * np.float32(1.5)])
    sides = [near, np.nextafter(near, np.float32(np.inf)), np.nextafter(near, np.float32(-np.inf))]
    whole = np.concatenate([*sides, np.float32([0.0, -0.0, np.inf, -np.inf])])
    return whole[: len(whole) // 16 * 16 + 3]  # lanes that are left over, too


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("zero", [None, 0, 1, 100])
@pytest.mark.parametrize("inset", [0, 5])
def test_bytes_are_those_of_rounding_limiting_and_converting(dtype: str, zero: int | None, inset: int) -> None:
    low, high = ENDS[dtype][0] + inset, ENDS[dtype][1] - inset
    values = draw_floats()
    x, y = te.placeholder(values.shape, name="x"), te.placeholder((1,), dtype, "y", True)

    def of(i: Expr) -> Expr:
        whole = te.rint(x[i]) if zero is None else te.rint(x[i]) + y[0].astype("float32")
        return byte(whole, dtype, float(low), float(high))

    given = [values] if zero is None else [values, np.array([zero], dtype)]
    workload = Workload.of([*[x, y][: len(given)], te.compute(values.shape, of, name="byte")])
    module = build_module(workload)
    found = registry.get("cpu").load(module).bind(given).run(1)
    wanted = np.clip(np.rint(values.astype(np.float64)) + (zero or 0), low, high).astype(dtype)
    np.testing.assert_array_equal(found, wanted)
    assert "llvm.rint" not in module.llvm_ir and "fptosi" not in module.llvm_ir


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("zero", [None, 0, 100])
@pytest.mark.parametrize("subtrahend", [0, 7, 127])
def test_differences_of_bytes_are_floats_at_once(dtype: str, zero: int | None, subtrahend: int) -> None:
    low, high = ENDS[dtype]
    values = draw_floats()
    x, y = te.placeholder(values.shape, name="x"), te.placeholder((1,), dtype, "y", True)
    z = te.placeholder((1,), dtype, "z", True)

    def of(i: Expr) -> Expr:
        whole = te.rint(x[i]) if zero is None else te.rint(x[i]) + y[0].astype("float32")
        return (byte(whole, dtype, low, high).astype("int32") - z[0].astype("int32")).astype("float32")

    tensors = [x, *([] if zero is None else [y]), z, te.compute(values.shape, of, name="difference")]
    given = [values, *([] if zero is None else [np.array([zero], dtype)]), np.array([subtrahend], dtype)]
    module = build_module(Workload.of(tensors))
    found = registry.get("cpu").load(module).bind(given).run(1)
    wanted = np.clip(np.rint(values.astype(np.float64)) + (zero or 0), low, high) - subtrahend
    np.testing.assert_array_equal(found, wanted.astype(np.float32))
    assert "fptosi" not in module.llvm_ir and "trunc <" not in module.llvm_ir


@pytest.mark.parametrize(("low", "high"), [(0.0, 256.0), (-1.0, 255.0), (0.5, 255.0), (9.0, 3.0)])
def test_limits_that_no_byte_has_are_left_alone(low: float, high: float) -> None:
    x = te.placeholder((8,), name="x")[0]
    assert match_byte_form(byte(te.rint(x), "uint8", 0.0, 255.0)) is not None
    assert match_byte_form(byte(te.rint(x), "uint8", low, high)) is None


def test_other_forms_are_left_alone() -> None:
    x, y = te.placeholder((8,), name="x")[0], te.placeholder((8,), name="y")[0]
    limited = te.minimum(te.maximum(te.rint(x), 0.0), 255.0)
    assert match_byte_form(limited.astype("int32")) is None
    assert match_byte_form(limited.astype("uint8")) is None  # no whole number in between: another conversion
    for value in (te.rint(x) + y, te.floor(x), x, te.rint(x) * 2.0):  # y may be a half
        assert match_byte_form(byte(value, "uint8", 0.0, 255.0)) is None
    assert match_byte_form(te.minimum(te.rint(x), 255.0).astype("int32").astype("uint8")) is None
    assert match_byte_form(te.maximum(te.minimum(te.rint(x), 255.0), 0.0).astype("int32").astype("uint8")) is None


def test_nan_within_limits_is_true() -> None:
    values = np.float32([np.nan, 0.0, -0.0, -1.0, 0.25, 3.0, np.inf, -np.inf] * 5)
    x = te.placeholder(values.shape, name="x")
    truth = te.compute(values.shape, lambda i: te.minimum(te.maximum(x[i], 0.0), 1.0).astype("bool"), name="truth")
    workload = Workload.of([x, truth])
    found = registry.get("cpu").load(build_module(workload)).bind([values]).run(1)
    wanted = np.clip(values, 0, 1).astype(bool)
    np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(workload.reference(values), wanted)

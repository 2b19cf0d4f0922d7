"""Shifts of int32: one meaning for every amount, in NumPy, in the interpreter and on the machine."""

from __future__ import annotations

import numpy as np
import pytest

from search_space import te, te_json
from search_space.ir.expr import const, var
from search_space.operators import evaluation
from search_space.space import generate, make_program
from search_space.workloads import Workload
from targets import registry
from tests.interpreter import interpret

ROWS, CHANNELS = 3, 37


def make_shifts() -> list[te.Tensor]:
    x = te.placeholder((ROWS, CHANNELS), "int32", "x")
    amount = te.placeholder((CHANNELS,), "int32", "amount", constant=True)
    return [x, amount, te.compute(x.shape, lambda i, j: ((x[i, j] << 3) + (x[i, j] >> amount[j])) >> 1, name="out")]


def inputs() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.integers(-(2**31), 2**31, (ROWS, CHANNELS), np.int64).astype(np.int32)
    return [x, rng.integers(-40, 80, CHANNELS).astype(np.int32)]


def by_hand(x: np.ndarray, amount: np.ndarray) -> np.ndarray:
    """Computes in Python's integers, which do not overflow."""

    def wrap(value: int) -> int:
        return (value + 2**31) % 2**32 - 2**31

    def one(value: int, by: int) -> int:
        return wrap(wrap(value * 8) + (value // 2 ** (by % 32))) // 2

    return np.array([[one(int(v), int(b)) for v, b in zip(row, amount, strict=True)] for row in x], np.int32)


def test_numpy_the_interpreter_and_the_machine_agree_with_long_integers() -> None:
    arrays, workload = inputs(), Workload.of(make_shifts())
    wanted = by_hand(*arrays)
    np.testing.assert_array_equal(evaluation.evaluate(make_shifts(), arrays), wanted)
    target = registry.get("cpu")
    for sketch in generate(workload, target.hardware).sketches:
        program = make_program(workload, "direct", sketch.trace([0] * len(sketch.groups)))
        found = interpret(program, dict(zip(("x", "amount"), arrays, strict=True)))
        np.testing.assert_array_equal(found["out"], wanted)
        np.testing.assert_array_equal(target.load(target.build(program)).bind(arrays).run(1), wanted)


def test_constants_fold_and_are_shown() -> None:
    x = var("x", "int32")
    assert (const(-5, "int32") >> 1).value == -3
    assert (const(1, "int32") << 31).value == -(2**31)
    assert (x << 0) is x and (x >> 0) is x
    assert str((x + 1) >> (x << 2)) == "x + 1 >> (x << 2)"
    assert str((x >> 1) + 1) == "(x >> 1) + 1"


def test_definitions_with_shifts_are_plain_data() -> None:
    data = te_json.to_json(make_shifts())
    np.testing.assert_array_equal(evaluation.evaluate(te_json.from_json(data), inputs()), by_hand(*inputs()))


@pytest.mark.parametrize("dtype", ["float32", "int8", "int64"])
def test_other_dtypes_are_refused(dtype: str) -> None:
    with pytest.raises(TypeError, match="operands of `shr` must be int32"):
        var("x", dtype) >> var("y", dtype)

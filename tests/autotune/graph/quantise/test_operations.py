"""Operations on bytes: the expression, NumPy and the machine agree on every number, ties and ends included."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.compiler.executable.compile import Schedule
from autotune.graph.ir import Array, GraphBuilder, GraphError, TensorType, array_type
from autotune.graph.ops import find
from autotune.graph.quantise.formats import Format
from autotune.tuner.task import Task
from autotune.tuner.untimed import select_by_roofline
from search_space.operators import evaluation
from search_space.space import make_program
from search_space.workloads import Workload
from targets import registry
from tests.autotune.fakes import settings_with


def on_the_machine(op: str, arrays: Sequence[Array], **attrs: Any) -> Array:
    types = [array_type(a) for a in arrays]
    workload = Workload.of(find(op).tensors(find(op).attributes(attrs, types), types))
    chosen = select_by_roofline(Task(op, workload), settings_with())
    target = registry.get("cpu")
    schedule = Schedule(chosen.algorithm, chosen.trace)
    program = make_program(workload, schedule.algorithm, schedule.trace)
    out: Array = target.load(target.build(program)).bind(list(arrays)).run(1)
    return out


def by_expression(op: str, arrays: Sequence[Array], **attrs: Any) -> Array:
    types = [array_type(a) for a in arrays]
    return evaluation.evaluate(find(op).tensors(find(op).attributes(attrs, types), types), arrays)


def in_numpy(op: str, arrays: Sequence[Array], **attrs: Any) -> Array:
    types = [array_type(a) for a in arrays]
    return find(op).evaluate(find(op).attributes(attrs, types), arrays)


def draw_inputs(rng: np.random.Generator, op: str, rows: int, channels: int) -> list[Array]:
    """Inputs with extremes in them."""
    sums = rng.integers(-(2**30), 2**30, (rows, channels)).astype(np.int32)
    sums[0] = rng.choice([-(2**31), 2**31 - 1, 0, -1, 1], channels)
    data = rng.integers(0, 256, (rows, channels)).astype(np.uint8)
    shift = rng.integers(0, 32, channels).astype(np.int32)
    bias = rng.integers(-(2**20), 2**20, channels).astype(np.int32)
    scale = (2.0 ** rng.uniform(-23, -21, channels)).astype(np.float32)  # most sums within bytes
    factor = rng.integers(-(2**20), 2**20, channels).astype(np.int32)
    halves = (rng.integers(-600, 600, (rows, channels)) / 2).astype(np.float32)
    near = np.nextafter(halves, rng.choice([-np.inf, np.inf], halves.shape)).astype(np.float32)
    numbers = np.concatenate([halves, near, np.full((1, channels), 1e30), np.full((1, channels), -1e30)])
    return {
        "quantise": [numbers.astype(np.float32), np.float32([1.0]), np.uint8([128])],
        "dequantise": [data, np.float32([0.123]), np.uint8([117])],
        "quantise to int8": [numbers.astype(np.float32), np.float32([1 / 0.7]), np.int8([-3])],
        "dequantise int8": [data, np.float32([2.0**-3]), np.int8([5])],
        "dequantise_sum": [sums, scale],
        "requantise": [sums, bias, shift],
        "rescale": [sums, bias, scale],
        "shift_left": [sums, shift],
        "widen": [data, factor],
        "offset": [data],
        "add_widened": [sums, data, factor],
        "limit": [data, np.uint8([3]), np.uint8([250])],
        "limit int8": [data, np.int8([-100]), np.int8([90])],
    }[op]


ELEMENTWISE = (
    "quantise",
    "dequantise",
    "dequantise_sum",
    "requantise",
    "rescale",
    "shift_left",
    "widen",
    "add_widened",
    "limit",
)
ATTRIBUTES: dict[str, dict[str, Any]] = {
    "requantise": {"low": 3, "high": 250},
    "rescale": {"low": 3, "high": 250},
}
SIGNED: dict[str, dict[str, Any]] = {
    "quantise to int8": {"dtype": "int8"},
    "dequantise int8": {},
    "requantise": {"low": -100, "high": 90, "dtype": "int8"},
    "rescale": {"low": -100, "high": 90, "dtype": "int8"},
    "widen": {},
    "add_widened": {},
    "offset": {},
    "limit int8": {},
}


def operation(case: str) -> str:
    return "requantise" if case == "rescale" else case.split()[0]  # by a float in place of a shift


def cases(rng: np.random.Generator, rows: int, channels: int) -> list[tuple[str, list[Array], dict[str, Any]]]:
    """Every operation on unsigned bytes, and those that there are on signed ones."""
    unsigned = [(op, draw_inputs(rng, op, rows, channels), ATTRIBUTES.get(op, {})) for op in ELEMENTWISE]
    signed = [(op, draw_inputs(rng, op, rows, channels), attrs) for op, attrs in SIGNED.items()]
    unsigned = [(operation(op), arrays, attrs) for op, arrays, attrs in unsigned]
    signed = [(operation(op), arrays, attrs) for op, arrays, attrs in signed]
    return [
        *unsigned,
        *((op, [a.view(np.int8) if a.dtype == np.uint8 else a for a in arrays], attrs) for op, arrays, attrs in signed),
    ]


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 1000), st.integers(1, 5), st.integers(1, 40))
def test_expressions_and_numpy_agree(seed: int, rows: int, channels: int) -> None:
    for op, arrays, attrs in cases(np.random.default_rng(seed), rows, channels):
        np.testing.assert_array_equal(by_expression(op, arrays, **attrs), in_numpy(op, arrays, **attrs), op)


@pytest.mark.parametrize("index", range(len(ELEMENTWISE) + len(SIGNED)))
def test_the_machine_agrees(index: int) -> None:
    op, arrays, attrs = cases(np.random.default_rng(1), 7, 37)[index]
    np.testing.assert_array_equal(on_the_machine(op, arrays, **attrs), in_numpy(op, arrays, **attrs), op)


@pytest.mark.parametrize("op", ["sum_pool2d", "max_pool2d"])
@pytest.mark.parametrize(("kernel", "stride", "padding"), [(2, 2, 0), (3, 2, 1), ((5, 4), 1, 0)])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_pools_of_bytes_are_exact(op: str, kernel: Any, stride: int, padding: int, dtype: Any) -> None:
    data = np.random.default_rng(0).integers(0, 256, (2, 9, 8, 19)).astype(np.uint8).view(dtype)
    attrs = {"kernel": kernel, "stride": stride, "padding": padding}
    found = in_numpy(op, [data], **attrs)
    around = -128 if op == "max_pool2d" and dtype is np.int8 else 0
    sides = [(0, 0), (padding, padding), (padding, padding), (0, 0)]
    wide = np.pad(data.astype(np.int64), sides, constant_values=around)
    window = (kernel, kernel) if isinstance(kernel, int) else kernel
    views = np.lib.stride_tricks.sliding_window_view(wide, window, axis=(1, 2))[:, ::stride, ::stride]
    np.testing.assert_array_equal(found, views.sum((-1, -2)) if op == "sum_pool2d" else views.max((-1, -2)))
    np.testing.assert_array_equal(on_the_machine(op, [data], **attrs), found)


@settings(max_examples=50, deadline=None)
@given(st.floats(1e-4, 300.0), st.integers(0, 255), st.integers(0, 1000))
def test_what_is_stored_is_the_nearest_that_can_be(scale: float, zero: int, seed: int) -> None:
    values = np.random.default_rng(seed).standard_normal(100).astype(np.float32) * np.float32(scale * 60)
    stored = Format(scale, zero)
    grid = stored.decode(np.arange(256, dtype=np.uint8))
    found = stored.decode(stored.encode(values))
    nearest = np.abs(grid[:, None] - values).min(0)
    np.testing.assert_allclose(np.abs(found - values), nearest, rtol=1e-4, atol=1e-4 * scale)


def test_inputs_of_another_dtype_are_refused() -> None:
    b = GraphBuilder("b", {"x": TensorType((2, 4)), "q": TensorType((2, 4), "uint8")})
    shift, scale = b.constant(np.zeros(4, np.int32)), b.constant(np.ones(1, np.float32))
    signed = b.constant(np.zeros(1, np.int8))
    for op, inputs in (
        ("quantise", ["q", scale, "q"]),
        ("quantise", ["x"]),
        ("quantise", ["x", scale, shift]),
        ("dequantise", ["x", scale, "q"]),
        ("dequantise", ["q", scale, scale]),
        ("limit", ["q", "x", "x"]),
        ("limit", ["q"]),
        ("requantise", ["q", shift, shift]),
        ("widen", ["q"]),
    ):
        with pytest.raises(GraphError, match="inputs must be"):
            b.add(op, inputs)
    sums = b.add("widen", ["q", shift])
    with pytest.raises(GraphError, match="`low` and `high` must be bytes in order"):
        b.add("requantise", [sums, shift, shift], low=3, high=300)
    with pytest.raises(GraphError, match="`low` and `high` must be bytes in order"):
        b.add("requantise", [sums, shift, shift], low=0, high=255, dtype="int8")
    with pytest.raises(GraphError, match="`dtype` must be one of uint8, int8, but got dtype='int16'"):
        b.add("quantise", ["x", scale, "q"], dtype="int16")
    with pytest.raises(GraphError, match="the zero must have the `dtype` of the bytes, uint8, but got int8"):
        b.add("quantise", ["x", scale, signed])
    with pytest.raises(GraphError, match="bytes must have one dtype, but got uint8, int8"):
        b.add("limit", ["q", signed, signed])
    with pytest.raises(GraphError, match="bytes must have one dtype, but got uint8, int8"):
        b.add("dequantise", ["q", scale, signed])
    for inputs in (["q"], ["q", signed], ["q", "q"], ["q", "q", "q"]):
        with pytest.raises(GraphError, match="inputs must be data and a number of their dtype to pad with"):
            b.add("pad_with", inputs, before=(1, 0), after=(0, 0))
    with pytest.raises(GraphError, match="4 dimensions"):
        b.add("sum_pool2d", ["q"])


def test_padding_with_a_number_that_is_an_input() -> None:
    rng = np.random.default_rng(0)
    for dtype, number in ((np.uint8, 131), (np.int8, -7), (np.float32, 0.5)):
        arrays = [rng.integers(0, 100, (2, 5, 7, 3)).astype(dtype), np.array([number], dtype)]
        sides: dict[str, Any] = {"before": (0, 1, 2, 0), "after": (0, 0, 1, 1)}
        wanted = np.pad(arrays[0], [(0, 0), (1, 0), (2, 1), (0, 1)], constant_values=number)
        for compute in (in_numpy, by_expression, on_the_machine):
            np.testing.assert_array_equal(compute("pad_with", arrays, **sides), wanted)


@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan"), float("inf"), 1e-40, 1e40])
def test_scales_that_are_none_are_refused(scale: float) -> None:
    with pytest.raises(ValueError, match="`scale` must be from"):
        Format(scale)


@pytest.mark.parametrize("zero", [-1, 256])
def test_zeros_that_are_no_bytes_are_refused(zero: int) -> None:
    with pytest.raises(ValueError, match=f"`zero` must be a byte, 0 to 255, but got zero={zero}"):
        Format(1.0, zero)

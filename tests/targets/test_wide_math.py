"""Functions by AVX-512: against float64 at floats of every size, and which expressions become them."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from search_space import te
from search_space.ir.expr import Expr
from search_space.lower import cleanup, lower
from search_space.operators.functions import ACTIVATIONS
from search_space.schedule.steps import Annotate, Split
from targets import registry
from targets.base import Module
from targets.cpu.piecewise import ERF, ERF_SHORT, GELU, GELU_SHORT, INTERVALS, TANH, TANH_SHORT, Table
from targets.cpu.wide_math import LANES, REQUIRED_FEATURE, ROUNDS, Form, match_form

SERVER = "cpu:sapphirerapids"
"""A processor that has the instructions, whatever this host is."""
EXACT: dict[str, Callable[[float], float]] = {
    "exp": lambda x: math.exp(x) if x < 709 else math.inf,
    "sigmoid": lambda x: 1 / (1 + math.exp(-x)) if x > -700 else 0.0,
    "tanh": math.tanh,
    "erf": math.erf,
    "gelu": lambda x: x * math.erfc(-x * math.sqrt(0.5)) / 2,
    "silu": lambda x: x / (1 + math.exp(-x)) if x > -700 else 0.0 * x,
}
ZEROS = {"exp": (1.0, 1.0), "sigmoid": (0.5, 0.5)}  # the others keep the sign of a zero
LIMITS = {"exp": (0.0, math.inf), "sigmoid": (0.0, 1.0), "gelu": (0.0, math.inf), "silu": (math.nan, math.inf)}
LEAST = 2.0**-126
TAIL = 1e-8
"""Largest error of `gelu` below -5, where float32's own result of 1 + erf has no digit."""


def expression(name: str, x: Expr) -> Expr:
    return ACTIVATIONS[name].expression(x) if name in ACTIVATIONS else getattr(te, name)(x)


def build_vectors(of: Callable[[Expr], Expr], count: int, target: str = "cpu", lanes: int = LANES) -> Module:
    """An element-wise kernel in vectors."""
    x = te.placeholder((count,), name="x")
    y = te.compute((count,), lambda i: of(x[i]), name="y")
    s = te.create_schedule(y.op)
    s.apply(Split("y", "i", (lanes,), "guard"))
    s.apply(Annotate("y", "i.1", "vectorize"))
    return registry.get(target).build(cleanup(lower(s.state)))


def run(of: Callable[[Expr], Expr], x: np.ndarray) -> np.ndarray:
    if not {REQUIRED_FEATURE, ROUNDS} <= set(registry.get("cpu").hardware.features):
        pytest.skip(f"needs a processor with {REQUIRED_FEATURE} and {ROUNDS}")
    return registry.get("cpu").load(build_vectors(of, len(x))).bind([x]).run(1)


def floats(low: float = -math.inf, high: float = math.inf) -> np.ndarray:
    """Every sign, exponent and seven highest bits of a fraction, each with other bits behind them; finite ones."""
    lower = np.random.default_rng(0).integers(1 << 16, size=(1 << 16, 2), dtype=np.uint32)
    bits = (np.arange(1 << 16, dtype=np.uint32)[:, None] << 16) | np.concatenate([lower, 0 * lower[:, :1]], 1)
    dense = np.linspace(-12, 12, 100_001, dtype=np.float32)
    x = np.concatenate([bits.reshape(-1).view(np.float32), dense])
    chosen: np.ndarray = x[np.isfinite(x) & (x >= low) & (x <= high)]
    return chosen


def exact(name: str, x: np.ndarray) -> np.ndarray:
    return np.array([EXACT[name](value) for value in x.tolist()])


@pytest.mark.parametrize(
    ("name", "units"), [("exp", 2.0), ("sigmoid", 4.0), ("silu", 4.0), ("tanh", 4.0), ("erf", 4.0)]
)
def test_float32_within_units_in_the_last_place(name: str, units: float) -> None:
    x = floats(-87.0, 88.0)
    found, wanted = run(lambda v: expression(name, v), x).astype(np.float64), exact(name, x)
    spacing = np.spacing(np.abs(wanted).astype(np.float32)).astype(np.float64)
    assert (np.abs(found - wanted) / spacing).max() <= units


@pytest.mark.parametrize("share", [0.0, 0.25])
def test_exp_of_a_difference_adds_no_more_than_the_rounding_of_the_difference(share: float) -> None:
    x = floats(-300.0, 88.0)
    difference = x - (np.float32(share) * x if share else np.float32(1.0))
    found = run(lambda v: te.exp(v - (share * v if share else 1.0)), x).astype(np.float64)
    wanted, size = np.exp(difference.astype(np.float64)), 1 + np.abs(difference.astype(np.float64))
    assert (np.abs(found - wanted) <= 1.5 * 2.0**-23 * size * wanted + 2.0**-149).all()
    assert (found[difference == 0] == 1).all()


def test_exp_of_a_difference_at_its_ends() -> None:
    x = np.array([-np.inf, np.inf, np.nan, -3.4e38, 3.4e38, 0.0, 1e5, -1e5] + [0.0] * 8, np.float32)
    found = run(lambda v: te.exp(v - 0.5 * v), x)
    np.testing.assert_array_equal(found[3:8], [0.0, np.inf, 1.0, np.inf, 0.0])
    assert np.isnan(found[:3]).all()  # of infinities the difference is no number
    np.testing.assert_array_equal(run(lambda v: te.exp(v - 1.0), x)[:3], [0.0, np.inf, np.nan])


def test_float32_gelu_keeps_digits_where_one_plus_erf_has_none() -> None:
    x = floats()
    found, wanted = run(lambda v: expression("gelu", v), x).astype(np.float64), exact("gelu", x)
    error = np.abs(found - wanted)
    assert (error <= 2e-7 * np.abs(x.astype(np.float64)) + 2.0**-149)[x >= -6].all()
    assert (error <= 2.0**-14 * np.abs(wanted) + 2.0**-149)[x >= -5].all()
    assert (error <= TAIL)[x < -5].all() and (found == 0)[x <= -6].all()


@pytest.mark.parametrize("name", EXACT)
def test_bfloat16_is_rounded_from_an_eighth_of_a_step(name: str) -> None:
    x = floats(high=88.0 if name == "exp" else 3.38e38)  # above, rounding gives infinity
    found = run(lambda v: expression(name, v).astype("bfloat16"), x).astype(np.float64)
    wanted = exact(name, x)
    # A power of two has half of the step below it.
    step = np.ldexp(2.0**-7, np.frexp(np.where(wanted == 0, LEAST, wanted))[1] - 1)
    allowed = step / 2 + 2.0**-11 * np.abs(wanted)
    # What is less than the least normal number, or would be the reciprocal of an infinity, is taken for zero.
    allowed += 89 * 2 * LEAST
    if name == "gelu":
        allowed += TAIL * (x < -5)
    with np.errstate(invalid="ignore"):
        assert (np.abs(found - wanted) <= allowed).all(), x[np.abs(found - wanted) > allowed][:5]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", EXACT)
def test_zeros_infinities_and_what_is_no_number(name: str, dtype: str) -> None:
    x = np.array([0.0, -0.0, -np.inf, np.inf, np.nan, -np.nan] + [0.0] * 10, np.float32)
    found = run(lambda v: expression(name, v).astype(dtype), x).astype(np.float32)
    zeros = np.array(ZEROS.get(name, (0.0, -0.0)), np.float32)
    np.testing.assert_array_equal(found[:2], zeros)
    np.testing.assert_array_equal(np.signbit(found[:2]), np.signbit(zeros))
    low, high = LIMITS.get(name, (-1.0, 1.0))
    np.testing.assert_allclose(found[2:4], [low, high], atol=TAIL)
    assert np.isnan(found[4:6]).all()


@pytest.mark.parametrize(
    ("table", "error"),
    [
        (ERF, 2.0**-23),
        (TANH, 2.0**-24),
        (GELU, 2.0**-21),
        (GELU_SHORT, 2.0**-15),
        (ERF_SHORT, 2.0**-14),
        (TANH_SHORT, 2.0**-15),
    ],
)
def test_polynomials_are_near_their_function(table: Table, error: float) -> None:
    rows = table.coefficients
    assert len(rows) == table.degree + 1 and all(len(row) == INTERVALS for row in rows)
    assert rows[-1][0] == 0 and rows[-1][-1] == table.function((INTERVALS - 1) / table.scale)
    places = np.linspace(1e-6, INTERVALS - 1, 5001)
    nearest = np.rint(places).astype(int)
    found = np.polyval(np.array(rows)[:, nearest], places - nearest)
    wanted = np.array([table.function(place / table.scale) for place in places.tolist()])
    near = places / table.scale < 2.5
    assert (np.abs(found - wanted)[near] / wanted[near]).max() <= error


def test_forms_of_functions() -> None:
    x, y = te.placeholder((8,), name="x")[0], te.placeholder((8,), name="y")[0]
    half = math.sqrt(0.5)
    gate = te.erf(x * half) + 1.0
    for form in (x * 0.5 * gate, gate * (x * 0.5), 0.5 * x * gate, x * 0.5 * (1.0 + te.erf(half * x))):
        assert match_form(form) == Form("gelu", x)
    assert match_form(x * te.sigmoid(x)) == match_form(te.sigmoid(x) * x) == Form("silu", x)
    assert match_form(te.exp(x - y)) == Form("exp_difference", x - y)
    others = [
        te.exp(x),
        te.exp(x + y),
        te.exp(x) - y,
        te.tanh(x - y),
        y * te.sigmoid(x),
        y * 0.5 * gate,
        x * 0.4 * gate,
        x * 0.5 * (te.erf(x * 0.7) + 1.0),
        x + te.sigmoid(x),
    ]
    others += [x * 0.5 * (te.erf(x * half) + 2.0), x * 0.5 * (te.tanh(x * half) + 1.0), te.sigmoid(x), x]
    assert [match_form(other) for other in others] == [None] * len(others)


def text(of: Callable[[Expr], Expr], target: str = SERVER, lanes: int = LANES) -> str:
    return build_vectors(of, 64, target, lanes).llvm_ir


def _round_sum(of: Callable[[Expr], Expr], dtype: str, addend: float, x: Expr) -> Expr:
    return (of(x) + addend if addend else of(x)).astype(dtype)


def test_a_rounded_product_takes_fewer_digits_and_a_sum_does_not() -> None:
    def is_reduced(of: Callable[[Expr], Expr]) -> bool:
        return "mask.reduce" in text(of)

    for short in (te.sigmoid, lambda v: 3.0 * te.exp(v), lambda v: te.exp(v) / (v + 2.0), lambda v: v * te.sigmoid(v)):
        assert is_reduced(partial(_round_sum, short, "bfloat16", 0.0))
        assert not is_reduced(partial(_round_sum, short, "bfloat16", 1.0))
        assert not is_reduced(partial(_round_sum, short, "float16", 0.0)) and not is_reduced(short)


@pytest.mark.parametrize(("target", "lanes"), [("cpu:x86-64-v3", 8), ("cpu:aarch64:generic", 4), (SERVER, 8)])
@pytest.mark.parametrize("name", EXACT)
def test_without_the_registers_functions_are_the_general_ones(name: str, target: str, lanes: int) -> None:
    found = text(lambda v: expression(name, v).astype("bfloat16"), target, lanes)
    assert "x86.avx512" not in found.replace("avx512.cvtneps2bf16", "")

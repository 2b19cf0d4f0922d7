"""Circular and hyperbolic functions against NumPy in float64, at the ends of their ranges, too."""

from __future__ import annotations

import numpy as np
import pytest

from tests.autotune.graph.onnx_models import Array, evaluate_import, make_model

FUNCTIONS = [
    ("Sin", np.sin, (-1e4, 1e4)),
    ("Cos", np.cos, (-1e4, 1e4)),
    ("Tan", np.tan, (-1.5, 1.5)),
    ("Asin", np.arcsin, (-1.0, 1.0)),
    ("Acos", np.arccos, (-1.0, 1.0)),
    ("Atan", np.arctan, (-1e6, 1e6)),
    ("Sinh", np.sinh, (-9.0, 9.0)),
    ("Cosh", np.cosh, (-9.0, 9.0)),
    ("Asinh", np.arcsinh, (-100.0, 100.0)),
    ("Acosh", np.arccosh, (1.0, 100.0)),
    ("Atanh", np.arctanh, (-0.999, 0.999)),
]


def compute(op: str, x: Array) -> Array:
    return evaluate_import(make_model(op, {"x": x}), {"x": x})[0].astype(float)


@pytest.mark.parametrize(("op", "function", "ends"), FUNCTIONS, ids=lambda value: str(value)[:12])
def test_a_function_is_as_exact_as_float32(op: str, function: np.ufunc, ends: tuple[float, float]) -> None:
    x = np.random.default_rng(0).uniform(*ends, 20_000).astype(np.float32)
    wanted = function(x.astype(float))
    np.testing.assert_allclose(compute(op, x), wanted, rtol=3e-7, atol=1e-6 if op == "Acosh" else 3e-7)


@pytest.mark.parametrize(
    ("op", "x", "expected"),
    [
        ("Asin", (1, -1), (np.pi / 2, -np.pi / 2)),
        ("Acos", (1, -1), (0, np.pi)),
        ("Atan", (np.inf, -np.inf), (np.pi / 2, -np.pi / 2)),
        ("Asinh", (1e20, -1e20), (np.arcsinh(1e20), -np.arcsinh(1e20))),
        ("Acosh", (1, 1e20), (0, np.arccosh(1e20))),
        ("Acosh", (0.5, -1, -1e4, -1e8, -3e38), [np.nan] * 5),
        ("Sinh", (89, -89.4, 90, -np.inf), (np.sinh(89.0), np.sinh(-float(np.float32(89.4))), np.inf, -np.inf)),
        ("Cosh", (89, -89.4, 90, -np.inf), (np.cosh(89.0), np.cosh(float(np.float32(89.4))), np.inf, np.inf)),
    ],
)
def test_ends_of_the_range(op: str, x: tuple[float, float], expected: tuple[float, float]) -> None:
    np.testing.assert_allclose(compute(op, np.array(x, np.float32)), expected, rtol=1e-6)

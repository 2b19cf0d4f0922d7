"""Functions whose definitions lose digits: against float64 at floats of every size, in vectors and alone."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from search_space import te
from search_space.ir.expr import Expr
from search_space.lower import cleanup, lower
from search_space.schedule.steps import Annotate, Split
from search_space.tags import Tag
from targets import registry

LANES = (0, 4, 16)
UNITS = {"sin": 2.0, "cos": 2.0, "log1p": 3.0, "expm1": 3.0, "exp2": 2.0}
"""Largest errors of results, in units in the last place."""
NAMES = {"floor_mod": "mod"}
"""NumPy's names of functions that are others."""


def run(of: Callable[..., Expr], lanes: int, *arrays: np.ndarray, order: str = "xz") -> np.ndarray:
    """An element-wise kernel on arrays, which the function reads in an order."""
    count = len(arrays[0])
    tensors = {name: te.placeholder((count,), name=name) for name in "xz"[: len(arrays)]}
    y = te.compute((count,), lambda i: of(*(t[i] for t in tensors.values())), name="y")
    s = te.create_schedule(y.op)
    if lanes:
        s.apply(Split("y", "i", (lanes,), "guard"))
        s.apply(Annotate("y", "i.1", "vectorize"))
    target, given = registry.get("cpu"), dict(zip("xz", arrays, strict=False))
    kernel = target.load(target.build(cleanup(lower(s.state))))
    return kernel.bind([given[name] for name in order[: len(arrays)]]).run(1)


def floats() -> np.ndarray:
    """Every sign, exponent and four highest bits of a fraction with others behind them, and ends of ranges."""
    lower = np.random.default_rng(0).integers(1 << 19, size=(1 << 13, 2), dtype=np.uint32)
    bits = (np.arange(1 << 13, dtype=np.uint32)[:, None] << 19) | lower
    dense = np.linspace(-20, 20, 20_001), np.random.default_rng(1).uniform(-2e5, 2e5, 20_000)
    ends = [0.0, -0.0, np.inf, -np.inf, np.nan, -1.0, 131072.0, 131072.02, 1e-45, 3.4e38, 88.72, 89.0, 128.0, -149.0]
    with np.errstate(invalid="ignore"):  # of signalling NaN
        return np.concatenate([bits.reshape(-1).view(np.float32), *dense, ends]).astype(np.float32)


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("name", UNITS)
def test_functions_within_units_in_the_last_place(name: str, lanes: int) -> None:
    x = floats()
    found = run(getattr(te, name), lanes, x)
    with np.errstate(all="ignore"):
        wanted = getattr(np, name)(x.astype(np.float64))
        rounded = wanted.astype(np.float32)
        off = np.abs(found.astype(np.float64) - wanted) / np.spacing(np.abs(rounded)).astype(np.float64)
    finite = np.isfinite(rounded)
    assert off[finite].max() <= UNITS[name]
    np.testing.assert_array_equal(found[~finite], rounded[~finite])
    zeros = (x == 0) & (rounded == 0)
    np.testing.assert_array_equal(np.signbit(found[zeros]), np.signbit(x[zeros]))
    assert zeros.any() or name in ("cos", "exp2")


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("name", ["fmod", "floor_mod", "floor_divide"])
def test_remainders_are_those_of_numpy(name: str, lanes: int) -> None:
    rng = np.random.default_rng(2)
    a = floats()
    ends = np.array(
        [1.0, 0.5, 6.0, np.inf, -np.inf, 5.5, 2.0**31, 1e20, 7.0, 0.0, -0.0, 1e-45, np.nan, -1.0], np.float32
    )
    by = np.array([0.1, 0.2, 2.0, np.inf, -np.inf, 3.0, 0.7, 0.0, -0.0, 1e-45, np.nan, -3.0], np.float32)
    with np.errstate(all="ignore"):
        near = (a * rng.uniform(-1e6, 1e6, len(a))).astype(np.float32)
        left = np.concatenate([a, near, np.repeat(ends, len(by))])
        right = np.concatenate([rng.permutation(a), a, np.tile(by, len(ends))])
        wanted = getattr(np, NAMES.get(name, name))(left, right)
    # The quotient is compared with zero first: its kernel reads the divisor before the dividend.
    found = run(getattr(te, name), lanes, left, right, order="zx" if name == "floor_divide" else "xz")
    np.testing.assert_array_equal(found, wanted)
    if name == "fmod":
        np.testing.assert_array_equal(np.signbit(found[wanted == 0]), np.signbit(left[wanted == 0]))


def test_a_kernel_that_packs_its_weights_holds_each_function_once() -> None:
    w = te.placeholder((16,), name="w", constant=True)
    turned = te.compute((16,), lambda i: te.sin(w[i]), name="turned", tag=Tag.CONSTANT)
    x = te.placeholder((16,), name="x")
    y = te.compute((16,), lambda i: te.cos(x[i]) + te.sin(turned[i]) + te.fmod(x[i], turned[i]), name="y")
    s = te.create_schedule(y.op)
    target = registry.get("cpu")
    module = target.build(cleanup(lower(s.state)))
    assert module.llvm_ir.count("define internal float @autotune.math.sin.0(") == 1
    angles = np.linspace(1, 2, 16, dtype=np.float32)
    kernel = target.load(module).bind([3 * angles, angles])
    factor = np.sin(angles.astype(np.float64))
    exact = [np.cos(p) + np.sin(q) + np.fmod(p, q) for p, q in ((3 * angles.astype(np.float64), factor),)]
    np.testing.assert_allclose(kernel.run(1), exact[0], rtol=1e-5)

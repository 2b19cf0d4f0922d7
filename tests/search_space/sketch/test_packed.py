"""Products with a large computed operand read a copy of it, column tile by column tile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from search_space import te, workloads
from search_space.ir.expr import Expr
from search_space.space import Sketch, generate, make_program
from search_space.workloads import Workload
from targets import registry
from tests.gpu import candidates
from tests.native import run_program
from tests.search_space.operators.test_definitions import check

HARDWARE = replace(registry.get("cpu").hardware, l2_bytes=16384)
"""This machine with a small second cache, so that small operands are large beside it."""

LONG = 16 * HARDWARE.float_lanes
"""Fewest columns of rows that are copied."""

OPTIONS: dict[str, Any] = {"deadline": None, "suppress_health_check": list(HealthCheck), "max_examples": 15}


def product(rows: int, columns: int, depth: int, ending: bool = False, turned: bool = False) -> Workload:
    """A product of computed factors; with an end of its own, or with a factor that an inlined stage changes."""
    a, b = te.placeholder((rows, depth), name="a"), te.placeholder((depth, columns), name="b")
    k = te.reduce_axis((0, depth), "k")
    factor = te.compute((depth, columns), lambda i, j: te.maximum(b[i, j], 0), name="factor") if turned else b
    out = te.compute((rows, columns), lambda i, j: te.sum(a[i, k] * factor[k, j], axis=k), name="c")
    if ending:
        sums = out
        out = te.compute((rows, columns), lambda i, j: te.maximum(sums[i, j] - 0.5, 0), name="out")
    return Workload.of([a, b, out])


def convolution_of_images() -> Workload:
    """A convolution whose weights (3, 3, 8, k) are computed, as those that are trained are."""
    x, w = te.placeholder((2, 9, 9, 8), name="x"), te.placeholder((3, 3, 8, LONG), name="w")
    y, z, c = (te.reduce_axis((0, extent), name) for extent, name in ((3, "y"), (3, "z"), (8, "c")))

    def element(n: Expr, h: Expr, v: Expr, o: Expr) -> Expr:
        return te.sum(x[n, h + y, v + z, c] * w[y, z, c, o], axis=[y, z, c])

    return Workload.of([x, w, te.compute((2, 7, 7, LONG), element, name="g")])


def list_copying(workload: Workload, **hardware: Any) -> list[bool]:
    """Tells of each sketch of a direct product whether it copies an operand for its tiles."""
    space = generate(workload, replace(HARDWARE, **hardware), ["direct"])
    assert not space.refusals
    return ["packed_at" in sketch.name for sketch in space.sketches]


def compute(workload: Workload, sketch: Sketch, seed: int) -> None:
    """A random candidate is the reference, on this host."""
    inputs = workload.make_inputs(seed)
    program = make_program(workload, sketch.algorithm, sketch.trace(candidates.legal(sketch, 1, seed)[0]))
    check(workload, run_program(registry.get("cpu"), program, inputs)[0], inputs)


@given(st.integers(64, 80), st.integers(LONG, LONG + 40), st.integers(9, 40), st.booleans(), st.booleans(), st.data())
@settings(**OPTIONS)
def test_products_of_a_copy_are_the_reference(
    rows: int, columns: int, depth: int, ending: bool, turned: bool, data: st.DataObject
) -> None:
    workload = product(rows, columns, depth, ending, turned)
    space = generate(workload, HARDWARE)
    assert not space.refusals
    assert all("packed_at" in sketch.name for sketch in space.sketches)
    compute(workload, data.draw(st.sampled_from(space.sketches)), data.draw(st.integers(0, 99)))


def test_weights_of_a_window_are_copied() -> None:
    workload = convolution_of_images()
    space = generate(workload, HARDWARE)
    assert not space.refusals
    assert all("packed_at" in sketch.name for sketch in space.sketches)
    for seed, sketch in enumerate(space.sketches):
        compute(workload, sketch, seed)


@pytest.mark.parametrize(
    ("workload", "hardware"),
    [
        (product(63, LONG, 32), {}),  # few rows share a copy
        (product(64, LONG - 1, 32), {}),  # a tile may have all columns
        (product(64, LONG, 32), {"l2_bytes": 16 * 32 * LONG}),  # the operand is small beside the cache
        (product(64, LONG, 600), {"l3_bytes": 16384}),  # copies would leave the cache
        (workloads.matmul(m=64, n=LONG, k=32, constant_b=True), {}),  # packed before the first call
    ],
)
def test_others_are_read_as_they_are(workload: Workload, hardware: dict[str, Any]) -> None:
    assert not any(list_copying(workload, **hardware))


def square_products() -> dict[str, Workload]:
    """Products that read a large factor in two places, which no copy of a tile's columns serves."""
    n = LONG
    a, b = te.placeholder((n, n), name="a"), te.placeholder((n, n), name="b")
    k = te.reduce_axis((0, n), "k")
    positive = te.compute((n, n), lambda i, j: te.maximum(b[i, j], 0), name="positive")
    both = te.compute((n, n), lambda i, j: b[i, j] + b[j, i], name="both")
    bodies = {
        "gram": ([b], lambda i, j: b[k, i] * b[k, j]),
        "square": ([b], lambda i, j: b[i, k] * b[k, j]),
        "square of an inlined stage": ([b], lambda i, j: b[i, k] * positive[k, j]),
        "sum with its transpose": ([a, b], lambda i, j: a[i, k] * both[k, j]),
        "scaled rows": ([a, b], lambda i, j: a[i, k] * b[k, j] * b[k, 0]),
        "mirrored columns": ([a, b], lambda i, j: a[i, k] * (b[k, j] - b[k, n - 1 - j])),
    }

    def make(inputs: list[te.Tensor], body: Callable[[Expr, Expr], Expr]) -> Workload:
        return Workload.of([*inputs, te.compute((n, n), lambda i, j: te.sum(body(i, j), axis=k), name="c")])

    return {name: make(*case) for name, case in bodies.items()}


@pytest.mark.parametrize("name", square_products())
def test_a_factor_that_is_read_in_two_places_is_not_copied(name: str) -> None:
    workload = square_products()[name]
    space = generate(workload, replace(HARDWARE, l2_bytes=1 << 17))
    assert space.sketches
    assert not any("packed_at" in sketch.name for sketch in space.sketches)
    compute(workload, space.sketches[0], 0)


@pytest.mark.parametrize("special", [np.nan, np.inf])
def test_a_special_value_reaches_its_column_alone(special: float) -> None:
    workload = product(64, LONG + 3, 16)
    inputs = workload.make_inputs(0)
    inputs[1][7, LONG + 2] = special
    for sketch in generate(workload, HARDWARE).sketches:
        program = make_program(workload, sketch.algorithm, sketch.trace(candidates.legal(sketch, 1, 0)[0]))
        output = run_program(registry.get("cpu"), program, inputs)[0]
        assert np.isfinite(output[:, :-1]).all()
        assert not np.isfinite(output[:, -1]).any()

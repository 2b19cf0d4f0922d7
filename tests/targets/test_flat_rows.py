"""Loops over all elements of several axes at once: one index is made of theirs, if vectors divide rows or not."""

from __future__ import annotations

import math
from itertools import accumulate

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.tuner.task import Task
from autotune.tuner.untimed import select_by_roofline
from search_space import te
from search_space.ir.expr import Expr, const, substitute, var
from search_space.ir.flat import flat_index, merge_divisions
from search_space.ir.polynomial import canon
from search_space.ir.simplify import Simplifier
from search_space.space import Sketch, generate, make_program
from search_space.workloads import Workload
from targets import registry
from tests.autotune.fakes import settings_with
from tests.gpu import candidates
from tests.native import run_program

LANES = 16
SERVER = "cpu:znver4"


def split_index(extents: list[int], index: Expr, simplify: Simplifier) -> tuple[Expr, ...]:
    """The index of each axis for that of all elements, as lowering has it."""
    behind = [math.prod(extents[place + 1 :]) for place in range(len(extents))]
    return tuple(simplify(index // n % extent) for n, extent in zip(behind, extents, strict=True))


def row_major(extents: list[int]) -> tuple[int, ...]:
    return tuple(accumulate(extents[:0:-1], lambda a, b: a * b, initial=1))[::-1]


@given(st.lists(st.integers(1, 40), min_size=1, max_size=5), st.sampled_from([1, 2, 4]))
@settings(deadline=None, max_examples=60)
def test_an_array_s_own_index_is_that_of_all_elements(extents: list[int], unroll: int) -> None:
    vectors = math.prod(extents) // (unroll * LANES)
    if vectors < 2:  # a loop of one iteration is left out
        return
    ranges = {"o": const(vectors), "u": const(unroll), "l": const(LANES)}
    whole, simplify = canon((var("o") * unroll + var("u")) * LANES + var("l")), Simplifier(ranges)
    flat = flat_index(split_index(extents, whole, simplify), row_major(extents), simplify)
    assert flat is whole


@given(
    st.lists(st.integers(1, 9), min_size=2, max_size=4),
    st.lists(st.integers(0, 50), min_size=4, max_size=4),
    st.sampled_from([1, 3, 4, 8]),
)
@settings(deadline=None, max_examples=60)
def test_whatever_the_strides_elements_stay_where_they_are(extents: list[int], strides: list[int], lanes: int) -> None:
    ranges = {"o": const(-(-math.prod(extents) // lanes)), "l": const(lanes)}
    whole, simplify = var("o") * lanes + var("l"), Simplifier(ranges)
    indices = split_index(extents, whole, simplify)
    plain = canon(sum((i * s for i, s in zip(indices, strides, strict=False)), const(0)))
    for merged in (merge_divisions(plain), merge_divisions(plain, simplify)):
        for o in range(int(ranges["o"].value)):
            for lane in range(lanes):
                at = {"o": o, "l": lane}
                assert substitute(merged, at).value == substitute(plain, at).value


def scale_rows(shape: tuple[int, ...]) -> Workload:
    """Elements by constants of their place in a row."""
    x = te.placeholder(shape, name="x")
    scale, shift = (te.placeholder(shape[-1:], name=name, constant=True) for name in ("scale", "shift"))
    return Workload.of([x, scale, shift, te.compute(shape, lambda *i: x[i] * scale[i[-1]] + shift[i[-1]], name="y")])


def double_elements(shape: tuple[int, ...]) -> Workload:
    """Each element twice, one behind the other."""
    x = te.placeholder((*shape, 1), name="x")
    return Workload.of([x, te.compute((*shape, 2), lambda *i: x[(*i[:-1], 0)] * 1.5, name="y")])


def find_flat_sketch(workload: Workload) -> Sketch:
    """The sketch with all elements in one loop."""
    sketches = generate(workload, registry.get(SERVER).hardware).sketches
    return next((s for s in sketches if s.name.endswith(":flat")), sketches[0])


@pytest.mark.parametrize(
    "workload",
    [scale_rows((1, 5, 7, 24)), scale_rows((3, 40)), double_elements((1, 3, 28, 14)), double_elements((5, 9))],
)
def test_no_element_of_the_output_is_scattered(workload: Workload) -> None:
    sketch, inputs, on = find_flat_sketch(workload), workload.make_inputs(0), registry.get("cpu")
    for row in candidates.legal(sketch, 3, 0)[:3]:
        program = make_program(workload, sketch.algorithm, sketch.trace(row))
        assert "masked.scatter" not in registry.get(SERVER).build(program).llvm_ir
        found = run_program(on, program, inputs)[0]
        np.testing.assert_allclose(found, workload.reference(*inputs), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("target", [SERVER, "cpu:haswell"])
@pytest.mark.parametrize("length", [356, 360])
def test_constants_of_rows_that_are_no_whole_vectors_are_not_gathered(length: int, target: str) -> None:
    workload = scale_rows((1, 14, 14, length))
    found = select_by_roofline(Task("kernel", workload), settings_with(target=target))
    program = make_program(workload, found.algorithm, found.trace)
    assert "masked.gather" not in registry.get(target).build(program).llvm_ir

"""Definitions at several sizes as one of open sizes: what they compute at others, and what is not one definition."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from search_space import te, te_json, workloads
from search_space.generalised import NotGeneral, OpenDefinition, common, known_at, merge_definitions
from search_space.ir.stmt import substitute_program
from search_space.lower import cleanup, lower
from search_space.schedule.state import initial_state
from search_space.terms import NoTerm, SizePoint, Term, choose_points, fit_term
from search_space.workloads import Workload
from targets.extents import extent_at
from tests.interpreter import interpret

MakeWorkload = Callable[..., Workload]

LAYERS: dict[str, MakeWorkload] = {
    "matmul": lambda n: workloads.matmul(n, 6, 5),
    "dense of several rows": lambda n: workloads.dense(3 * n, 4, 6),
    "softmax over the size": lambda n: workloads.softmax(2 * n, n),
    "layer norm": lambda n: workloads.layer_norm(n, 7),
    "batch_matmul": lambda n: workloads.batch_matmul(2, n, n + 1, 3),
    "depthwise": lambda n: workloads.depthwise_conv2d(n, 4, 5, 5, 3, 3, padding=1),
    "reduce": lambda n: workloads.reduce((n, 4, n), (0, 2), "sum"),
}


def generalise(make: MakeWorkload, sizes: dict[str, tuple[int, int]]) -> OpenDefinition:
    points = choose_points(sizes)
    return merge_definitions([te_json.to_json(make(*point).tensors()) for point in points], points)


def run(tensors: list[te.Tensor], inputs: list[np.ndarray], sizes: dict[str, int]) -> np.ndarray:
    program = cleanup(lower(initial_state(tensors[-1:], inputs=tensors[:-1])))
    arrays = dict(zip((t.name for t in tensors[:-1]), inputs, strict=True))
    return interpret(substitute_program(program, sizes), arrays)[tensors[-1].name]


@pytest.mark.parametrize("name", LAYERS)
def test_an_open_definition_computes_what_each_size_does(name: str) -> None:
    found = generalise(LAYERS[name], {"n": (2, 12)})
    for n in (2, 5, 9):
        workload = LAYERS[name](n)
        data = found.plain((2,), (12,))
        tensors = te_json.from_json(json.loads(te_json.text(data)), open_sizes=True)
        inputs = workload.make_inputs(0)
        sizes = {size: term.at((n,)) for size, term in zip(found.names, found.sizes, strict=True)}
        rtol, atol = workload.tolerance
        np.testing.assert_allclose(run(tensors, inputs, sizes), workload.reference(*inputs), rtol, atol)


def test_sizes_of_a_definition_are_extents_of_its_inputs() -> None:
    found = generalise(lambda b, n: workloads.softmax(4 * b * n, n), {"b": (2, 9), "n": (3, 30)})
    assert found.sizes == (Term(1, (0, 1)), Term(4, (1, 1)))
    assert found.spans((2, 3), (9, 30)) == {"n0": (3, 30), "n1": (24, 1080)}


def test_weights_stay_constants_and_what_has_a_size_does_not() -> None:
    def make_slices(n: int) -> Workload:
        x, p = te.placeholder((n, 4), name="x"), te.placeholder((n, 4), name="p", constant=True)
        w = te.placeholder((4,), name="w", constant=True)
        return Workload.of([x, p, w, te.compute((n, 4), lambda i, j: x[i, j] + p[i, j] * w[j], name="y")])

    inputs = generalise(make_slices, {"n": (2, 9)}).plain((2,), (9,))["inputs"]
    assert [item["constant"] for item in inputs] == [False, False, True]


def mean(n: int) -> Workload:
    """Returns the mean of rows of n elements, as a workload that contains n."""
    x, r = te.placeholder((3, n), name="x"), te.reduce_axis((0, n), "r")
    total = te.compute((3,), lambda i: te.sum(x[i, r], axis=r), name="total")
    scale, count = te.const(float(np.float32(1) / np.float32(n)), "float32"), te.const(float(n), "float32")
    return Workload.of([x, te.compute((3,), lambda i: total[i] * scale + (count - count), name="y")])


@pytest.mark.parametrize("name", [*LAYERS, "mean"])
def test_a_workload_at_any_size_follows_from_some(name: str) -> None:
    make = mean if name == "mean" else LAYERS[name]
    points = choose_points({"n": (2, 200)})
    found = common([make(*point).to_json() for point in points], points)
    for n in (2, 5, 64, 131):
        assert Workload.from_json(known_at(found, (n,))) == make(n)


def test_workloads_that_differ_otherwise_have_nothing_in_common() -> None:
    points = choose_points({"n": (2, 64)})
    with pytest.raises(NotGeneral, match="a number must be a factor times sizes"):
        common([workloads.softmax(-(-n // 2), 8).to_json() for (n,) in points], points)
    with pytest.raises(NotGeneral, match="differ in numbers alone"):
        common([(workloads.softmax if n > 9 else workloads.layer_norm)(n, 8).to_json() for (n,) in points], points)


def test_a_mean_divides_by_the_size() -> None:
    found = generalise(mean, {"n": (2, 40)})
    x = np.random.default_rng(0).standard_normal((3, 17)).astype(np.float32)
    tensors = te_json.from_json(found.plain((2,), (40,)), open_sizes=True)
    np.testing.assert_allclose(run(tensors, [x], {"n0": 17}), x.mean(1), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda n: workloads.matmul((n + 1) // 2, 6, 5), "a number must be a factor times sizes plus an offset"),
        (lambda n: workloads.matmul(min(n, 20), 6, 5), "a number must be"),
        (lambda n: workloads.matmul(n % 7 + 1, 6, 5), "a number must be"),
        (lambda n: workloads.elementwise("relu" if n < 20 else "tanh", (n,)), "differ in numbers alone"),
        (lambda n: workloads.reduce((n, 2), (0,) if n > 2 else (1,), "sum"), "differ in numbers alone"),
    ],
)
def test_what_is_not_one_definition_is_refused(make: MakeWorkload, why: str) -> None:
    with pytest.raises(NotGeneral, match=why):
        generalise(make, {"n": (2, 64)})


@given(st.integers(1, 40), st.integers(1, 40), st.tuples(st.integers(0, 2), st.integers(0, 1)), st.integers(-3, 9))
@settings(max_examples=60, deadline=None)
def test_terms_are_found_from_what_they_are_at_some_points(
    low: int, factor: int, powers: tuple[int, int], offset: int
) -> None:
    points = choose_points({"a": (low, low + 37), "b": (2, 300)})
    term = Term(factor if any(powers) else 0, powers, offset)
    found = fit_term([term.at(point) for point in points], points)
    for a in (low, low + 11):
        point: SizePoint = (a, 57)
        assert found.at(point) == term.at(point) == extent_at(found.plain(["a", "b"]), {"a": a, "b": 57})


def test_numbers_that_are_no_term_are_shown() -> None:
    with pytest.raises(NoTerm, match="but got 1 at 2, 2 at 3, 2 at 4"):
        fit_term([1, 2, 2], [(2,), (3,), (4,)])


@pytest.mark.parametrize("bad", [["size", "n", 0, 4], ["size", "n", 2], ["size", 3, 1, 4], ["add", "i", 1], 0, True])
def test_extents_that_are_none_are_refused(bad: Any) -> None:
    data = generalise(LAYERS["matmul"], {"n": (2, 9)}).plain((2,), (9,))
    data["inputs"][0]["shape"][0] = bad
    with pytest.raises(ValueError):
        te_json.from_json(data, open_sizes=True)


def test_definitions_of_workloads_have_no_sizes() -> None:
    data = generalise(LAYERS["matmul"], {"n": (2, 9)}).plain((2,), (9,))
    with pytest.raises(ValueError, match="must have numbers for sizes"):
        te_json.from_json(data)
    with pytest.raises(ValueError, match="must have numbers for sizes"):
        Workload("tensors", {"definition": data})

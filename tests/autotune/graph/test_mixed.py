"""Mixed precision: places, sensitivities and the search for the fastest choice that keeps a bound."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import autotune.graph.precision
from autotune.graph.evaluate import evaluate
from autotune.graph.ir import Graph, GraphBuilder, TensorType
from autotune.graph.mixed import (
    Mixture,
    Problem,
    assign,
    assignment,
    front,
    list_rounding_sites,
    noise_between,
    sensitivities,
)
from autotune.graph.mixed.assignment import TIE, make_point
from autotune.graph.mixed.mixture import Candidate, graph_digest
from autotune.graph.mixed.sensitivity import LOUD, round_to, rounded_at, to
from autotune.graph.passes import optimise
from autotune.graph.precision import list_narrow_kernels, lower_precision
from search_space.dtypes import NARROW
from tests.autotune.graph.random_graphs import draw_inputs, random_graph


def chain(layers: int = 3, width: int = 32, rows: int = 8, seed: int = 0) -> Graph:
    """Products of matrices with a rectifier between them."""
    rng = np.random.default_rng(seed)
    builder = GraphBuilder("chain", {"x": TensorType((rows, width))})
    value = "x"
    for number in range(layers):
        weight = (rng.standard_normal((width, width)) * np.sqrt(2 / width)).astype(np.float32)
        value = builder.add("matmul", [value, builder.constant(weight, f"w{number}")], f"layer{number}")
        value = builder.add("relu", [value], f"relu{number}") if number < layers - 1 else value
    return builder.finish([value])


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """A few kernels of two or three types that share places, as neighbours share what is stored between them.

    Some places are there in float32, without noise, and cost time.
    """
    types = draw(st.integers(2, 3))
    kernels, places = draw(st.integers(1, 6 if types == 2 else 4)), draw(st.integers(1, 10))
    outputs = draw(st.integers(1, 2))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    at = rng.random((places, kernels, types)) < 0.4
    wide = rng.random(places) < 0.3
    at[~wide, :, 0] = False
    saved = rng.lognormal(0, 1, places) * np.where(wide | (rng.random(places) < 0.2), -1, 1)
    noise = rng.lognormal(0, 1, (places, outputs)) * ~wide[:, None]
    may = rng.random((kernels, types)) < 0.9
    may[:, 0] = True
    return Problem([str(k) for k in range(kernels)], at, saved, noise, may)


def of_two(at: NDArray[np.bool_], savings: NDArray[np.float64], noise: NDArray[np.float64]) -> Problem:
    """Kernels that may be in float32 or one other type; `at`: (places, kernels)."""
    kernels = at.shape[1]
    both = np.stack([np.zeros_like(at), at], axis=2)
    return Problem([str(k) for k in range(kernels)], both, savings, noise, np.ones((kernels, 2), bool))


def best_of_all(problem: Problem, noise: float) -> float:
    """Seconds saved by the best of all choices."""
    found = []
    for types in itertools.product(*(np.flatnonzero(may) for may in problem.may)):
        saved, loud = problem.totals(np.array(types))
        if (loud <= noise * (1 + 1e-9)).all():
            found.append(saved)
    return max(found)


@settings(max_examples=30, deadline=None)
@given(problems(), st.floats(0.05, 5.0))
def test_a_choice_is_the_best_of_all_that_keep_the_bound(problem: Problem, noise: float) -> None:
    choice = assign(problem, noise)
    assert problem.may[np.arange(len(choice)), choice].all()
    saved, loud = problem.totals(choice)
    assert (loud <= noise * (1 + 1e-9)).all()
    assert saved == pytest.approx(best_of_all(problem, noise), abs=2 * TIE * float(np.abs(problem.savings).sum()))
    assert np.array_equal(choice, assign(problem, noise))


@settings(max_examples=20, deadline=None)
@given(problems(), st.integers(1, 4))
def test_of_equally_fast_choices_no_kernel_is_in_a_type_that_gains_nothing(problem: Problem, noise: int) -> None:
    """Seconds and noise are whole numbers, so that many choices have equal sums."""
    saved = np.sign(problem.savings) * (np.abs(problem.savings) > 1)
    coarse = Problem(problem.kernels, problem.at, saved, np.ceil(problem.noise), problem.may)
    choice = assign(coarse, float(noise))
    most = coarse.totals(choice)[0]
    assert most == best_of_all(coarse, float(noise))
    for kernel, kind in enumerate(choice):
        for wider in np.flatnonzero(coarse.may[kernel, :kind]):
            other = choice.copy()
            other[kernel] = wider
            seconds, loud = coarse.totals(other)
            assert seconds < most or (loud > noise).any()


def test_a_search_that_is_stopped_leaves_what_keeps_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = of_neighbours(np.random.default_rng(0), 2)
    noise = 0.3 * float(problem.noise.sum())
    assert assign(problem, noise).any()
    monkeypatch.setattr(assignment, "PATIENCE", 0.0)
    assert (problem.totals(assign(problem, noise))[1] <= noise).all()


def of_neighbours(rng: np.random.Generator, types: int) -> Problem:
    """Kernels with a place of their own and one shared with the next, of each narrow type; each is half as loud and
    saves half as much as that of the next type."""
    kernels = 9 if types == 2 else 5
    eye, scale = np.eye(kernels, dtype=bool), 2.0 ** np.repeat(np.arange(types - 1), 2 * kernels)
    at = np.zeros((2 * kernels * (types - 1), kernels, types), bool)
    for kind in range(1, types):
        at[2 * kernels * (kind - 1) : 2 * kernels * kind, :, kind] = np.vstack(
            [eye, eye | np.eye(kernels, k=1, dtype=bool)]
        )
    saved, noise = rng.lognormal(0, 1, len(at)) * scale, rng.lognormal(0, 1.5, len(at)) * scale
    return Problem([str(k) for k in range(kernels)], at, saved, noise[:, None], np.ones((kernels, types), bool))


@pytest.mark.parametrize("types", [2, 3])
def test_kernels_that_share_places_are_chosen_together(types: int) -> None:
    for seed in range(6):
        problem = of_neighbours(np.random.default_rng(seed), types)
        noise = 0.3 * float(problem.noise.sum())
        assert problem.totals(assign(problem, noise))[0] == pytest.approx(best_of_all(problem, noise), rel=1e-6)


@settings(max_examples=20, deadline=None)
@given(problems(), st.integers(0, 30), st.integers(0, 30))
def test_a_laxer_bound_is_never_slower(problem: Problem, one: int, other: int) -> None:
    strict, lax = max(one, other), min(one, other)
    saved = [problem.totals(assign(problem, 10 ** (-decibels / 10)))[0] for decibels in (strict, lax)]
    assert saved[0] <= saved[1] + 2 * TIE * float(np.abs(problem.savings).sum())


def test_the_front_gets_faster_and_noisier() -> None:
    rng = np.random.default_rng(1)
    problem = of_two(np.eye(20, dtype=bool), rng.random(20), rng.lognormal(-3, 1, (20, 1)))
    points = front(problem, float(problem.noise.sum()))
    assert points[0].decibels == np.inf and points[-1].choice.all() and len(points) > 8
    assert all(a.savings < b.savings for a, b in itertools.pairwise(points))


def test_what_costs_time_stays_in_float32() -> None:
    problem = of_two(np.eye(2, dtype=bool), np.array([1.0, -1.0]), np.zeros((2, 1)))
    assert assign(problem, 1.0).tolist() == [1, 0]


def test_kernels_that_gain_only_together_are_found() -> None:
    at = np.array([[True, True], [True, True], [True, False], [False, True]])
    problem = of_two(at, np.array([-1.5, 0.0, 1.0, 1.0]), np.ones((4, 1)))
    assert assign(problem, 4.0).all()


def test_a_bound_that_nothing_keeps_is_refused() -> None:
    problem = of_two(np.ones((1, 1), bool), np.ones(1), np.ones((1, 1)))
    with pytest.raises(ValueError, match=r"`noise` must be above 0, but got noise=0"):
        assign(problem, 0)
    with pytest.raises(ValueError, match=r"`at` must be \(places, kernels, types\), but got at=\(1, 1, 2\), kernels=2"):
        Problem(["a", "b"], problem.at, problem.savings, problem.noise, problem.may)
    with pytest.raises(ValueError, match="`may` must allow type 0 for all kernels, but does not"):
        Problem(["a"], problem.at, problem.savings, problem.noise, ~problem.may)


def test_between_kernels_in_float32_nothing_is_rounded() -> None:
    graph = chain(4)
    kernels = list_narrow_kernels(graph)
    assert kernels == ("layer0", "layer1", "layer2", "layer3")
    lowered = lower_precision(graph, "bfloat16", ("layer0", "layer1"))
    kinds = {n.name: [lowered.type(i).dtype for i in n.inputs] for n in lowered.nodes if n.op == "matmul"}
    assert kinds["layer0"] == kinds["layer1"] == ["float32", "float32"]
    assert kinds["layer2"] == kinds["layer3"] == ["bfloat16", "bfloat16"]
    casts = [node.inputs[0] for node in lowered.nodes if node.op == "cast"]
    assert casts == ["relu1", "relu2"]


def test_all_in_float32_is_the_graph_itself_and_none_the_whole_lowering() -> None:
    graph = chain()
    same = lower_precision(graph, "bfloat16", list_narrow_kernels(graph))
    assert str(same) == str(graph)
    assert str(lower_precision(graph, "bfloat16", ())) == str(lower_precision(graph, "bfloat16"))


def test_a_kernel_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match=r"`full` must name kernels that may be in 16 bits, but got 'relu0'"):
        lower_precision(chain(), "bfloat16", ["relu0"])


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("seed", range(12))
def test_places_are_all_that_is_rounded(seed: int, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Casts and constants of a random mixture are those of the places where one of its kernels is."""
    monkeypatch.setattr(autotune.graph.precision, "FEW_CHANNELS", 0)
    graph = optimise(random_graph(seed))
    rng = np.random.default_rng(seed)
    kernels = list_narrow_kernels(graph)
    full = [name for name in kernels if rng.random() < 0.5]
    lowered = lower_precision(graph, dtype, full)
    there = [place for place in list_rounding_sites(graph) if not set(full).issuperset(place.kernels)]
    wanted = {name for place in there for name in (place.values or (place.operand,))}
    casts = {n.inputs[0] for n in lowered.nodes if n.op == "cast" and n.type.dtype == dtype}
    constants = {n for n, a in lowered.constants.items() if str(a.dtype) == dtype}
    assert wanted.difference(graph.constants) <= casts
    assert len(wanted.intersection(graph.constants)) == len(constants)
    feeds = draw_inputs(graph)
    assert [lowered.type(n) for n in lowered.outputs] == [graph.type(n) for n in graph.outputs]
    evaluate(lowered, feeds)


def test_a_place_alone_is_what_the_graph_with_it_gives() -> None:
    graph = chain()
    feeds = draw_inputs(graph)
    values = evaluate(graph, feeds)
    last = next(place for place in list_rounding_sites(graph) if place.operand == "w2")
    changed = rounded_at(graph, values, last, to("bfloat16"))
    assert set(changed) == {"layer2"}
    wanted = values["relu1"] @ round_to(graph.constants["w2"], "bfloat16")
    np.testing.assert_allclose(changed["layer2"], wanted, rtol=1e-6)


def test_noise_of_places_adds_up() -> None:
    graph = chain(5, 64)
    rng = np.random.default_rng(0)
    feeds = [{"x": rng.standard_normal((8, 64)).astype(np.float32)} for _ in range(2)]
    noise = sensitivities(graph, list_rounding_sites(graph), feeds, to("bfloat16"))
    lowered = lower_precision(graph, "bfloat16")
    outputs = [[{"y": evaluate(g, f)[g.outputs[0]]} for f in feeds] for g in (lowered, graph)]
    together = noise_between(*outputs)["y"]
    assert 0.6 < together / noise.sum() < 1.6
    assert 1e-6 < together < 1e-3


def test_noise_is_nothing_where_nothing_differs_and_finite_where_all_is_lost() -> None:
    inf, zero = np.full(2, np.inf, np.float32), np.zeros(2, np.float32)
    one = np.ones(2, np.float32)
    found = noise_between([{"a": inf, "b": one, "c": inf}], [{"a": inf, "b": zero, "c": one}])
    assert found == {"a": 0.0, "b": LOUD, "c": LOUD}


def test_a_mixture_travels_as_plain_data() -> None:
    front = (Candidate("float32", np.inf, 2.0, 0), Candidate("bfloat16", 31.0, 1.0, 2))
    mixture = Mixture(
        "bfloat16", ("a",), ("b",), 40.0, "as openvino", np.inf, 41.5, 2, 1.5, front, graph_digest(chain())
    )
    data = mixture.to_json()
    assert data["predicted"] is None and data["front"][0]["decibels"] is None
    assert Mixture.from_json(data) == mixture
    assert str(mixture) == "1 of 2 kernels in bfloat16, 41.5 dB beside float32 (exact predicted, 40.0 dB wanted)"


def test_the_digest_tells_graphs_apart() -> None:
    assert graph_digest(chain()) == graph_digest(chain(seed=1)) != graph_digest(chain(4))


def test_a_point_of_nothing_is_exact() -> None:
    problem = of_two(np.ones((1, 1), bool), np.ones(1), np.ones((1, 1)))
    assert make_point(problem, problem.full).decibels == np.inf


def test_conversions_are_counted() -> None:
    """Three kernels in a row: bytes between two of them save time, with a copy in floats for the third they cost it."""
    kernels = ["a", "b", "c"]
    at = np.zeros((4, 3, 3), bool)
    at[0, 1:, :2] = True  # what "a" gives in floats, read by "b" and "c"
    at[1, 1:, 2] = True  # in bytes
    at[2, 1, 2] = at[3, 2, 2] = True  # products of "b" and "c"
    saved, noise = np.array([-4.0, -1.0, 0.5, 0.5]), np.array([[0.0], [1.0], [1.0], [1.0]])
    may = np.ones((3, 3), bool)
    problem = Problem(kernels, at, saved, noise, may)
    assert problem.totals(np.array([0, 2, 0])) == (-0.5, 2.0) and problem.totals(np.array([0, 2, 2]))[0] == 4.0
    assert assign(problem, 2.0).max() == 0
    assert assign(problem, 3.0).tolist()[1:] == [2, 2]

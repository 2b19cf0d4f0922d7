"""Features of a symbolic program are those of the program with a candidate's numbers in it."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from costmodel.features import NAMES, FeatureExtractor, Shared, get_extractor
from costmodel.features.statement import statements
from search_space import te, workloads
from search_space.ir.expr import const
from search_space.ir.stmt import LoopProgram, Store, substitute_program
from search_space.space import Sketch, concrete, generate
from search_space.workloads import Workload
from tests.costmodel.programs import HARDWARE, MATMUL_COLUMNS, buffer, matmul, nest

SPACES = {
    "conv": workloads.conv2d(height=14, width=14, in_channels=32, out_channels=48, padding=1),
    "depthwise": workloads.depthwise_conv2d(height=11, width=11, channels=20, kernel=3, stride=2, padding=1),
    "matmul": workloads.matmul(37, 113, 24),
    "softmax": workloads.softmax(8, 100),
    "int8": workloads.matmul(32, 48, 64, dtype="int8"),
}


def at(names: str, features: NDArray[np.float32]) -> NDArray[np.float32]:
    return features[..., NAMES.index(names)]


def draw(sketch: Sketch, count: int, seed: int = 0) -> NDArray[np.int32]:
    """Legal candidates."""
    rng = np.random.default_rng(seed)
    lengths = [len(g.table) for g in sketch.groups]
    rows = np.array([rng.integers(n, size=2000) for n in lengths], np.int32).T.reshape(2000, len(lengths))
    return rows[sketch.legal(rows)][:count]


def alone(program: LoopProgram) -> NDArray[np.float32]:
    """Features of a concrete program (statements, features)."""
    return FeatureExtractor(program, (), HARDWARE)(np.empty((0, 1)))[0]


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 20),
    st.integers(1, 6),
    st.sampled_from([1, 2, 4, 8]),
    st.sampled_from([(64, 64, 64), (37, 113, 24)]),
)
def test_substituting_gives_the_same_features(
    rows: int, vectors: int, unroll: int, shape: tuple[int, int, int]
) -> None:
    program = matmul(*shape)
    values = dict(zip(MATMUL_COLUMNS, (rows, vectors, unroll), strict=True))
    extractor = FeatureExtractor(program, MATMUL_COLUMNS, HARDWARE)
    column = np.array([[rows], [vectors], [unroll]], float)
    np.testing.assert_array_equal(extractor(column)[0], alone(substitute_program(program, values)))


@pytest.mark.parametrize("name", SPACES)
def test_sketches_keep_their_features_when_lowered_with_numbers(name: str) -> None:
    for sketch in generate(SPACES[name], HARDWARE).sketches[:4]:
        extractor = FeatureExtractor(sketch.program, sketch.columns, HARDWARE)
        choices = draw(sketch, 3)
        symbolic = extractor(sketch.expand(choices))
        for row, features in zip(choices, symbolic, strict=True):
            values = sketch.values(row)
            np.testing.assert_allclose(features, alone(substitute_program(sketch.program, values)), rtol=1e-5)
            np.testing.assert_allclose(features, alone(concrete(sketch, values)), rtol=1e-5)


def test_shape_names_and_values_of_a_population() -> None:
    extractor = FeatureExtractor(matmul(), MATMUL_COLUMNS, HARDWARE)
    columns = np.array([[1, 4, 8], [1, 2, 4], [1, 2, 4]], float)
    features = extractor(columns)
    assert features.shape == (3, 2, len(NAMES)) and features.dtype == np.float32 and extractor.names is NAMES
    assert len(set(NAMES)) == len(NAMES) and np.isfinite(features).all()
    update, write = features[:, 0], features[:, 1]
    np.testing.assert_allclose(at("operations.fma", update), np.log2(1 + 64**3))
    np.testing.assert_allclose(at("unroll.product", update), np.log2(1 + columns.prod(axis=0)))
    np.testing.assert_allclose(at("vectorize.length", update), np.log2(1 + 16))
    np.testing.assert_allclose(at("parallel.product", update), np.log2(1 + 64 / columns[0]))
    np.testing.assert_allclose(at("buffer0.unique", update), np.log2(1 + 64 * 64 * 4))
    np.testing.assert_allclose(at("allocation.bytes", update), np.log2(1 + columns[0] * columns[1] * 64))
    assert (at("reducing", update) == 1).all() and (at("reducing", write) == 0).all()
    assert (at("buffer0.write", write) == 1).all() and (at("buffer1.registers", write) == 1).all()


def test_a_population_is_described_as_its_candidates_are() -> None:
    extractor = FeatureExtractor(matmul(), MATMUL_COLUMNS, HARDWARE)
    rng = np.random.default_rng(0)
    columns = np.stack([rng.integers(1, 20, 300), rng.integers(1, 5, 300), 2 ** rng.integers(0, 4, 300)]).astype(float)
    whole, seconds = extractor(columns), extractor.roofline(columns)
    for i in (0, 77, 299):
        np.testing.assert_array_equal(whole[i], extractor(columns[:, i : i + 1])[0])
        assert seconds[i] == extractor.roofline(columns[:, i : i + 1])[0]
    np.testing.assert_allclose(at("program.nanoseconds", whole[:, 0]), np.log2(1 + seconds * 1e9), rtol=1e-5)


def test_an_extractor_is_made_once_and_goes_with_its_program() -> None:
    program = matmul()
    made = get_extractor(program, MATMUL_COLUMNS, HARDWARE)
    assert get_extractor(program, list(MATMUL_COLUMNS), HARDWARE) is made
    assert get_extractor(program, MATMUL_COLUMNS, HARDWARE, cold_constants=True) is not made
    assert get_extractor(program, MATMUL_COLUMNS, HARDWARE, threads=1) is not made
    assert get_extractor(matmul(), MATMUL_COLUMNS, HARDWARE) is not made
    gone = weakref.ref(program)
    del program
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("name", ["conv", "int8"])
def test_sketches_that_share_statements_have_their_own_features(name: str) -> None:
    """Bit for bit, whichever of them was described first."""
    sketches, shared = generate(SPACES[name], HARDWARE, ["direct"]).sketches, Shared()
    together = [FeatureExtractor(s.program, s.columns, HARDWARE, shared=shared) for s in sketches]
    for sketch, extractor in reversed(list(zip(sketches, together, strict=True))):
        columns, own = sketch.expand(draw(sketch, 50)), FeatureExtractor(sketch.program, sketch.columns, HARDWARE)
        np.testing.assert_array_equal(extractor.roofline(columns), own.roofline(columns))
        np.testing.assert_array_equal(extractor(columns), own(columns))
    described = sum(len(nests) for nests in shared.values())
    statements_of_all = sum(len(extractor.statements) for extractor in together)
    assert described < statements_of_all if name == "conv" else described == statements_of_all


def test_statements_are_alike_where_all_of_them_is() -> None:
    def keys(program: LoopProgram) -> list[object]:
        return [statement.key for statement in statements(program)]

    made = keys(matmul())
    assert made == keys(matmul())
    others = [matmul(64, 64, 128), *(substitute_program(matmul(), {name: 2}) for name in MATMUL_COLUMNS)]
    assert all(keys(other) != made for other in others)


def test_a_loop_that_does_not_run_costs_nothing() -> None:
    fill = Store("x", (), const(1.0, "float32"))
    program = LoopProgram("none", (buffer("x"),), nest(fill, ("i", 0, "serial"), ("j", 0, "unroll")), ("x",))
    extractor = FeatureExtractor(program, (), HARDWARE)
    assert np.isfinite(extractor(np.empty((0, 1)))).all() and extractor.roofline(np.empty((0, 2))).tolist() == [
        0.0,
        0.0,
    ]


def test_populations_are_scored_as_arrays() -> None:
    """Calls of functions are as many for 4,096 candidates as for 64: none is made per candidate."""
    sketch = generate(SPACES["conv"], HARDWARE).sketches[0]
    columns = np.tile(sketch.expand(draw(sketch, 200)), 30)
    extractor = FeatureExtractor(sketch.program, sketch.columns, HARDWARE)

    def count_calls(function: Callable[[Any], Any], count: int) -> int:
        calls = 0

        def note(frame: object, event: str, argument: object) -> None:
            nonlocal calls
            calls += event in ("call", "c_call")

        function(columns[:, :count])  # what is derived once
        sys.setprofile(note)
        try:
            function(columns[:, :count])
        finally:
            sys.setprofile(None)
        return calls

    for function in (extractor.roofline, extractor):
        assert count_calls(function, 4096) == count_calls(function, 64)


def window(backwards: bool) -> list[Sketch]:
    """Sketches of sums over a window of five that is read from its first or from its last element."""
    x, w = te.placeholder((36, 32), name="x"), te.placeholder((5, 32), name="w")
    r = te.reduce_axis((0, 5), "r")

    def body(i: te.IterVar, c: te.IterVar) -> te.Reduction:
        return te.sum(x[i + 4 - r if backwards else i + r, c] * w[r, c], axis=r)

    return list(generate(Workload.of([x, w, te.compute((32, 32), body, name="y")]), HARDWARE).sketches)


def test_a_window_has_the_same_features_in_both_directions() -> None:
    compared = 0
    for forward, backward in zip(window(False), window(True), strict=True):
        choices = draw(forward, 20)
        there, back = (FeatureExtractor(s.program, s.columns, HARDWARE)(s.expand(choices)) for s in (forward, backward))
        np.testing.assert_array_equal(there, back)
        compared += len(choices)
    assert compared > 20

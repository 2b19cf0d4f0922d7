"""Two products with a softmax between, as in attention: one loop over blocks of rows, whose scores stay in cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autotune.graph.ops import find
from search_space import te
from search_space.ir.stmt import For, Intrinsic, walk_stmt
from search_space.schedule.steps import Relayout
from search_space.space import SearchSpace, Sketch, concrete, generate, make_program
from search_space.workloads import Workload
from targets import registry
from tests.gpu import candidates
from tests.interpreter import interpret
from tests.native import run_program
from tests.properties.running import examples
from tests.search_space.operators.test_definitions import check

EXTENTS = st.integers(1, 70)
OPTIONS: dict[str, Any] = {"deadline": None, "suppress_health_check": list(HealthCheck)}


def attention(*extents: int, bias_shape: tuple[int, ...] | None = None, dtype: str = "float32") -> Workload:
    """Returns attention with extents (batch, rows, keys, depth, columns)."""
    b, m, n, k, d = extents
    inputs = [te.placeholder(s, dtype, f"x{i}") for i, s in enumerate([(b, m, k), (b, k, n), (b, n, d)])]
    if bias_shape is not None:
        inputs.append(te.placeholder(bias_shape, "float32", "y"))
    return Workload.of([*inputs, find("attention").expression({"weights": dtype}, inputs)])


def find_chains(workload: Workload, target: str = "cpu") -> list[Sketch]:
    space: SearchSpace = generate(workload, registry.get(target).hardware)
    assert not space.refusals
    assert [sketch.name.partition(":")[2] for sketch in space.sketches] in (["chain"], ["chain", "chain/widened"])
    return list(space.sketches)


def find_chain(workload: Workload, target: str = "cpu") -> Sketch:
    (sketch,) = find_chains(workload, target)
    return sketch


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@given(EXTENTS, EXTENTS, EXTENTS, EXTENTS, st.integers(1, 3), st.booleans(), st.integers(0, 99))
@settings(max_examples=examples(8), **OPTIONS)
def test_any_extents_have_a_chain_that_computes_the_reference(
    dtype: str, m: int, n: int, k: int, d: int, batch: int, added: bool, seed: int
) -> None:
    workload = attention(batch, m, n, k, d, bias_shape=(m, n) if added else None, dtype=dtype)
    on, inputs = registry.get("cpu"), workload.make_inputs(seed)
    for sketch in find_chains(workload):
        row = candidates.legal(sketch, 1, seed)[0]
        program = make_program(workload, sketch.algorithm, sketch.trace(row))
        check(workload, run_program(on, program, inputs)[0], inputs)
        loops = [s for s in walk_stmt(program.body) if isinstance(s, For) and s.kind == "parallel"]
        assert len(loops) <= 1  # none where there is one block


@pytest.mark.parametrize("target", ["cpu:haswell", "cpu:znver4"])
def test_a_candidate_is_the_same_lowered_either_way(target: str) -> None:
    workload = attention(2, 7, 19, 3, 5)
    sketch = find_chain(workload, target)
    inputs = workload.make_inputs(1)
    named = {spec.name: array for spec, array in zip(workload.inputs, inputs, strict=True)}
    (row,) = candidates.legal(sketch, 1, 3)
    for program in (make_program(workload, sketch.algorithm, sketch.trace(row)), concrete(sketch, sketch.values(row))):
        check(workload, interpret(program, named)[workload.output.name], inputs)


@pytest.mark.parametrize("keys", [18, 19, 32])
def test_products_in_bfloat16_are_instructions(keys: int) -> None:
    workload = attention(2, 7, keys, 4, 5, dtype="bfloat16")
    sketch = find_chain(workload, "cpu:znver4")
    inputs = workload.make_inputs(1)
    named = {spec.name: array for spec, array in zip(workload.inputs, inputs, strict=True)}
    (row,) = candidates.legal(sketch, 1, 3)
    for program in (make_program(workload, sketch.algorithm, sketch.trace(row)), concrete(sketch, sketch.values(row))):
        dots = [s for s in walk_stmt(program.body) if isinstance(s, Intrinsic)]
        assert {s.output.buffer for s in dots} == {"scores.local", "weighted"}
        check(workload, interpret(program, named)[workload.output.name], inputs)


def test_rows_of_scores_that_crowd_lie_apart() -> None:
    def spread(keys: int) -> set[str]:
        return {s.stage for s in find_chain(attention(1, 64, keys, 8, 16)).steps.steps if isinstance(s, Relayout)}

    assert spread(4096) == {"scores", "exponent"}
    assert spread(1500) == set()


def make_scaled_chain(dtype: str, constant: bool, reads_rows: bool) -> Workload:
    """exp of a product times another one."""
    a, b = te.placeholder((8, 16), dtype, "a"), te.placeholder((16, 32), dtype, "b")
    c = te.placeholder((32, 16), "float32", "c", constant=constant)
    r, q = te.reduce_axis((0, 16), "r"), te.reduce_axis((0, 32), "q")
    first = te.compute((8, 32), lambda i, j: te.sum(a[i, r].astype("float32") * b[r, j].astype("float32"), axis=r))
    e = te.compute((8, 32), lambda i, j: te.exp(first[i if reads_rows else 7 - i, j]), name="e")
    second = te.compute((8, 16), lambda i, j: te.sum(e[i, q] * c[q, j], axis=q), name="second")
    return Workload.of([a, b, c, te.compute((8, 16), lambda i, j: second[i, j] + 1.0, name="ended")])


@pytest.mark.parametrize(
    ("workload", "chained"),
    [
        (lambda: make_scaled_chain("float32", False, True), True),
        (lambda: make_scaled_chain("float32", True, True), False),
        (lambda: make_scaled_chain("float32", False, False), False),
    ],
    ids=["rows", "constant", "other rows"],
)
def test_chains_are_of_activations_and_by_rows(workload: Callable[[], Workload], chained: bool) -> None:
    made = workload()
    space = generate(made, registry.get("cpu").hardware)
    assert all(s.name.endswith("chain") is chained for s in space.sketches)
    sketch = space.sketches[0]
    program = make_program(made, sketch.algorithm, sketch.trace(candidates.legal(sketch, 1)[0]))
    on, inputs = registry.get("cpu"), [np.asarray(x) for x in made.make_inputs(0)]
    check(made, run_program(on, program, inputs)[0], inputs)

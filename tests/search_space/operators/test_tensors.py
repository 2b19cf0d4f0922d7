"""Tensor expressions as a workload: keys, plain data, the order of inputs, every schedule against NumPy."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest

from search_space import te, workloads
from search_space.schedule.state import operations
from search_space.space import generate, make_program
from search_space.workloads import Workload
from targets import registry
from tests.properties.programs import PROGRAMS
from tests.search_space.operators.cases import make_gated_product, roots


def test_the_key_is_short_stable_and_of_the_definition() -> None:
    """Records are found by this text: a change orphans every record of a definition there is."""
    workload = workloads.from_tensors(make_gated_product())
    assert workload.key == "tensors(output=gated,shape=5x9,sha256=c1fbcebde55d889e)"
    assert workload == Workload.of(make_gated_product()) and hash(workload) == hash(Workload.of(make_gated_product()))
    assert Workload.of(make_gated_product()) is workload, "its figures are found once, however often a graph has it"
    *inputs, output = make_gated_product()
    other = te.compute((5, 9), lambda i, j: output[i, j] + 1.0, name="gated")
    assert Workload.of([*inputs, other]) != workload
    assert Workload.of([inputs[1], inputs[0], inputs[2], output]) != workload, "kernels take other arguments"


def test_data_alone_make_the_workload_again() -> None:
    workload = workloads.from_tensors(make_gated_product())
    text = json.dumps(workload.to_json())
    for again in (
        Workload.from_json(json.loads(text)),
        pickle.loads(pickle.dumps(workload)),
        workloads.tensors(json.loads(text)["args"]["definition"]),
    ):
        assert again == workload and again.to_json() == workload.to_json()
        assert (again.inputs, again.output, again.flops) == (workload.inputs, workload.output, workload.flops)
        assert again.tolerance == workload.tolerance
    inputs = workload.make_inputs(3)
    product = inputs[0].astype(float) @ inputs[1]
    expected = (product + inputs[2]) / (1 + np.exp(-2 * product))
    np.testing.assert_allclose(again.reference(*inputs), expected, rtol=1e-5, atol=1e-6)


def test_inputs_are_within_the_domain() -> None:
    workload = workloads.from_tensors(roots())
    x, y = workload.make_inputs(0)
    assert min(x.min(), y.min()) > 0 and np.isfinite(workload.reference(x, y)).all()
    bits = te.placeholder((40,), "bool", "bits")
    chosen = te.compute((40,), lambda i: te.if_then_else(bits[i], 1.0, 2.0), name="chosen")
    (drawn,) = workloads.from_tensors([bits, chosen]).make_inputs(0)
    assert 0 < drawn.sum() < 40


def within(workload: Workload, actual: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Tells which elements a worker would take for right."""
    rtol, atol = workload.tolerance
    assert actual.dtype == expected.dtype and actual.shape == expected.shape
    wide, right = actual.astype(float), expected.astype(float)
    return np.abs(wide - right) <= atol + rtol * np.abs(right)


@pytest.mark.parametrize(("name", "dtype"), [(n, d) for n, (_, dtypes) in PROGRAMS.items() for d in dtypes])
def test_kernels_of_every_dtype_are_within_the_estimated_tolerance_and_errors_are_not(name: str, dtype: str) -> None:
    output = PROGRAMS[name][0](dtype)
    workload = Workload.of([te.Tensor(op) for op in operations(output) if op.body is None] + output)
    target, arrays = registry.get("cpu"), workload.make_inputs(2)
    sketch = generate(workload, target.hardware).sketches[0]
    program = make_program(workload, sketch.algorithm, sketch.trace([0] * len(sketch.groups)))
    expected = workload.reference(*arrays)
    found = np.zeros_like(expected)
    target.load(target.build(program))(*arrays, found)
    assert within(workload, found, expected).all()
    wide = expected.astype(float)
    wrong = ~expected if expected.dtype.kind in "iub" else (wide + 0.5 + 0.3 * np.abs(wide)).astype(expected.dtype)
    assert not within(workload, wrong, expected).any()


def test_products_of_many_are_not_all_but_zero() -> None:
    x, r = te.placeholder((3, 200), name="x"), te.reduce_axis((0, 200), "r")
    workload = Workload.of([x, te.compute((3,), lambda i: te.prod(x[i, r], axis=r), name="y")])
    assert np.abs(workload.reference(*workload.make_inputs(0))).max() > 1e-6 and workload.tolerance[1] < 1e-3


@pytest.mark.parametrize("index", [0, 1, 2])
def test_kernels_take_their_inputs_in_the_order_given(index: int) -> None:
    *inputs, output = make_gated_product()
    inputs = inputs[index:] + inputs[:index]
    workload = workloads.from_tensors([*inputs, output])
    assert [spec.name for spec in workload.inputs] == [t.name for t in inputs]
    target, rng, arrays = registry.get("cpu"), np.random.default_rng(0), workload.make_inputs(1)
    space = generate(workload, target.hardware)
    for sketch in space.sketches:
        choice = np.array([rng.integers(len(group.table)) for group in sketch.groups], np.int32)
        if not sketch.legal(choice[None])[0]:
            choice[:] = 0
        program = make_program(workload, sketch.algorithm, sketch.trace(choice))
        found = np.full(workload.output.shape, np.nan, np.float32)
        target.load(target.build(program))(*arrays, found)
        assert within(workload, found, workload.reference(*arrays)).all()

"""Tensor expressions as a workload: keys, plain data, the order of inputs, every schedule against NumPy."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest

from search_space import te, workloads
from search_space.space import generate, program_of
from search_space.workloads import Workload
from targets import registry
from tests.operators.cases import gated, roots


def test_the_key_is_short_stable_and_of_the_definition() -> None:
    """Records are found by this text: a change orphans every record of a definition there is."""
    workload = workloads.from_tensors(gated())
    assert workload.key == "tensors(output=gated,shape=5x9,sha256=c1fbcebde55d889e)"
    assert workload == Workload.of(gated()) and hash(workload) == hash(Workload.of(gated()))
    *inputs, output = gated()
    other = te.compute((5, 9), lambda i, j: output[i, j] + 1.0, name="gated")
    assert Workload.of([*inputs, other]) != workload
    assert Workload.of([inputs[1], inputs[0], inputs[2], output]) != workload, "kernels take other arguments"


def test_data_alone_make_the_workload_again() -> None:
    workload = workloads.from_tensors(gated())
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


@pytest.mark.parametrize("place", [0, 1, 2])
def test_kernels_take_their_inputs_in_the_order_given(place: int) -> None:
    *inputs, output = gated()
    inputs = inputs[place:] + inputs[:place]
    workload = workloads.from_tensors([*inputs, output])
    assert [spec.name for spec in workload.inputs] == [t.name for t in inputs]
    target, rng, arrays = registry.get("cpu"), np.random.default_rng(0), workload.make_inputs(1)
    space = generate(workload, target.hardware)
    for sketch in space.sketches:
        choice = np.array([rng.integers(len(group.table)) for group in sketch.groups], np.int32)
        if not sketch.legal(choice[None])[0]:
            choice[:] = 0
        program = program_of(workload, sketch.algorithm, sketch.trace(choice))
        found = np.full(workload.output.shape, np.nan, np.float32)
        target.load(target.build(program))(*arrays, found)
        rtol, atol = workload.tolerance
        np.testing.assert_allclose(found, workload.reference(*arrays), rtol=rtol, atol=atol)

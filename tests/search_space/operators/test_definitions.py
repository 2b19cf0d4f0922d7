"""Every operator by every algorithm: its definition interpreted and compiled is the NumPy reference."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from search_space import workloads
from search_space.dtypes import numpy_dtype
from search_space.ir.stmt import LoopProgram
from search_space.lower import cleanup, lower
from search_space.space import unscheduled_state
from search_space.workloads import OPERATORS, Workload
from targets import registry
from tests.interpreter import interpret
from tests.search_space.operators.cases import EVERY, SMALL

Array = np.ndarray


def default_program(workload: Workload, algorithm: str) -> LoopProgram:
    """Every stage at the root, its loops as they come."""
    return cleanup(lower(unscheduled_state(workload, algorithm)))


def check(workload: Workload, actual: Array, inputs: list[Array], algorithm: str = "direct") -> None:
    rtol, atol = workload.get_tolerance(algorithm)
    expected = workload.reference(*inputs)
    assert actual.shape == expected.shape and actual.dtype == expected.dtype
    wide = np.float64 if rtol else np.int64
    np.testing.assert_allclose(actual.astype(wide), expected.astype(wide), rtol=rtol, atol=atol)


def run_interpreter(workload: Workload, algorithm: str, inputs: list[Array]) -> Array:
    program = default_program(workload, algorithm)
    named = {spec.name: array for spec, array in zip(workload.inputs, inputs, strict=True)}
    return interpret(program, named)[program.outputs[0]]


@pytest.mark.parametrize(("workload", "algorithm"), EVERY, ids=str)
def test_the_definition_interpreted_is_the_reference(workload: Workload, algorithm: str) -> None:
    inputs = workload.make_inputs(0)
    check(workload, run_interpreter(workload, algorithm, inputs), inputs)


@pytest.mark.parametrize(("workload", "algorithm"), EVERY, ids=str)
def test_the_definition_compiled_is_the_reference(workload: Workload, algorithm: str) -> None:
    inputs, target = workload.make_inputs(1), registry.get("cpu")
    kernel = target.load(target.build(default_program(workload, algorithm)))
    output = np.zeros(workload.output.shape, numpy_dtype(workload.output.dtype))
    kernel(*inputs, output)
    check(workload, output, inputs)


def test_every_operator_is_tried() -> None:
    assert {w.operator for w in SMALL} == set(OPERATORS)


@pytest.mark.parametrize(("workload", "algorithm"), EVERY, ids=str)
def test_every_algorithm_has_the_same_inputs_and_output(workload: Workload, algorithm: str) -> None:
    tensors = workload.tensors(algorithm)
    specs = (*workload.inputs, workload.output)
    assert [(t.name, t.shape, t.dtype, t.op.constant) for t in tensors[:-1]] == [
        (s.name, s.shape, s.dtype, s.constant) for s in specs[:-1]
    ]
    assert (tensors[-1].shape, tensors[-1].dtype) == (specs[-1].shape, specs[-1].dtype)
    state = unscheduled_state(workload, algorithm)
    assert [i.name for i in state.inputs if i.derivation is None] == [s.name for s in workload.inputs]


small = st.integers(1, 3)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_convolutions_of_any_window(data: st.DataObject) -> None:
    kernel, stride, dilation = (data.draw(st.tuples(small, small), name) for name in ("kernel", "stride", "dilation"))
    padding = data.draw(st.tuples(st.integers(0, 2), st.integers(0, 2)), "padding")
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    height, width = (data.draw(st.integers(max(1, r - 2 * p), 6 + r)) for r, p in zip(reach, padding, strict=True))
    groups = data.draw(st.sampled_from([1, 1, 2]), "groups")
    workload = workloads.conv2d(
        1, height, width, groups, 2 * groups, kernel, stride, padding, dilation, groups, dtype="int8"
    )
    inputs = workload.make_inputs(0)
    for algorithm in workload.algorithms:
        check(workload, run_interpreter(workload, algorithm, inputs), inputs)


@pytest.mark.parametrize("workload", SMALL, ids=str)
def test_algorithms_name_their_output_alike(workload: Workload) -> None:
    """Callers look up the output of a program by its name in the workload."""
    names = {workload.tensors(algorithm)[-1].name for algorithm in workload.algorithms}
    assert names == {workload.output.name}


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_transposed_convolution_is_the_transpose(data: st.DataObject) -> None:
    """<conv(x), y> = <x, transposed(y)> for every window, at sizes where the windows reach the end."""
    kernel, stride = (
        data.draw(st.tuples(small, small), "kernel"),
        data.draw(st.tuples(small, small), "stride"),
    )
    padding = tuple(data.draw(st.integers(0, k - 1)) for k in kernel)
    rows, columns = data.draw(st.tuples(small, small), "output")
    extra = tuple(data.draw(st.integers(0, s - 1)) for s in stride)
    height, width = (
        (n - 1) * s + k - 2 * p + e
        for n, s, k, p, e in zip((rows, columns), stride, kernel, padding, extra, strict=True)
    )
    assume(min(height, width) >= 1)
    forward = workloads.conv2d(1, height, width, 2, 3, kernel, stride, padding)
    back = workloads.conv2d_transpose(1, rows, columns, 3, 2, kernel, stride, padding, extra)
    x, weight = forward.make_inputs(0)
    y, turned = back.make_inputs(1)[0], np.ascontiguousarray(weight.swapaxes(2, 3))
    assert forward.output.shape == y.shape and back.output.shape == x.shape
    left, right = (forward.reference(x, weight) * y).sum(), (x * back.reference(y, turned)).sum()
    np.testing.assert_allclose(left, right, rtol=1e-4, atol=1e-4)
    for algorithm in back.algorithms:
        check(back, run_interpreter(back, algorithm, [y, turned]), [y, turned])


@pytest.mark.parametrize("columns", [5, 300])
def test_layer_norm_keeps_its_digits_far_from_zero(columns: int) -> None:
    """The mean of squares less the square of the mean would have none left."""
    workload = workloads.layer_norm(2, columns)
    data, gamma, beta = workload.make_inputs(0)
    shifted = data + np.float32(1000)
    found = run_interpreter(workload, "direct", [shifted, gamma, beta])
    np.testing.assert_allclose(found, workload.reference(shifted, gamma, beta), atol=2e-2)
    assert np.abs(found - beta).max() > 0.5

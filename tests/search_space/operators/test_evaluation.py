"""Definitions evaluated by NumPy: as the operators' own references, as the interpreter, at any size of tile."""

from __future__ import annotations

import numpy as np
import pytest

from search_space import te, workloads
from search_space.dtypes import numpy_dtype
from search_space.lower import lower
from search_space.operators import estimates
from search_space.operators.evaluation import TILE, evaluate
from search_space.schedule.state import initial_state, operations
from search_space.workloads import Workload
from tests.interpreter import interpret
from tests.properties import programs
from tests.properties.programs import PROGRAMS
from tests.search_space.operators.cases import EVERY, SMALL, make_gated_product, roots


@pytest.mark.parametrize("tile", [TILE, 50, 5])
@pytest.mark.parametrize(("workload", "algorithm"), EVERY, ids=str)
def test_the_reference_of_an_operator_is_what_its_definition_says(
    workload: Workload, algorithm: str, tile: int
) -> None:
    inputs = workload.make_inputs(4)
    found, expected = evaluate(workload.tensors(algorithm), inputs, tile), workload.reference(*inputs)
    assert found.dtype == expected.dtype and found.shape == expected.shape
    rtol, atol = workload.tolerance
    wide = np.float64 if rtol else np.int64
    np.testing.assert_allclose(found.astype(wide), expected.astype(wide), rtol=rtol, atol=atol)


@pytest.mark.parametrize("tile", [TILE, 7])
@pytest.mark.parametrize(("name", "dtype"), [(n, d) for n, (_, dtypes) in PROGRAMS.items() for d in dtypes])
def test_any_program_is_what_the_interpreter_makes_of_it(name: str, dtype: str, tile: int) -> None:
    output = PROGRAMS[name][0](dtype)
    state = initial_state(output)
    arrays = programs.inputs(state, 5)
    expected = interpret(lower(state), arrays)[state.outputs[0]]
    tensors = [te.Tensor(op) for op in operations(output) if op.body is None] + output
    found = evaluate(tensors, [arrays[i.name] for i in state.inputs], tile)
    assert found.dtype == expected.dtype == numpy_dtype(output[0].dtype)
    step = estimates.STEP.get(output[0].dtype, 0.0)
    if name == "softmax":
        step *= 4  # a sum rounded to bfloat16 term by term
    np.testing.assert_allclose(found.astype(float), expected.astype(float), rtol=2 * step, atol=step)


def test_integers_wrap_and_are_exact_where_float64_is_not() -> None:
    a, b = te.placeholder((2, 3), "int32", "a"), te.placeholder((3, 2), "int32", "b")
    r = te.reduce_axis((0, 3), "r")
    c = te.compute((2, 2), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="c")
    left = np.full((2, 3), 2**31 - 1, np.int32)
    right = np.array([[3, 2**31 - 5], [7, 11], [1, 2**31 - 1]], np.int32)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(evaluate([a, b, c], [left, right]), left @ right)
    assert (left.astype(np.int64) @ right.astype(np.int64) != left @ right).any()


def test_a_sum_of_many_products_of_bytes_wraps() -> None:
    a, b = te.placeholder((1, 40000), "uint8", "a"), te.placeholder((40000, 1), "uint8", "b")
    r = te.reduce_axis((0, 40000), "r")
    c = te.compute((1, 1), lambda i, j: te.sum(a[i, r].astype("int32") * b[r, j].astype("int32"), axis=r), name="c")
    full = [np.full(t.shape, 255, np.uint8) for t in (a, b)]
    assert evaluate([a, b, c], full).item() == 40000 * 255 * 255 - 2**32


def test_diagonals_windows_and_reversed_axes_are_read_rightly() -> None:
    a = te.placeholder((6, 6), name="a")
    w = te.placeholder((3,), name="w")
    r = te.reduce_axis((0, 3), "r")
    out = te.compute((4, 2), lambda i, j: te.sum(a[i + r, 5 - i - r - 0 * j] * w[r], axis=r), name="out")
    array, weight = np.arange(36, dtype=np.float32).reshape(6, 6), np.array([1, 10, 100], np.float32)
    crossing = array[np.arange(6), 5 - np.arange(6)]
    expected = [crossing[i : i + 3] @ weight for i in range(4)]
    np.testing.assert_array_equal(evaluate([a, w, out], [array, weight]), np.array([expected] * 2).T)
    np.testing.assert_array_equal(evaluate([a, w, out], [np.asfortranarray(array), weight]), np.array([expected] * 2).T)


def test_a_branch_that_is_not_taken_reads_nothing() -> None:
    x = te.placeholder((4,), name="x")
    tame = te.compute((4,), lambda i: te.if_then_else(i >= 1, x[i - 1], 7.0), name="tame")
    np.testing.assert_array_equal(evaluate([x, tame], [np.arange(4, dtype=np.float32)]), [7, 0, 1, 2])


def test_memory_is_bounded_by_the_tile(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    broadcast = np.broadcast_to

    def note_size(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        sizes.append(int(np.prod(shape)))
        return broadcast(array, shape)

    monkeypatch.setattr("search_space.operators.evaluation.np.broadcast_to", note_size)
    workload = workloads.softmax(50, 300)
    evaluate(workload.tensors(), workload.make_inputs(0), 1000)
    assert max(sizes) <= 1000 and len(sizes) > 3 * 15


FLOPS = [
    (workloads.matmul(3, 4, 5), 2 * 3 * 4 * 5),
    (workloads.softmax(3, 7), 3 * (7 + 2 * 7 + 7 + 1 + 7)),
    (workloads.reduce((3, 4), 1, "max"), 12),
    (workloads.from_tensors(make_gated_product()), 2 * 5 * 9 * 6 + 5 * 9 * (1 + 2 + 1)),
]


@pytest.mark.parametrize(("workload", "flops"), FLOPS, ids=str)
def test_operations_are_counted_by_the_rule(workload: Workload, flops: int) -> None:
    assert estimates.count_flops(workload.tensors()) == flops


def test_moving_data_counts_as_one_operation_an_element() -> None:
    x = te.placeholder((6, 4), name="x")
    moved = te.compute((4, 3), lambda i, j: te.if_then_else(i * 2 < j + 1, x[j * 2, i], 0.0), name="moved")
    assert estimates.count_flops([x, moved]) == 12, "indices and conditions are no arithmetic"


def test_a_value_used_twice_is_computed_once() -> None:
    x = te.placeholder((5,), name="x")
    y = te.compute((5,), lambda i: (x[i] + 1.0) * (x[i] + 1.0), name="y")
    assert estimates.count_flops([x, y]) == 10


@pytest.mark.parametrize("workload", [w for w in SMALL if w.tolerance[0]], ids=str)
def test_tolerances_are_those_of_the_operators(workload: Workload) -> None:
    generic = Workload.of(workload.tensors())
    (rtol, atol), (own_rtol, own_atol) = generic.tolerance, workload.tolerance
    assert 0.8 * own_rtol <= rtol <= 1.2 * own_rtol and 0.1 * own_atol < atol < 4 * own_atol


def product(a: te.Tensor, b: te.Tensor, name: str) -> te.Tensor:
    r = te.reduce_axis((0, a.shape[1]), "r")
    return te.compute((a.shape[0], b.shape[1]), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name=name)


def chain_products(*depths: int) -> list[te.Tensor]:
    """Products of matrices in a row."""
    tensors = [te.placeholder((4, depths[0]), name="x")]
    last = tensors[0]
    for place, (depth, width) in enumerate(zip(depths, (*depths[1:], 5), strict=True)):
        tensors.append(te.placeholder((depth, width), name=f"w{place}", constant=True))
        last = product(last, tensors[-1], f"y{place}")
    return [*tensors, last]


def test_reductions_in_a_row_add_up() -> None:
    assert estimates.longest_chain(chain_products(64, 32)) == 96
    one, two = (Workload.of(chain_products(*depths)) for depths in ((64,), (64, 32)))
    assert all(a < b for a, b in zip(one.tolerance, two.tolerance, strict=True))
    inputs = two.make_inputs(0)
    exact = inputs[0].astype(float) @ inputs[1] @ inputs[2]
    rtol, atol = two.tolerance
    np.testing.assert_allclose(two.reference(*inputs), exact, rtol=rtol, atol=atol)
    short = inputs[0][:, 1:].astype(float) @ inputs[1][1:] @ inputs[2]
    assert (np.abs(short - exact) > atol + rtol * np.abs(exact)).mean() > 0.9, "a missing term is seen"


def test_inputs_are_positive_only_where_they_must_be() -> None:
    assert estimates.input_bounds(roots()) == estimates.POSITIVE
    for workload in (workloads.softmax(3, 5), workloads.layer_norm(3, 5), workloads.matmul(2, 3, 4)):
        assert estimates.input_bounds(workload.tensors()) == estimates.SIGNED

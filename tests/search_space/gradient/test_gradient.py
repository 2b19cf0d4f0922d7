"""`te.gradient`: operators against autograd, kinks and NaN as in PyTorch, 16-bit sums, and refusals."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

from search_space import te, workloads
from search_space.gradient.derivatives import FUNCTION_DERIVATIVES
from search_space.gradient.replacing import list_placeholders
from search_space.ir.expr import MATH, walk
from search_space.operators import evaluation
from search_space.schedule.state import operations
from search_space.tags import Tag
from search_space.tensor import Operation
from search_space.workloads import Workload
from tests.search_space.gradient import float64

OPERATORS = [
    workloads.matmul(4, 5, 6),
    workloads.batch_matmul(2, 4, 5, 6),
    workloads.dense(3, 5, 4, bias=True, activation="gelu"),
    workloads.conv1d(2, 9, 3, 4, kernel=3, stride=2, padding=1),
    workloads.conv2d(1, 6, 7, 3, 4, 3, 2, 1),
    workloads.conv2d(1, 7, 7, 4, 4, 3, 1, 1, groups=2, bias=True, activation="relu"),
    workloads.conv2d(1, 9, 9, 2, 3, 2, 3, 0),
    workloads.conv2d(1, 9, 9, 2, 3, 3, 1, 2, dilation=2),
    workloads.conv2d(1, 9, 9, 2, 3, 3, 2, 2, dilation=2),
    workloads.conv2d(1, 11, 11, 2, 2, 3, 2, 3, dilation=3),
    workloads.conv2d(1, 7, 9, 6, 8, 3, 2, 1, groups=2),
    workloads.conv2d(1, 7, 7, 4, 6, 5, 3, 2, groups=2),
    workloads.conv2d(1, 6, 6, 4, 6, 1, 2, groups=2),
    workloads.conv2d(1, 8, 7, 2, 3, (1, 2), 3, 0),
    workloads.conv3d(1, 4, 5, 5, 2, 2, kernel=3, padding=1),
    workloads.conv2d_transpose(1, 4, 4, 2, 3, 3, 2, 1),
    workloads.depthwise_conv2d(1, 7, 7, 3, kernel=3, stride=2, padding=1),
    workloads.max_pool2d(1, 6, 6, 2, 3, 2, 1),
    workloads.avg_pool2d(1, 6, 6, 2, 3, 2, 1),
    workloads.softmax(3, 5),
    workloads.layer_norm(3, 5),
]


@pytest.mark.parametrize("workload", OPERATORS, ids=lambda w: w.key[:60])
def test_gradients_of_operators_are_those_of_autograd(workload: Workload) -> None:
    *inputs, output = workload.tensors()
    seed = te.placeholder(output.shape, name="seed")
    generator = torch.Generator().manual_seed(0)
    values = {t.op: torch.randn(t.shape, dtype=torch.float64, generator=generator) for t in [*inputs, seed]}
    gradients = te.gradient(output, inputs, seed)
    wanted = float64.differentiate(output, inputs, values[seed.op], values)
    for tensor, actual, right in zip(inputs, float64.evaluate(gradients, values), wanted, strict=True):
        assert actual.shape == tensor.shape
        torch.testing.assert_close(actual, right, rtol=1e-6, atol=1e-6)


def test_gradients_are_central_differences() -> None:
    x, w = te.placeholder((3, 4), name="x"), te.placeholder((4, 2), name="w")
    k, r = te.reduce_axis((0, 4), "k"), [te.reduce_axis((0, n), f"r{n}") for n in (3, 2)]
    hidden = te.compute((3, 2), lambda i, j: te.sum(x[i, k] * te.tanh(w[k, j]), axis=k), name="hidden")
    loss = te.compute((1,), lambda i: te.sum(te.log1p(hidden[r[0], r[1]] * hidden[r[0], r[1]]), axis=r), name="loss")
    rng, step = np.random.default_rng(0), 1e-5
    values = {t.op: torch.from_numpy(rng.standard_normal(t.shape)) for t in (x, w)}
    for tensor, actual in zip((x, w), float64.evaluate(te.gradient(loss, [x, w]), values), strict=True):
        for at in np.ndindex(*tensor.shape):
            ends = []
            for sign in (1, -1):
                moved = values[tensor.op].clone()
                moved[at] += sign * step
                ends.append(float64.evaluate([loss], {**values, tensor.op: moved})[0].item())
            assert actual[at].item() == pytest.approx((ends[0] - ends[1]) / (2 * step), abs=1e-7)


def vector(function: Callable[..., Any], count: int) -> tuple[list[te.Tensor], te.Tensor]:
    """Returns vectors of 5, and an element-wise function of them."""
    inputs = [te.placeholder((5,), name=f"v{number}") for number in range(count)]
    return inputs, te.compute((5,), lambda i: function(*(v[i] for v in inputs)), name="out")


NAN, INF = float("nan"), float("inf")
NCHW = (0, 3, 1, 2)
KINKS: list[tuple[Callable[..., Any], Callable[..., torch.Tensor], Sequence[Sequence[float]]]] = [
    (lambda x: te.maximum(x, 0.0), torch.relu, [[-1, 0, 2, NAN, INF]]),
    (
        lambda x: te.minimum(te.maximum(x, 0.0), 6.0),
        lambda x: torch.nn.functional.hardtanh(x, 0, 6),
        [[-1, 0, 6, 7, 3]],
    ),
    (te.maximum, torch.maximum, [[1, 2, 3, -INF, 0], [1, 3, 2, 0, -0.0]]),
    (te.minimum, torch.minimum, [[1, 2, 3, -INF, 0], [1, 3, 2, 0, -0.0]]),
    (lambda x: te.__getattr__("abs")(x), torch.abs, [[-2, 0, 3, INF, -INF]]),
    (lambda x: te.__getattr__("sqrt")(x), torch.sqrt, [[0, 1, 4, INF, -1]]),
    (lambda x: te.__getattr__("floor")(x), torch.floor, [[-2, 0, 3.5, 1, 2]]),
    (lambda a, b: a / b, torch.div, [[1, 0, -1, INF, 2], [0, 2, 3, 2, INF]]),
    (te.fmod, torch.fmod, [[5, -5, 7, 0.5, 2], [3, 3, -2, 2, 4]]),
]


@pytest.mark.parametrize(("ours", "theirs", "values"), KINKS)
def test_kinks_and_values_that_are_not_finite_are_those_of_pytorch(
    ours: Callable[..., Any], theirs: Callable[..., torch.Tensor], values: Sequence[Sequence[float]]
) -> None:
    inputs, output = vector(ours, len(values))
    seed = te.placeholder((5,), name="seed")
    leaves = [torch.tensor(v, dtype=torch.float32, requires_grad=True) for v in values]
    weights = torch.tensor([1.0, 2.0, -3.0, 0.5, 1.5])
    wanted = torch.autograd.grad(theirs(*leaves), leaves, weights)
    arrays = [leaf.detach().numpy() for leaf in leaves]
    for gradient, right in zip(te.gradient(output, inputs, seed), wanted, strict=True):
        actual = evaluation.evaluate([*inputs, seed, gradient], [*arrays, weights.numpy()])
        np.testing.assert_allclose(actual, right.numpy(), rtol=1e-6)


def test_equal_extrema_share_the_gradient_and_nan_takes_it() -> None:
    rows = [[1.0, 3.0, 3.0], [NAN, 1.0, 2.0], [2.0, 2.0, 2.0], [INF, 1.0, INF]]
    x, seed, k = te.placeholder((4, 3), name="x"), te.placeholder((4,), name="seed"), te.reduce_axis((0, 3))
    output = te.compute((4,), lambda i: te.max(x[i, k], axis=k), name="largest")
    leaf = torch.tensor(rows, requires_grad=True)
    (wanted,) = torch.autograd.grad(torch.stack([row.max() for row in leaf]), leaf, torch.tensor([1.0, 2.0, 3.0, 4.0]))
    (gradient,) = te.gradient(output, [x], seed)
    actual = evaluation.evaluate([x, seed, gradient], [np.float32(rows), np.float32([1, 2, 3, 4])])
    np.testing.assert_array_equal(actual, wanted.numpy())


def test_a_product_of_elements_with_zeros_has_its_gradient() -> None:
    rows = np.float32([[2, 3, 4], [0, 3, 4], [0, 0, 4]])
    x, seed, k = te.placeholder((3, 3), name="x"), te.placeholder((3,), name="seed"), te.reduce_axis((0, 3))
    output = te.compute((3,), lambda i: te.prod(x[i, k], axis=k), name="product")
    (gradient,) = te.gradient(output, [x], seed)
    actual = evaluation.evaluate([x, seed, gradient], [rows, np.ones(3, np.float32)])
    np.testing.assert_array_equal(actual, [[12, 8, 6], [12, 0, 0], [0, 0, 0]])


def test_shares_of_16_bit_elements_are_added_up_in_float32() -> None:
    x, seed = te.placeholder((1,), "bfloat16", name="x"), te.placeholder((512,), name="seed")
    output = te.compute((512,), lambda i: x[0].astype("float32") * 1.0, name="spread")
    (gradient,) = te.gradient(output, [x], seed)
    assert gradient.dtype == "bfloat16"
    actual = evaluation.evaluate(
        [x, seed, gradient], [np.ones(1, ml_dtypes.bfloat16), np.full(512, 1.0078125, np.float32)]
    )
    assert float(actual[0]) == 516.0  # bfloat16 sums of ones end at 256


def test_a_gradient_has_a_gradient() -> None:
    inputs, output = vector(lambda x: x * x * x, 1)
    seed = te.placeholder((5,), name="seed")
    (first,) = te.gradient(output, inputs, seed)
    (second,) = te.gradient(first, inputs, seed)
    x, one = np.float32([1, 2, 3, -1, 0]), np.ones(5, np.float32)
    np.testing.assert_array_equal(evaluation.evaluate([*inputs, seed, second], [x, one]), 6 * x)


def test_every_function_has_a_derivative() -> None:
    assert FUNCTION_DERIVATIVES.keys() == set(MATH)


def test_what_has_no_gradient_is_refused() -> None:
    x, at, seed = te.placeholder((5,), name="x"), te.placeholder((3,), "int32", name="at"), te.placeholder((3,))
    inside = te.compute((3,), lambda i: x[te.maximum(te.minimum(at[i], 4), 0)], name="gathered")
    with pytest.raises(ValueError, match=r"^`x` must be read at affine indices .* but gathered reads it at .*at\[i"):
        te.gradient(inside, [x], seed)
    with pytest.raises(ValueError, match=r"^`at` must be floating-point .* but got dtype=int32$"):
        te.gradient(inside, [at], seed)
    step = te.compute((5,), lambda i: (x[i] > 0.0).astype("float32"), name="step")
    with pytest.raises(ValueError, match=r"^`output` must depend on x through floating-point .*, but step does not$"):
        te.gradient(step, [x], te.placeholder((5,)))
    double = te.compute((5,), lambda i: x[i] * 2.0, name="double")
    with pytest.raises(ValueError, match=r"^`seed` must be a tensor .* more than one element, but got seed=None"):
        te.gradient(double, [x])
    with pytest.raises(ValueError, match=r"^`seed` must be float32\[5\] like double, but got float32\[3\]$"):
        te.gradient(double, [x], seed)
    n = te.var("n", 1, 9)
    y = te.placeholder((n,), name="y")
    open_size = te.compute((n,), lambda i: y[i] * 2.0, name="open")
    with pytest.raises(ValueError, match=r"^`output` must have no open sizes to be differentiated, but y has n$"):
        te.gradient(open_size, [y], te.placeholder((n,)))


def test_equal_shares_are_multiplied_not_summed() -> None:
    x, seed, k = te.placeholder((4, 6), name="x"), te.placeholder((4,), name="seed"), te.reduce_axis((0, 6), "k")
    output = te.compute((4,), lambda i: te.sum(x[i, k] - x[i, 0], axis=k), name="differences")
    (gradient,) = te.gradient(output, [x], seed)
    assert gradient.op.reducer is None and all(source.op.reducer is None for source in gradient.op.inputs)
    actual = evaluation.evaluate([x, seed, gradient], [np.ones((4, 6), np.float32), np.ones(4, np.float32)])
    np.testing.assert_array_equal(actual, [[-5, 1, 1, 1, 1, 1]] * 4)


def differentiate_data(workload: Workload) -> list[Operation]:
    """Stages of the gradient by the first input, the last one at the end."""
    data, *_, output = workload.tensors()
    (gradient,) = te.gradient(output, [data], te.placeholder(output.shape, name="seed"))
    return [op for op in operations([gradient]) if op.body is not None]


def test_a_padded_tensor_has_no_gradient_of_its_own() -> None:
    """Zeros take no computation: neither around an image, nor between the elements that a filter spreads."""
    padded = differentiate_data(workloads.conv2d(1, 7, 7, 4, 6, 3, 1, 1))
    assert [(op.name, op.shape) for op in padded] == [("seed_around", (1, 9, 9, 6)), ("d_data", (1, 7, 7, 4))]
    (spread,) = differentiate_data(workloads.conv2d_transpose(1, 4, 4, 2, 3, 2, 2))
    assert spread.shape == (1, 4, 4, 2) and [axis.extent for axis in spread.reduce_axis] == [3, 2, 2]
    *_, phases, joined = differentiate_data(workloads.conv2d(1, 8, 8, 4, 6, 4, 2, 1))
    assert joined.shape == (1, 8, 8, 4) and phases.shape == (2, 2, 1, 5, 5, 4)


@pytest.mark.parametrize(("kernel", "steps"), [(2, 2 * 4 * 5), (3, 2 * 4 * 5)])
def test_weights_of_a_transposed_convolution_sum_over_its_input(kernel: int, steps: int) -> None:
    """The plainest definition spreads the input, and its gradient would sum over four times as many elements."""
    workload = workloads.conv2d_transpose(2, 4, 5, 3, 6, kernel, 2)
    data, weight, output = workload.tensors_to_differentiate(1)
    seed = te.placeholder(output.shape, name="seed")
    (gradient,) = te.gradient(output, [weight], seed)
    assert math.prod(axis.extent for axis in gradient.op.reduce_axis) == steps
    generator = torch.Generator().manual_seed(0)
    values = {t.op: torch.randn(t.shape, dtype=torch.float64, generator=generator) for t in (data, weight, seed)}
    (right,) = float64.differentiate(output, [weight], values[seed.op], values)
    torch.testing.assert_close(float64.evaluate([gradient], values)[0], right, rtol=1e-6, atol=1e-6)


def test_windows_that_are_no_multiple_of_the_stride_multiply_once() -> None:
    """An element is read by one or two of three positions: products for two would be zeros for half of them."""
    products, joined = differentiate_data(workloads.conv2d(1, 7, 7, 4, 6, 3, 2, 1))
    assert joined.shape == (1, 7, 7, 4) and products.shape == (1, 4, 4, 3, 3, 4)
    assert [axis.extent for axis in products.reduce_axis] == [6]
    product, _ = differentiate_data(workloads.conv2d(1, 7, 7, 4, 6, 1, 2))
    assert product.shape == (1, 1, 1, 4, 4, 4), "three of four phases meet no window"
    (joined,) = differentiate_data(workloads.depthwise_conv2d(1, 7, 7, 3, kernel=3, stride=2, padding=1))
    assert joined.shape == (1, 7, 7, 3) and joined.reducer is None, "nothing is summed but the positions"


@pytest.mark.parametrize(
    "workload", [workloads.conv2d(1, 7, 7, 2, 3, 3, 2, 1), workloads.depthwise_conv2d(1, 7, 7, 2, 3, 2, 1)]
)
def test_an_infinite_gradient_reaches_only_elements_of_its_window(workload: Workload) -> None:
    data, weight, output = workload.tensors()
    seed = te.placeholder(output.shape, name="seed")
    values = {t.op: torch.ones(t.shape, dtype=torch.float64) for t in (data, weight, seed)}
    values[seed.op][0, 1, 1, 0] = torch.inf
    (gradient,) = float64.evaluate(te.gradient(output, [data], seed), values)
    rows = torch.isfinite(gradient).all(-1)[0].logical_not().nonzero()
    assert rows.min(0).values.tolist() == [1, 1] and rows.max(0).values.tolist() == [3, 3] and len(rows) == 9


def test_an_input_that_is_padded_by_the_caller_has_a_gradient() -> None:
    x, w, k = te.placeholder((5,), name="x"), te.placeholder((3,), name="w"), te.reduce_axis((0, 3), "k")
    around = te.compute((7,), lambda i: te.if_then_else(te.all(i >= 1, i < 6), x[i - 1], 0.0), name="around")
    output = te.compute((5,), lambda i: te.sum(around[i + k] * w[k], axis=k), name="output")
    seed = te.placeholder((5,), name="seed")
    values = {t.op: torch.arange(1.0, 1.0 + t.shape[0], dtype=torch.float64) for t in (x, w, seed)}
    of_copy, of_source = float64.evaluate(te.gradient(output, [around, x], seed), values)
    assert of_copy.shape == (7,) and of_copy[0] == 1.0  # the first zero meets the first weight once
    torch.testing.assert_close(of_source, of_copy[1:6])


def test_vectors_of_groups_run_over_channels() -> None:
    """Weights are copied in the order in which they are read, and channels are not split by group."""
    *_, copied, gradient = differentiate_data(workloads.conv2d(1, 7, 7, 8, 12, 3, 1, 1, groups=2))
    assert gradient.shape == (1, 7, 7, 8) and copied.shape == (3, 3, 6, 8) and copied.tag is Tag.PAD
    reads = [node for node in walk(gradient.body) if node.op == "load" and node.args[0].op is copied]
    assert [read.args[-1] for read in reads] == [gradient.axis[-1].expr]


@pytest.mark.parametrize("sizes", [(7, 3, 3), (5, 3, 2), (5, 2, 3)], ids=str)
def test_weights_that_only_conditions_keep_inside_are_copied(sizes: tuple[int, int, int]) -> None:
    """Mirrored windows apart from each other: at some remainders, a weight outside of its shape is ruled out."""
    rows, taps, dilation = sizes
    x, w = te.placeholder((rows, 4), name="x"), te.placeholder((taps, 2, 4), name="w")
    pad = te.compute((rows + 3, 4), lambda i, c: te.if_then_else(i >= 3, x[i - 3, c], 0.0), name="pad")
    r, c = te.reduce_axis((0, taps), "r"), te.reduce_axis((0, 2), "c")
    output = te.compute(
        ((rows + 2 - (taps - 1) * dilation) // 5 + 1, 4),
        lambda h, k: te.sum(pad[h * 5 + (taps - 1 - r) * dilation, k // 2 * 2 + c] * w[r, c, k], axis=(r, c)),
        name="output",
    )
    seed = te.placeholder(output.shape, name="seed")
    generator = torch.Generator().manual_seed(0)
    values = {t.op: torch.randn(t.shape, dtype=torch.float64, generator=generator) for t in (x, w, seed)}
    gradients = te.gradient(output, [x, w], seed)
    wanted = float64.differentiate(output, [x, w], values[seed.op], values)
    for actual, right in zip(float64.evaluate(gradients, values), wanted, strict=True):
        torch.testing.assert_close(actual, right, rtol=1e-6, atol=1e-6)
    assert "w_by_group" in [op.name for op in operations(gradients[:1])]


def test_zeros_around_an_image_meet_infinite_factors() -> None:
    """Compares places of NaN with PyTorch: equal by weights; by data, PyTorch has none at the border."""
    workload = workloads.conv2d(1, 6, 6, 2, 3, 3, 1, 1)
    data, weight, output = workload.tensors()
    seed = te.placeholder(output.shape, name="seed")
    rng = np.random.default_rng(0)
    x, w, s = (rng.standard_normal(t.shape).astype(np.float32) for t in (data, weight, seed))

    def differentiate(w: np.ndarray, s: np.ndarray) -> tuple[list[np.ndarray], list[np.ndarray]]:
        arrays = [torch.from_numpy(a.transpose(order).copy()) for a, order in ((s, NCHW), (x, NCHW), (w, (3, 2, 0, 1)))]
        options = (None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [True, True, False])
        by_data, by_weight, _ = torch.ops.aten.convolution_backward(*arrays, *options)
        values, ours = {"data": x, "weight": w, "seed": s}, []
        for gradient in te.gradient(output, [data, weight], seed):
            read = [tensor for tensor in (data, weight, seed) if tensor.op in list_placeholders(gradient)]
            ours.append(evaluation.evaluate([*read, gradient], [values[tensor.name] for tensor in read]))
        return ours, [by_data.numpy().transpose(0, 2, 3, 1), by_weight.numpy().transpose(2, 3, 1, 0)]

    infinite = s.copy()
    infinite[0, 0, 0, 0] = np.inf
    (_, ours), (_, right) = differentiate(w, infinite)
    np.testing.assert_array_equal(np.isnan(ours), np.isnan(right))
    assert np.isnan(right[0]).any() and np.isinf(right[1:, 1:]).any()
    infinite = w.copy()
    infinite[0, 0] = np.inf
    (ours, _), (right, _) = differentiate(infinite, s)
    assert np.isfinite(right[0, -1]).all() and np.isnan(ours[0, -1]).all()  # only a zero meets the infinite weight
    np.testing.assert_array_equal(np.isnan(ours[:, :-1, :-1]), np.isnan(right[:, :-1, :-1]))

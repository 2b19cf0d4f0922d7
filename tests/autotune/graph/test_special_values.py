"""NaN, infinities, zeros of both signs and denormal numbers through operators, as in ONNX's reference and PyTorch.

Kernels of vectors with a rest are run, several operators in one executable.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import autotune
from autotune.compiler.prepare import load_network
from autotune.graph.evaluate import evaluate
from autotune.graph.frontends.onnx.nodes import run_node
from autotune.graph.ops.base import OPS
from tests.autotune.graph.onnx_models import make_model

pytestmark = pytest.mark.usefixtures("kernel_cache")

Array = NDArray[Any]
Case = tuple[str, Sequence[Any], dict[str, Any]]
"""Operator, constants behind x (None: left out), attributes."""

NAN, INF = float("nan"), float("inf")
SPECIAL = (NAN, INF, -INF, 0.0, -0.0, 1e-40, -1e-40, 0.5, -0.5, 1.5, -2.5, 7.0, -100.0, 3e38, -3e38)
LIMITING = ("Relu", "LeakyRelu", "HardSwish", "ThresholdedRelu", "Sign")
OTHERS = (
    "Elu",
    "Selu",
    "Celu",
    "HardSigmoid",
    "Shrink",
    "Softplus",
    "Mish",
    "Sigmoid",
    "Tanh",
    "Softsign",
    "Abs",
    "Exp",
)
OTHERS += ("Log", "Sqrt", "Erf", "Floor", "Ceil", "Round", "Neg", "Reciprocal", "IsNaN", "IsInf")


def draw(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).choice(np.float32(SPECIAL), shape)


def model(x: Array, cases: Sequence[Case], counts: Sequence[int]) -> onnx.ModelProto:
    """Operators that read `x`, whose results are outputs, `counts` of each."""
    nodes, weights, outputs = [], [], []
    for place, ((op, constants, attributes), count) in enumerate(zip(cases, counts, strict=True)):
        names = ["" if c is None else f"c{place}_{number}" for number, c in enumerate(constants)]
        weights += [numpy_helper.from_array(np.asarray(c), n) for n, c in zip(names, constants, strict=True) if n]
        made = [f"y{place}_{number}" for number in range(count)]
        nodes.append(helper.make_node(op, ["x", *names], made, **attributes))
        outputs += map(helper.make_empty_tensor_value_info, made)
    inputs = [helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)]
    graph = helper.make_graph(nodes, "special", inputs, outputs, weights)
    whole = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=9)
    return onnx.shape_inference.infer_shapes(whole, strict_mode=True)


def agree(x: Array, cases: Sequence[Case], counts: Sequence[int] = (), compiled: bool = True) -> None:
    """Checks that the graph, and its kernels where it is compiled, give what ONNX's reference does."""
    counts = counts or [1] * len(cases)
    network = model(x, cases, counts)
    graph = load_network(network, "special").graph
    with np.errstate(all="ignore"):
        wanted = ReferenceEvaluator(network).run(None, {"x": x})
        values = evaluate(graph, {"x": x})
    found = {"NumPy": [values[name] for name in graph.outputs]}
    if compiled:
        made = autotune.compile(network)(x)
        found["kernels"] = list(made) if isinstance(made, tuple) else [made]
    names = [f"{op} {attributes}" for (op, _, attributes), n in zip(cases, counts, strict=True) for _ in range(n)]
    for way, results in found.items():
        for name, result, right in zip(names, results, wanted, strict=True):
            np.testing.assert_allclose(result, right, rtol=1e-4, atol=1e-6, err_msg=f"{name}, by {way}")


def test_elementwise_operators() -> None:
    x, other = draw(3, 37), draw(3, 37, seed=1)
    cases: list[Case] = [(op, (), {}) for op in LIMITING]
    cases += [("Clip", (np.float32(-2), np.float32(2)), {}), ("PRelu", (other,), {})]
    cases += [("Max", (np.float32(0.5), other), {}), ("Min", (np.float32(NAN),), {})]
    agree(x, cases)
    cases = [(op, (), {}) for op in OTHERS]
    cases += [(op, (other,), {}) for op in ("Add", "Mul", "Div", "Min", "Less", "Greater", "LessOrEqual", "Equal")]
    agree(x, cases, compiled=False)


def test_powers() -> None:
    x = np.float32([*(value for value in SPECIAL if value), 1.0, -1.0, 2.0, -8.0])[:, None]
    exponents = np.float32([0.0, 1.5, 2.5, -1 / 3, 4.0, 5.0, -3.0, -2.0, INF, -INF, NAN])[None]
    agree(x, [("Pow", (exponents,), {})])


def test_what_a_product_adds_none_of_need_not_be_a_number() -> None:
    x, weight = draw(3, 5), np.ones((5, 4), np.float32)
    agree(x, [("Gemm", (weight, np.float32([NAN, 1, INF, 2])), {"beta": 0.0})])


@pytest.mark.parametrize("count", [5, 130])
def test_each_place_of_a_row(count: int) -> None:
    """NaN at each place of its row, on the diagonal; rows of NaN, of one infinity, and of both."""
    x = np.random.default_rng(0).uniform(-1, 1, (count + 5, count)).astype(np.float32)
    np.fill_diagonal(x, NAN)
    x[count:] = np.array([NAN, INF, -INF, 0.0, -INF])[:, None]
    x[count + 3 :, count // 2] = NAN, INF
    cases: list[Case] = [("ReduceMax", (np.int64([1]),), {}), ("ArgMax", (), {"axis": 1}), ("Softmax", (), {"axis": 1})]
    agree(x, cases)
    more: list[Case] = [("ReduceMin", (np.int64([1]),), {}), ("ArgMin", (), {"axis": 1, "select_last_index": 1})]
    more += [("LogSoftmax", (), {}), ("Hardmax", (), {})]
    more += [("TopK", (np.int64([3]),), {"largest": largest}) for largest in (0, 1)]
    agree(x, more, [1, 1, 1, 1, 2, 2], compiled=count > 5)


def test_columns() -> None:
    x, update = draw(9, 37), draw(4, 37, seed=1)
    cases: list[Case] = [("ReduceMax", (np.int64([0]),), {}), ("ArgMin", (), {"axis": 0})]
    cases += [("ScatterND", (np.int64([[0], [2], [0], [0]]), update), {"reduction": kind}) for kind in ("max", "min")]
    agree(x, cases)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_bytes(dtype: str) -> None:
    """The least and the greatest one, too; of signed bytes -128 is its own size, as in ONNX Runtime."""
    ends = np.iinfo(dtype)
    x = np.random.default_rng(0).integers(ends.min, ends.max + 1, (5, 37)).astype(dtype)
    x[:, 3:5] = ends.max, ends.min
    cases: list[Case] = [("Abs", (), {}), ("ArgMax", (), {"axis": 1}), ("ArgMin", (), {"axis": 0})]
    agree(x, [*cases, ("ReduceMax", (np.int64([0]),), {})])


@pytest.mark.parametrize("largest", [True, False])
def test_ranks_of_the_least_and_the_greatest_integer(largest: bool) -> None:
    x = np.int64([[5, -(2**63), 2**63 - 1, -(2**63), 0]])
    found = OPS["ranks"].evaluate({"largest": largest}, [x])
    np.testing.assert_array_equal(found, [[1, 3, 0, 4, 2]] if largest else [[3, 0, 4, 1, 2]])


def windows(x: Array, size: int) -> Array:
    """Windows of all places, (..., h, w, size * size)."""
    found = np.lib.stride_tricks.sliding_window_view(x, (size, size), (-2, -1))
    return found.reshape(*found.shape[:-2], -1)


def test_pools_keep_nan() -> None:
    """ONNX's reference leaves NaN out as it does padding, ONNX Runtime keeps it or not; PyTorch keeps it."""
    x = draw(1, 19, 6, 7)
    x[0, 0, :3, :3] = -INF
    cases: list[Case] = [("MaxPool", (), {"kernel_shape": [size, size]}) for size in (3, 2)]
    three, best, places, largest = autotune.compile(model(x, [*cases, ("GlobalMaxPool", (), {})], (1, 2, 1)))(x)
    np.testing.assert_array_equal(three, windows(x, 3).max(-1))
    np.testing.assert_array_equal(best, windows(x, 2).max(-1))
    np.testing.assert_array_equal(x.reshape(-1)[places], best)
    np.testing.assert_array_equal(largest, x.max((2, 3), keepdims=True))


def test_bytes_of_nan_are_the_least() -> None:
    x = np.float32([[NAN, INF, -INF, 0.0, 1.0] * 9])
    cases: list[Case] = [("QuantizeLinear", (np.float32(0.5), zero), {}) for zero in (np.uint8(3), np.int8(3))]
    unsigned, signed = autotune.compile(model(x, cases, (1, 1)))(x)
    np.testing.assert_array_equal(unsigned, np.uint8([[0, 255, 0, 3, 5] * 9]))
    np.testing.assert_array_equal(signed, np.int8([[-128, 127, -128, 3, 5] * 9]))


def test_an_ending_of_a_product_keeps_nan() -> None:
    """A row of NaN stays one behind a product, and leaves the others alone."""
    rng = np.random.default_rng(0)
    x, weight = rng.uniform(-1, 1, (9, 33)).astype(np.float32), rng.uniform(-1, 1, (33, 21)).astype(np.float32)
    x[4, 7] = NAN
    nodes = [helper.make_node("MatMul", ["x", "w"], ["t"])]
    nodes += [helper.make_node(op, ["t"], [op]) for op in ("Relu", "LeakyRelu", "HardSwish")]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)]
    outputs = [helper.make_tensor_value_info(node.op_type, TensorProto.FLOAT, (9, 21)) for node in nodes[1:]]
    graph = helper.make_graph(nodes, "product", inputs, outputs, [numpy_helper.from_array(weight, "w")])
    network = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=9)
    found, wanted = autotune.compile(network)(x), ReferenceEvaluator(network).run(None, {"x": x})
    for values, right in zip(found, wanted, strict=True):
        assert np.isnan(values[4]).all() and np.isfinite(np.delete(values, 4, 0)).all()
        np.testing.assert_allclose(values, right, rtol=1e-4, atol=1e-5)


def test_functions_of_torch() -> None:
    torch = pytest.importorskip("torch")
    x = torch.from_numpy(draw(5, 37))
    x[1], x[2], x[3] = NAN, INF, -INF

    def each(x: Any) -> list[Any]:
        found = [torch.relu(x), x.clamp(-2, 2), torch.sign(x), x.amax(1), x.argmax(1)]
        return [*found, *torch.nn.functional.max_pool2d(x[None, None], 3, 2, 1, return_indices=True)]

    for found, wanted in zip(torch.compile(each, backend="autotune")(x), each(x), strict=True):
        torch.testing.assert_close(found, wanted, rtol=0, atol=0, equal_nan=True)


def test_the_logarithm_of_a_sum_of_exponentials_is_that_of_its_definition() -> None:
    """PyTorch agrees; ONNX's reference subtracts the greatest element, which gives NaN for infinity."""
    torch = pytest.importorskip("torch")
    x = np.float32([[INF, 1, 2], [-INF, -INF, -INF], [NAN, 1, INF], [-INF, 0, 0], [200, 200, 199]])
    shown = model(x, [("ReduceLogSumExp", [np.int64([1])], {"keepdims": 0})], [1])
    wanted = torch.logsumexp(torch.from_numpy(x), 1).numpy()
    np.testing.assert_allclose(np.asarray(autotune.compile(shown)(x)), wanted, rtol=1e-6)


@pytest.mark.parametrize("mode", ["linear", "nearest", "cubic"])
def test_positions_outside_of_an_image_read_0_beside_nan(mode: str) -> None:
    """ONNX and PyTorch read 0 there, whatever the image has at its border."""
    x = np.full((1, 2, 3, 3), NAN, np.float32)
    x[0, 1] = INF
    grid = np.float32([[[[-5, 0], [0, 5], [-4, -4]]]])
    sampled = make_model("GridSample", {"x": x}, {"grid": grid}, opset=20, mode=mode)
    np.testing.assert_array_equal(np.asarray(autotune.compile(sampled)(x)).reshape(2, 3), np.zeros((2, 3), np.float32))
    (found,) = run_node(sampled.graph.node[0], {"x": x, "grid": grid}, 20).values()
    np.testing.assert_array_equal(found, np.zeros((1, 2, 1, 3), np.float32))


def test_samples_of_a_region_outside_of_an_image_are_0_beside_nan() -> None:
    """onnx 1.23.2, ONNX Runtime 1.32.0 and OpenVINO 2026.4.1 multiply the first pixel by 0, which is NaN here."""
    x = np.full((1, 1, 3, 3), NAN, np.float32)
    constants = {"regions": np.float32([[9, 9, 12, 12]]), "images": np.int64([0])}
    attributes = {"output_height": 2, "output_width": 2, "sampling_ratio": 2}
    aligned = make_model("RoiAlign", {"x": x}, constants, opset=16, **attributes)
    np.testing.assert_array_equal(np.asarray(autotune.compile(aligned)(x)).reshape(-1), np.zeros(4, np.float32))

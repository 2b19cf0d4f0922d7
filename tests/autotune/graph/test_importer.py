"""Operators imported one at a time, held against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autotune.graph.frontends.onnx.importer import UnsupportedModelError, import_model
from tests.autotune.graph.onnx_models import Array, check, evaluate_import, make_model, model_from, runtime


def draw(*shape: int, seed: int = 0, low: float = -2.0, high: float = 2.0) -> Array:
    """Uniform float32."""
    return np.random.default_rng([seed, *shape]).uniform(low, high, shape).astype(np.float32)


CONVOLUTIONS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "plain": ((2, 4, 7, 9), (6, 4, 3, 3), {}),
    "strided": ((1, 4, 9, 8), (6, 4, 3, 2), {"strides": [2, 3], "pads": [1, 0, 1, 0]}),
    "asymmetric": ((1, 4, 7, 7), (6, 4, 3, 3), {"pads": [0, 1, 2, 0], "strides": [2, 2]}),
    "dilated": ((1, 4, 9, 9), (6, 4, 3, 3), {"dilations": [2, 3], "pads": [1, 2, 1, 2]}),
    "groups": ((1, 6, 7, 7), (4, 3, 3, 3), {"group": 2, "pads": [1, 1, 1, 1]}),
    "depthwise": ((2, 6, 7, 7), (6, 1, 3, 3), {"group": 6, "pads": [1, 1, 1, 1]}),
    "depthwise asymmetric": ((1, 6, 7, 7), (6, 1, 3, 3), {"group": 6, "pads": [0, 0, 1, 1], "strides": [2, 2]}),
    "depthwise with a multiplier": ((1, 3, 7, 7), (6, 1, 3, 3), {"group": 3}),
    "same upper": ((1, 4, 8, 7), (6, 4, 3, 2), {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    "same lower": ((1, 4, 8, 7), (6, 4, 3, 2), {"auto_pad": "SAME_LOWER", "strides": [2, 2]}),
    "valid": ((1, 4, 8, 7), (6, 4, 3, 2), {"auto_pad": "VALID"}),
    "one axis": ((2, 4, 11), (6, 4, 3), {"pads": [0, 2], "strides": [2]}),
    "three axes": ((1, 2, 5, 6, 7), (3, 2, 2, 3, 3), {"pads": [0, 1, 1, 1, 1, 0]}),
}


@pytest.mark.parametrize("case", CONVOLUTIONS)
@pytest.mark.parametrize("bias", [False, True])
def test_convolutions(case: str, bias: bool) -> None:
    data, weight, attributes = CONVOLUTIONS[case]
    constants = {"w": draw(*weight)} | ({"b": draw(weight[0])} if bias else {})
    inputs = {"x": draw(*data)}
    check(make_model("Conv", inputs, constants, **attributes), inputs)


POOLS: dict[str, dict[str, Any]] = {
    "plain": {"kernel_shape": [2, 2], "strides": [2, 2]},
    "stride 1": {"kernel_shape": [3, 2]},
    "padded": {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]},
    "asymmetric": {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [0, 1, 2, 0]},
    "ceil": {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1},
    "ceil and padded": {"kernel_shape": [3, 3], "strides": [3, 2], "pads": [1, 1, 1, 1], "ceil_mode": 1},
    "ceil whose last window begins in the padding": {
        "kernel_shape": [2, 2],
        "strides": [3, 3],
        "pads": [0, 0, 1, 1],
        "ceil_mode": 1,
    },
    "same upper": {"kernel_shape": [3, 2], "strides": [2, 2], "auto_pad": "SAME_UPPER"},
    "same lower": {"kernel_shape": [3, 2], "strides": [2, 2], "auto_pad": "SAME_LOWER"},
}


@pytest.mark.parametrize("case", POOLS)
@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "AveragePool counting padding"])
@pytest.mark.parametrize("extent", [(6, 7), (8, 9)])
def test_pools(case: str, op: str, extent: tuple[int, int]) -> None:
    more = {"count_include_pad": 1} if "counting" in op else {}
    inputs = {"x": draw(2, 3, *extent)}
    check(make_model(op.split()[0], inputs, opset=19 if op != "MaxPool" else 12, **POOLS[case], **more), inputs)


@pytest.mark.parametrize("case", [name for name in POOLS if name.startswith("ceil")])
def test_pools_of_norms_round_up(case: str) -> None:
    inputs = {"x": draw(2, 3, 7, 9)}
    check(make_model("LpPool", inputs, opset=18, **POOLS[case]), inputs)


@pytest.mark.parametrize("rank", [1, 3])  # ONNX Runtime pools over three axes at most
@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "AveragePool counting padding"])
@pytest.mark.parametrize("ceil", [0, 1])
def test_pools_over_one_axis_and_over_more_than_two(rank: int, op: str, ceil: int) -> None:
    pads = {"pads": [*(1, 0, 1)[:rank], *(0, 1, 1)[:rank]]}
    fields = {"kernel_shape": [2, 3, 3][:rank], "strides": [1, 2, 3][:rank], "ceil_mode": ceil, **pads}
    more = {"count_include_pad": 1} if "counting" in op else {}
    inputs = {"x": draw(2, 3, *(5, 7, 8)[:rank])}
    check(make_model(op.split()[0], inputs, opset=19 if op != "MaxPool" else 12, **fields, **more), inputs)


@pytest.mark.parametrize("op", ["GlobalAveragePool", "GlobalMaxPool"])
@pytest.mark.parametrize("shape", [(2, 3, 5, 4), (1, 3, 7), (1, 2, 3, 4, 5)])
def test_global_pools(op: str, shape: tuple[int, ...]) -> None:
    inputs = {"x": draw(*shape)}
    check(make_model(op, inputs), inputs)


@pytest.mark.parametrize("training", [0])
def test_batch_normalization(training: int) -> None:
    inputs = {"x": draw(2, 3, 4, 5)}
    statistics = {"s": draw(3), "b": draw(3, seed=1), "m": draw(3, seed=2), "v": draw(3, low=0.5)}
    check(make_model("BatchNormalization", inputs, statistics, opset=15, epsilon=1e-3, training_mode=training), inputs)


@pytest.mark.parametrize("size", [1, 3, 5])
def test_local_response_normalization(size: int) -> None:
    inputs = {"x": draw(1, 7, 3, 4)}
    check(make_model("LRN", inputs, size=size, alpha=0.3, beta=0.6, bias=1.5), inputs)


@pytest.mark.parametrize(
    ("left", "right", "transposes"),
    [((3, 5), (5, 4), (0, 0)), ((5, 3), (4, 5), (1, 1)), ((3, 5), (4, 5), (0, 1)), ((5, 3), (5, 4), (1, 0))],
)
@pytest.mark.parametrize("addend", [(4,), (3, 4), (1, 4), (3, 1), None])
def test_gemm(
    left: tuple[int, int], right: tuple[int, int], transposes: tuple[int, int], addend: tuple[int, ...] | None
) -> None:
    inputs = {"a": draw(*left), "b": draw(*right)}
    inputs |= {"c": draw(*addend)} if addend else {}
    factors = {"alpha": 0.5, "beta": 2.0}
    check(make_model("Gemm", inputs, transA=transposes[0], transB=transposes[1], **factors), inputs)
    constants = {name: inputs[name] for name in inputs if name != "a"}
    some = {"a": inputs["a"]}
    check(make_model("Gemm", some, constants, transA=transposes[0], transB=transposes[1], **factors), some)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((3, 5), (5, 4)),
        ((2, 3, 5), (2, 5, 4)),
        ((2, 3, 5), (5, 4)),
        ((3, 5), (2, 5, 4)),
        ((2, 1, 3, 5), (3, 5, 4)),
        ((5,), (5, 4)),
        ((3, 5), (5,)),
        ((2, 3, 5), (5,)),
        ((5,), (2, 5, 4)),
        ((1, 3, 5), (1, 5, 4)),
    ],
)
def test_matmul(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    inputs = {"a": draw(*left), "b": draw(*right)}
    check(make_model("MatMul", inputs), inputs)


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize("opset", [11, 13])
@pytest.mark.parametrize("axis", [None, 0, 1, 2, -1])
def test_softmax_before_and_after_operator_set_13(op: str, opset: int, axis: int | None) -> None:
    inputs = {"x": draw(2, 3, 4)}
    check(make_model(op, inputs, opset=opset, **({} if axis is None else {"axis": axis})), inputs)


UNARY = ["Relu", "Sigmoid", "Tanh", "Exp", "Erf", "Abs", "Floor", "Neg", "Identity"]


@pytest.mark.parametrize("op", UNARY)
def test_element_wise(op: str) -> None:
    inputs = {"x": draw(3, 4)}
    check(make_model(op, inputs), inputs)


@pytest.mark.parametrize("op", ["Log", "Sqrt"])
def test_element_wise_of_positive_numbers(op: str) -> None:
    inputs = {"x": draw(3, 4, low=0.1)}
    check(make_model(op, inputs), inputs)


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div"])
@pytest.mark.parametrize(("left", "right"), [((2, 3, 4), (4,)), ((3, 1), (1, 4)), ((1,), (2, 3)), ((2, 3), (2, 3))])
def test_broadcasting(op: str, left: tuple[int, ...], right: tuple[int, ...]) -> None:
    inputs = {"x": draw(*left), "y": draw(*right, low=0.5)}
    check(make_model(op, inputs), inputs)


@pytest.mark.parametrize("op", ["Sum", "Max", "Min"])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_any_number_of_operands(op: str, count: int) -> None:
    inputs = {f"x{i}": draw(2, 3, seed=i) for i in range(count)}
    check(make_model(op, inputs), inputs)


def test_clip_by_attributes_and_by_inputs() -> None:
    inputs = {"x": draw(3, 4)}
    check(make_model("Clip", inputs, opset=6, min=-0.5, max=1.0), inputs)
    limits = {"low": np.array(-0.5, np.float32), "high": np.array(1.0, np.float32)}
    check(make_model("Clip", inputs, limits, opset=13), inputs)
    check(make_model("Clip", inputs, {"high": limits["high"]}, opset=13, order=["x", "", "high"]), inputs)


@pytest.mark.parametrize(
    ("op", "opset", "constants", "attributes"),
    [
        ("Reshape", 13, {"s": np.array([0, -1, 2])}, {}),
        ("Flatten", 13, {}, {}),
        ("Flatten", 13, {}, {"axis": -1}),
        ("Flatten", 13, {}, {"axis": 0}),
        ("Unsqueeze", 11, {}, {"axes": [0, 3]}),
        ("Unsqueeze", 13, {"a": np.array([-1, 1])}, {}),
        ("Transpose", 13, {}, {}),
        ("Transpose", 13, {}, {"perm": [1, 2, 0]}),
        ("Dropout", 13, {}, {}),
    ],
)
def test_shapes(op: str, opset: int, constants: dict[str, Array], attributes: dict[str, Any]) -> None:
    inputs = {"x": draw(2, 6, 4)}
    check(make_model(op, inputs, constants, opset=opset, **attributes), inputs)


@pytest.mark.parametrize(("opset", "axes"), [(11, None), (11, [1]), (13, None), (13, [-1, 1])])
def test_squeeze(opset: int, axes: list[int] | None) -> None:
    inputs = {"x": draw(2, 1, 3, 1)}
    attributes = {"axes": axes} if axes and opset == 11 else {}
    constants = {"a": np.array(axes)} if axes and opset == 13 else {}
    check(make_model("Squeeze", inputs, constants, opset=opset, **attributes), inputs)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_concat(axis: int) -> None:
    shapes = [tuple(n + (place == axis % 3) * k for place, n in enumerate((2, 3, 4))) for k in range(3)]
    inputs = {f"x{k}": draw(*shape) for k, shape in enumerate(shapes)}
    check(make_model("Concat", inputs, axis=axis), inputs)


def test_shape_arithmetic_is_computed_at_import() -> None:
    from onnx import helper

    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "first"], ["n"]),
        helper.make_node("Concat", ["n", "rest"], ["wanted"], axis=0),
        helper.make_node("Reshape", ["x", "wanted"], ["y"]),
    ]
    inputs = {"x": draw(2, 3, 4)}
    model = model_from(nodes, inputs, {"first": np.array([0]), "rest": np.array([-1])})
    check(model, inputs)
    assert [node.op for node in import_model(model).nodes] == ["reshape"]


@pytest.mark.parametrize("case", ["asymmetric", "depthwise asymmetric", "same upper"])
def test_asymmetric_padding_needs_no_operation_of_its_own(case: str) -> None:
    data, weight, attributes = CONVOLUTIONS[case]
    graph = import_model(make_model("Conv", {"x": draw(*data)}, {"w": draw(*weight)}, **attributes))
    assert "pad" not in [node.op for node in graph.nodes]


@pytest.mark.parametrize("reverse", [0, 1])
@pytest.mark.parametrize("extent", [3, 256, 257, 1000])
def test_running_sums_count_no_element_beyond(extent: int, reverse: int) -> None:
    x = np.ones((2, extent), np.float32)
    x[0, extent // 2] = np.inf
    inputs, constants = {"x": x}, {"axis": np.array(1)}
    model = make_model("CumSum", inputs, constants, exclusive=1, reverse=reverse)
    (found,) = evaluate_import(model, inputs)
    np.testing.assert_array_equal(found, runtime(model, inputs)[0])
    most = max(node.type.shape[-1] for node in import_model(model).nodes if node.op == "cumsum")
    assert most <= 256


def test_the_last_update_of_a_place_holds() -> None:
    inputs = {"x": draw(5, 3), "y": draw(4, 3)}
    indices = np.array([[3], [1], [-2], [1]])
    wanted = inputs["x"].copy()
    wanted[3], wanted[1] = inputs["y"][2], inputs["y"][3]
    model = make_model("ScatterND", inputs, {"i": indices}, order=["x", "i", "y"])
    np.testing.assert_array_equal(evaluate_import(model, inputs)[0], wanted)
    computed = {"x": inputs["x"], "i": indices, "y": inputs["y"]}
    np.testing.assert_array_equal(evaluate_import(make_model("ScatterND", computed), computed)[0], wanted)


def test_places_that_are_the_same_in_all_rows_are_a_slice() -> None:
    inputs, indices = {"x": draw(2, 9)}, {"i": np.array([[1, 3, 5], [1, 3, 5]])}
    model = make_model("GatherElements", inputs, indices, axis=1)
    np.testing.assert_array_equal(evaluate_import(model, inputs)[0], inputs["x"][:, 1:6:2])
    assert [node.op for node in import_model(model).nodes] == ["slice"]


def test_computed_places_out_of_bounds_are_the_nearest() -> None:
    inputs = {"x": draw(2, 3), "i": np.array([[-9, 9], [-3, 2]])}
    found = evaluate_import(make_model("GatherElements", inputs, axis=1), inputs)[0]
    np.testing.assert_array_equal(found, inputs["x"][:, [0, 2]])


@pytest.mark.parametrize(
    ("op", "index", "shape", "attributes", "rule"),
    [
        ("ScatterND", [[5]], (1, 3), {}, "must have indices within .*5.*, but got 5 to 5"),
        ("ScatterElements", [[7]], (1, 1), {}, "must have indices within 5, but got 7 to 7"),
        (
            "ScatterND",
            [[0]] * 65,
            (65, 3),
            {"reduction": "add"},
            "must reduce a place with at most 64 updates, but got 65",
        ),
        ("ScatterND", None, (1, 3), {"reduction": "add"}, "must have constant indices where updates are reduced"),
    ],
)
def test_places_that_are_refused(
    op: str, index: list[Any] | None, shape: tuple[int, ...], attributes: dict[str, Any], rule: str
) -> None:
    inputs, places = {"x": draw(5, 3), "y": draw(*shape)}, {"i": np.array([[0]] if index is None else index)}
    given = (inputs | places, {}) if index is None else (inputs, places)
    model = make_model(op, *given, opset=16, order=["x", "i", "y"], **attributes)
    with pytest.raises(UnsupportedModelError, match=f"{op} node 'only' {rule}"):
        import_model(model)

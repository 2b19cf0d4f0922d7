"""Rules of simplify: each where it applies, and where it must not."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from autotune.graph.evaluate import evaluate
from autotune.graph.ir import Graph, GraphBuilder, TensorType
from autotune.graph.passes import optimise
from autotune.graph.passes.simplify import simplify
from tests.autotune.graph.random_graphs import assert_equal_outputs


class Net:
    """A graph on x (2, 6, 6, 4), y of the same type and rows (3, 8)."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(7)
        kind = TensorType((2, 6, 6, 4))
        self.b = GraphBuilder("net", {"x": kind, "y": kind, "rows": TensorType((2, 3, 8))})

    def weight(self, *shape: int) -> str:
        return self.b.constant(self.rng.uniform(0.5, 1.5, shape).astype(np.float32))

    def full(self, value: float, *shape: int) -> str:
        return self.b.constant(np.full(shape, value, np.float32))

    def __call__(self, op: str, *inputs: str, **attrs: Any) -> str:
        return self.b.add(op, inputs, **attrs)

    def graph(self, *outputs: str) -> Graph:
        """Finishes and simplifies the graph; checks that the pass keeps the outputs."""
        graph = self.b.finish(outputs)
        new = simplify(graph)
        assert_equal_outputs(new, graph, rtol=1e-5)
        return new

    def ops(self, *outputs: str) -> list[str]:
        return [node.op for node in self.graph(*outputs).nodes]


@pytest.fixture
def net() -> Net:
    return Net()


@pytest.mark.parametrize(("op", "value"), [("add", -0.0), ("subtract", 0), ("multiply", 1), ("divide", 1)])
def test_neutral_operands_go(net: Net, op: str, value: float) -> None:
    assert net.ops(net(op, "x", net.full(value, 4))) == []
    assert net.ops(net(op, "x", net.full(value, 3, 1, 1, 1, 4))) == [op], "it gives another shape"
    assert net.ops(net(op, "x", net.full(value + 1, 4))) == [op]


def test_a_difference_from_zero_stays(net: Net) -> None:
    assert net.ops(net("subtract", net.full(0, 4), "x")) == ["subtract"]
    assert net.ops(net("add", net.full(-0.0, 4), "x")) == []


def test_a_sum_with_zero_stays_where_it_is_no_sum_of_products(net: Net) -> None:
    assert net.ops(net("add", "x", net.full(0, 4))) == ["add"]  # -0 + 0 is 0
    assert net.ops(net("subtract", "x", net.full(-0.0, 4))) == ["subtract"]


def test_operands_that_are_one_value() -> None:
    b = GraphBuilder("equals", {"c": TensorType((2, 3), "bool"), "i": TensorType((3,), "int32"), "f": TensorType((3,))})
    names = [b.add("where", ["c", "f", "f"]), *(b.add(op, ["i", "i"]) for op in ("subtract", "equal", "less"))]
    names += [b.add("subtract", ["f", "f"]), b.add("equal", ["f", "f"])]
    graph = b.finish([b.add("abs", [name]) if place in (0, 1, 4) else name for place, name in enumerate(names)])
    new = simplify(graph)
    assert sorted(n.op for n in new.nodes if n.op not in ("abs", "broadcast_to")) == ["equal", "subtract"]
    x = np.array([np.nan, 1.0, np.inf], np.float32)
    feeds = {"c": np.array([[1, 0, 1], [0, 0, 1]], bool), "i": np.array([-5, 0, 7], np.int32), "f": x}
    found = [evaluate(g, feeds) for g in (new, graph)]
    for first, second in zip(new.outputs, graph.outputs, strict=True):
        np.testing.assert_array_equal(found[0][first], found[1][second])


def test_halves_of_an_affine_step_go(net: Net) -> None:
    one, zero, some = net.full(1, 4), net.full(-0.0, 4), net.weight(4)
    assert net.ops(net("affine", "x", one, zero)) == []
    assert net.ops(net("affine", "x", one, some)) == ["add"]
    assert net.ops(net("affine", "x", some, zero)) == ["multiply"]
    assert net.ops(net("affine", "x", some, some)) == ["affine"]


def test_views_that_move_nothing_go(net: Net) -> None:
    y = net("reshape", net("transpose", "x", axes=(0, 1, 2, 3)), shape=(2, 6, 6, 4))
    y = net("pad", net("slice", y, begin=(0,) * 4, size=(2, 6, 6, 4)), before=(0,) * 4, after=(0,) * 4)
    assert net.ops(net("concat", y, axis=1)) == []
    assert net.ops(net("slice", "x", begin=(1, 0, 0, 0), size=(2, 6, 6, 4), step=(-1, 1, 1, 1))) == ["slice"]


def test_two_views_are_one(net: Net) -> None:
    assert net.ops(net("reshape", net("reshape", "x", shape=(12, 24)), shape=(72, 4))) == ["reshape"]
    assert net.ops(net("reshape", net("reshape", "x", shape=(12, 24)), shape=(2, 6, 6, 4))) == []
    assert net.ops(net("transpose", net("transpose", "x", axes=(1, 0, 3, 2)), axes=(0, 1, 3, 2))) == ["transpose"]
    assert net.ops(net("transpose", net("transpose", "x", axes=(0, 3, 1, 2)), axes=(0, 2, 3, 1))) == []
    first = net("slice", "x", begin=(0, 5, 1, 0), size=(2, 5, 2, 3), step=(1, -1, 3, 1))
    assert net.ops(net("slice", first, begin=(1, 0, 1, 0), size=(1, 2, 1, 3), step=(1, 2, 1, 1))) == ["slice"]


def test_a_transposition_of_single_extents_is_a_reshape(net: Net) -> None:
    y = net("reduce", net("reduce", "x", axes=(1,)), axes=(1,))
    assert net.ops(net("transpose", net("reshape", y, shape=(2, 1, 1, 4)), axes=(0, 3, 1, 2)))[-1] == "reshape"


def test_parts_are_taken_from_what_they_come_from(net: Net) -> None:
    whole = net("concat", "x", "y", axis=3)
    assert net.ops(net("slice", whole, begin=(0, 0, 0, 4), size=(2, 6, 6, 4))) == ["slice"]
    new = net.graph(net("slice", whole, begin=(0, 0, 0, 5), size=(2, 6, 6, 2)))
    assert [(node.op, node.inputs) for node in new.nodes] == [("slice", ("y",))]
    assert net.ops(net("slice", whole, begin=(0, 0, 0, 3), size=(2, 6, 6, 2))) == ["concat", "slice"]


def test_concat_of_concat(net: Net) -> None:
    inner = net("concat", "x", "y", axis=3)
    assert net.ops(net("concat", "x", inner, axis=3)) == ["concat"]
    assert net.ops(net("concat", inner, inner, axis=1)) == ["concat", "concat"]
    assert net.ops(net("concat", "x", inner, axis=3), inner) == ["concat", "concat"], "the caller reads it"


def test_pad_of_pad(net: Net) -> None:
    inner = net("pad", "x", before=(0, 1, 0, 0), after=(0, 0, 2, 0), value=1.0)
    assert net.ops(net("pad", inner, before=(0, 1, 0, 1), after=(0, 0, 0, 0), value=1.0)) == ["pad"]
    assert net.ops(net("pad", inner, before=(0, 1, 0, 1), after=(0, 0, 0, 0), value=2.0)) == ["pad", "pad"]


LIMITS = [
    ("clip", {"low": 0.0, "high": math.inf}, ["relu"]),
    ("clip", {"low": 0.0, "high": 6.0}, ["relu6"]),
    ("clip", {"low": -math.inf, "high": math.inf}, []),
    ("clip", {"low": -math.inf, "high": 0.5}, ["minimum"]),
    ("clip", {"low": 0.25, "high": math.inf}, ["maximum"]),
    ("clip", {"low": 0.25, "high": 0.5}, ["clip"]),
]


@pytest.mark.parametrize(("op", "attrs", "expected"), LIMITS)
def test_limits_are_said_with_least(net: Net, op: str, attrs: dict[str, Any], expected: list[str]) -> None:
    assert net.ops(net(op, "x", **attrs)) == expected


def test_limits_that_hold_go(net: Net) -> None:
    assert net.ops(net("relu", net("relu", "x"))) == ["relu"]
    assert net.ops(net("relu", net("max_pool2d", net("sigmoid", "x")))) == ["sigmoid", "max_pool2d"]
    assert net.ops(net("relu6", net("relu", "x"))) == ["relu6"]
    assert net.ops(net("minimum", net("relu", "x"), net.full(6, 1))) == ["relu6"]
    assert net.ops(net("maximum", net.full(0, 1), net("clip", "x", low=-1.0, high=0.5))) == ["clip"]
    assert net.ops(net("relu", net("max_pool2d", "x", padding=1))) == ["max_pool2d", "relu"]
    both = net("relu", "x")
    assert net.ops(net("relu6", both), both) == ["relu", "minimum"], "another reads the first"


@pytest.mark.parametrize("limits", [(3.0, -3.0), (math.inf, 0.5), (1.0, -math.inf)])
def test_limits_of_which_the_lower_is_greater_leave_the_upper(net: Net, limits: tuple[float, float]) -> None:
    inverted = net("clip", "x", low=limits[0], high=limits[1])
    net.graph(net("relu", inverted), net("clip", inverted, low=limits[0], high=2.0), net("minimum", inverted, "y"))
    net.graph(net("clip", net("tanh", "x"), low=limits[0], high=limits[1]))
    net.graph(net("maximum", net("clip", "x", low=limits[0], high=limits[1]), net.full(1, 1)))


def test_infinite_limits(net: Net) -> None:
    assert net.ops(net("maximum", "x", net.full(math.inf, 1))) == ["maximum"]
    assert net.ops(net("minimum", "x", net.full(-math.inf, 1))) == ["minimum"]
    assert net.ops(net("minimum", net("maximum", "x", net.full(-math.inf, 1)), net.full(math.inf, 1))) == []


def test_a_larger_element_of_two_values_stays(net: Net) -> None:
    assert net.ops(net("maximum", "x", "y")) == ["maximum"]
    assert net.ops(net("maximum", "x", net.weight(4))) == ["maximum"]


BORDER = {"before": (0, 1, 1, 0), "after": (0, 1, 1, 0)}


def test_zeros_before_a_convolution_are_its_padding(net: Net) -> None:
    weight = net.weight(3, 3, 4, 2)
    padded = net("pad", "x", **BORDER)
    new = net.graph(net("conv2d", padded, weight, padding=(0, 1)))
    assert [(node.op, node.attrs["padding"]) for node in new.nodes] == [("conv2d", (1, 2))]
    assert net.ops(net("depthwise_conv2d", padded, net.weight(3, 3, 4))) == ["depthwise_conv2d"]
    assert net.ops(net("conv2d", net("pad", "x", **BORDER, value=1.0), weight)) == ["pad", "conv2d"]
    uneven = net("pad", "x", before=(0, 0, 0, 0), after=(0, 1, 1, 0))
    assert net.ops(net("conv2d", uneven, weight)) == ["conv2d"]
    channel = net("pad", "x", before=(0, 0, 0, 1), after=(0, 0, 0, 1))
    assert net.ops(net("conv2d", channel, net.weight(3, 3, 6, 2))) == ["pad", "conv2d"]


def test_padding_before_a_largest_element(net: Net) -> None:
    positive = net("pad", net("relu", "x"), **BORDER)
    assert net.ops(net("max_pool2d", positive, kernel=3)) == ["relu", "max_pool2d"]
    assert net.ops(net("max_pool2d", net("pad", "x", **BORDER, value=-math.inf), kernel=3)) == ["max_pool2d"]
    assert net.ops(net("max_pool2d", net("pad", "x", **BORDER), kernel=3)) == ["pad", "max_pool2d"]
    assert net.ops(net("max_pool2d", positive, kernel=2, padding=1)) == ["relu", "pad", "max_pool2d"], "too much"


def test_padding_before_a_mean_counts(net: Net) -> None:
    padded = net("pad", "x", **BORDER)
    assert net.ops(net("avg_pool2d", padded, kernel=2)) == ["avg_pool2d"]
    assert net.ops(net("avg_pool2d", padded, kernel=4, padding=1, count_padding=True)) == ["avg_pool2d"]
    assert net.ops(net("avg_pool2d", padded, kernel=4, padding=1)) == ["pad", "avg_pool2d"]


# Layers written out.


def _gelu(net: Net, x: str, form: int) -> str:
    root = net("divide", x, net.full(math.sqrt(2), 1)) if form % 2 else net("multiply", net.full(math.sqrt(0.5), 1), x)
    gate = net("add", net("erf", root), net.full(1, 1))
    if form < 2:
        return net("multiply", net("multiply", x, net.full(0.5, 1)), gate)
    if form < 4:
        return net("multiply", net("multiply", x, gate), net.full(0.5, 1))
    return net("multiply", x, net("multiply", net.full(0.5, 1), gate))


@pytest.mark.parametrize("form", range(6))
def test_gelu(net: Net, form: int) -> None:
    assert net.ops(_gelu(net, "x", form)) == ["gelu"]


def test_what_is_nearly_gelu_stays(net: Net) -> None:
    def list_ops(x: str, other: str, half: float, root: float) -> list[str]:
        gate = net("add", net("erf", net("multiply", x, net.full(root, 1))), net.full(1, 1))
        return net.ops(net("multiply", net("multiply", other, net.full(half, 1)), gate))

    assert "erf" in list_ops("x", "y", 0.5, math.sqrt(0.5))
    assert "erf" in list_ops("x", "x", 0.4, math.sqrt(0.5))
    assert "erf" in list_ops("x", "x", 0.5, 0.7)
    gate = net("add", net("erf", net("multiply", "x", net.full(math.sqrt(0.5), 1))), net.full(1, 1))
    whole = net("multiply", net("multiply", "x", net.full(0.5, 1)), gate)
    assert "gelu" not in net.ops(whole, gate), "the caller reads a part"


SCALE = math.sqrt(2 / math.pi)


def _inner(net: Net, x: str, form: str) -> str:
    """Returns sqrt(2 / pi) * (x + 0.044715 * x³), as exporters write it."""
    if form == "cube":
        cube = net("multiply", net("multiply", x, x), x)
        return net("multiply", net("add", x, net("multiply", cube, net.full(0.044715, 1))), net.full(SCALE, 1))
    square = net("multiply", net.full(0.044715, 1), net("multiply", x, x))
    if form == "square":
        return net("multiply", net("multiply", x, net.full(SCALE, 1)), net("add", square, net.full(1, 1)))
    scaled = net("multiply", net.full(0.044715, 1), x)  # the factor belongs to one x, the quotient to the sum
    return net("divide", net("add", net("multiply", scaled, net("multiply", x, x)), x), net.full(1 / SCALE, 1))


@pytest.mark.parametrize("form", ["cube", "square", "quotient"])
@pytest.mark.parametrize("outer", range(3))
def test_gelu_by_tanh(net: Net, form: str, outer: int) -> None:
    gate = net("add", net.full(1, 1), net("tanh", _inner(net, "x", form)))
    if outer == 0:
        out = net("multiply", net("multiply", net.full(0.5, 1), "x"), gate)
    elif outer == 1:
        out = net("multiply", "x", net("multiply", gate, net.full(0.5, 1)))
    else:
        out = net("divide", net("multiply", gate, "x"), net.full(2, 1))
    assert net.ops(out) == ["gelu_tanh"]


def test_what_is_nearly_gelu_by_tanh_stays(net: Net) -> None:
    def list_ops(x: str, other: str, half: float, cubic: float, scale: float) -> list[str]:
        cube = net("multiply", net("multiply", x, x), x)
        inner = net("multiply", net("add", x, net("multiply", cube, net.full(cubic, 1))), net.full(scale, 1))
        gate = net("add", net("tanh", inner), net.full(1, 1))
        return net.ops(net("multiply", net("multiply", other, net.full(half, 1)), gate))

    assert list_ops("x", "x", 0.5, 0.044715, SCALE) == ["gelu_tanh"]
    assert "tanh" in list_ops("x", "y", 0.5, 0.044715, SCALE)
    assert "tanh" in list_ops("x", "x", 0.4, 0.044715, SCALE)
    assert "tanh" in list_ops("x", "x", 0.5, 0.0448, SCALE)
    assert "tanh" in list_ops("x", "x", 0.5, 0.044715, SCALE * (1 + 5e-6)), "more than rounding"
    assert list_ops("x", "x", 0.5, 0.044715, 0.7978845608) == ["gelu_tanh"]
    gate = net("add", net("tanh", net("multiply", "x", net.full(SCALE, 1))), net.full(1, 1))
    assert "tanh" in net.ops(net("multiply", net("multiply", "x", net.full(0.5, 1)), gate)), "without the cube"


def test_long_chains_of_products_stay_cheap(net: Net) -> None:
    power = "x"
    for _ in range(40):  # expanded, 2^40 factors
        power = net("multiply", power, power)
    assert net.ops(power) == ["multiply"] * 40
    product = "x"
    for _ in range(1500):  # deeper than Python's stack
        product = net("multiply", product, "y")
    assert len(net.ops(product)) == 1500


def test_silu(net: Net) -> None:
    assert net.ops(net("multiply", net("sigmoid", "x"), "x")) == ["silu"]
    assert net.ops(net("multiply", net("sigmoid", "x"), "y")) == ["sigmoid", "multiply"]


def _rows(net: Net, x: str, reducer: str, axis: int = 2) -> str:
    shape = [2, 3, 8]
    shape[axis] = 1
    return net("reshape", net("reduce", x, axes=(axis,), reducer=reducer), shape=shape)


def test_softmax(net: Net) -> None:
    e = net("exp", net("subtract", "rows", _rows(net, "rows", "max")))
    assert net.ops(net("divide", e, _rows(net, e, "sum"))) == ["reshape", "softmax", "reshape"]


def test_what_is_nearly_softmax_stays(net: Net) -> None:
    plain = net("exp", "rows")  # of what is above 88, infinite
    assert "softmax" not in net.ops(net("divide", plain, _rows(net, plain, "sum")))
    e = net("exp", net("subtract", "rows", _rows(net, "rows", "max")))
    assert "softmax" not in net.ops(net("divide", e, _rows(net, e, "sum", axis=1)))
    assert "softmax" not in net.ops(net("divide", e, _rows(net, e, "max")))
    assert "softmax" not in net.ops(net("divide", e, _rows(net, "rows", "sum")))


def _layer_norm(net: Net, form: int, axis: int = 2, epsilon: float = 1e-3) -> str:
    d = net("subtract", "rows", _rows(net, "rows", "mean", axis))
    total = net("add", _rows(net, net("multiply", d, d), "mean", axis), net.full(epsilon, 1))
    if form == 0:
        y = net("divide", d, net("sqrt", total))
    elif form == 1:
        y = net("multiply", net("rsqrt", total), d)
    else:
        y = net("multiply", d, net("divide", net.full(1, 1), net("sqrt", total)))
    return net("add", net("multiply", y, net.weight(8)), net.weight(8))


@pytest.mark.parametrize("form", range(3))
def test_layer_norm(net: Net, form: int) -> None:
    graph = net.b.finish([_layer_norm(net, form)])
    new = optimise(graph)
    assert_equal_outputs(new, graph, rtol=1e-4)
    assert [node.op for node in new.nodes] == ["reshape", "layer_norm", "reshape"]
    assert new.nodes[1].attrs["epsilon"] == pytest.approx(1e-3)


def test_what_is_nearly_layer_norm_stays(net: Net) -> None:
    for out in (_layer_norm(net, 0, axis=1), _layer_norm(net, 0, epsilon=0)):
        graph = net.b.finish([out])
        assert "layer_norm" not in [node.op for node in optimise(graph).nodes]


def test_factors_of_each_row_stay_behind_layer_norm(net: Net) -> None:
    rows = net("reshape", "rows", shape=(6, 8))
    y = net("layer_norm", rows, net.weight(8), net.weight(8))
    assert net.ops(net("multiply", y, net.weight(6, 1))) == ["reshape", "layer_norm", "multiply"]
    assert net.ops(net("multiply", y, net.weight(1))) == ["reshape", "layer_norm"]
    assert net.ops(net("multiply", y, net.weight(8)), y) == ["reshape", "layer_norm", "multiply"]

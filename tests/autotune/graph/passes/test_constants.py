"""Dead code, constants and common subexpressions."""

from __future__ import annotations

import numpy as np

from autotune.graph.ir import Graph, GraphBuilder, TensorType
from autotune.graph.passes import find_pass
from autotune.graph.passes.common_subexpressions import common_subexpressions
from autotune.graph.passes.dead_code import dead_code
from autotune.graph.passes.fold_constants import fold_constants
from tests.autotune.graph.random_graphs import assert_equal_outputs, count

ONES = np.ones(4, np.float32)


def build() -> GraphBuilder:
    return GraphBuilder("g", {"x": TensorType((3, 4))})


def test_what_no_output_depends_on_goes_and_inputs_stay() -> None:
    b = GraphBuilder("g", {"x": TensorType((3, 4)), "unread": TensorType((2,))})
    unread = b.add("add", ["x", b.constant(ONES)])
    b.add("relu", [unread])
    new = dead_code(b.finish([b.add("tanh", ["x"])]))
    assert [node.op for node in new.nodes] == ["tanh"]
    assert list(new.inputs) == ["x", "unread"] and not new.constants


def test_an_output_that_is_an_input_or_a_constant_stays() -> None:
    b = build()
    graph = b.finish(["x", b.constant(ONES, "c")])
    assert dead_code(graph).outputs == ("x", "c")


def test_nodes_of_constants_are_computed() -> None:
    b = build()
    total = b.add("add", [b.constant(ONES), b.constant(2 * ONES)])
    graph = b.finish([b.add("multiply", ["x", b.add("negative", [total])])])
    new = fold_constants(graph)
    assert_equal_outputs(new, graph)
    assert [node.op for node in new.nodes] == ["multiply"]
    np.testing.assert_array_equal(new.constants[new.nodes[0].inputs[1]], -3 * ONES)


def test_a_small_constant_does_not_become_a_large_one() -> None:
    b = build()
    wide = b.add("pad", [b.constant(ONES)], before=(0,), after=(1 << 20,))
    few = b.add("pad", [b.constant(ONES)], before=(0,), after=(1 << 10,))
    new = fold_constants(b.finish([wide, few]))
    assert [node.name for node in new.nodes] == [wide]


def test_a_new_order_of_a_large_weight_is_computed() -> None:
    b = build()
    weight = b.constant(np.zeros((1024, 512), np.float32))
    assert not fold_constants(b.finish([b.add("transpose", [weight], axes=(1, 0))])).nodes


def test_alike_nodes_are_one() -> None:
    b = build()
    pairs = [(b.add("tanh", ["x"]), b.add("relu", ["x"])) for _ in range(2)]
    sums = [b.add("add", [pairs[0][0], pairs[0][1]]), b.add("add", [pairs[1][1], pairs[1][0]])]
    graph = b.finish([b.add("multiply", sums)])
    new = common_subexpressions(graph)
    assert_equal_outputs(new, graph)
    assert count(new, "tanh") == count(new, "relu") == count(new, "add") == 1


def test_operands_of_a_difference_do_not_change_places() -> None:
    b = build()
    y = b.add("relu", ["x"])
    graph = b.finish([b.add("subtract", ["x", y]), b.add("subtract", [y, "x"])])
    assert count(common_subexpressions(graph), "subtract") == 2


def test_other_attributes_make_other_nodes() -> None:
    b = build()
    graph = b.finish([b.add("reduce", ["x"], axes=(0,), reducer=r) for r in ("sum", "max")])
    assert count(common_subexpressions(graph), "reduce") == 2


def test_constants_are_one_where_they_are_equal_byte_for_byte() -> None:
    b = build()
    arrays = [ONES, ONES.copy(), ONES.reshape(1, 4), ONES.astype(np.int32), 0 * ONES, -0.0 * ONES]
    names = [b.constant(array) for array in arrays]
    graph = b.finish([b.add("multiply", ["x", name]) for name in names if b.type(name).dtype == "float32"])
    new = common_subexpressions(graph)
    assert count(new, "multiply") == 4
    assert_equal_outputs(dead_code(new), graph)


def test_constants_that_differ_in_one_element_stay_two() -> None:
    first, second = np.zeros(1000, np.float32), np.zeros(1000, np.float32)
    second[1] = 1
    b = GraphBuilder("g", {"x": TensorType((1000,))})
    graph: Graph = b.finish([b.add("add", ["x", b.constant(array)]) for array in (first, second)])
    assert count(find_pass("common_subexpressions")(graph), "add") == 2

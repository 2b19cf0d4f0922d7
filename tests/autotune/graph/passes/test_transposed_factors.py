"""Products with a transposed factor: which one is transposed, by the elements that are moved."""

from __future__ import annotations

import pytest

from autotune.graph.ir import Graph, GraphBuilder, TensorType
from autotune.graph.passes import optimise
from autotune.graph.passes.transposed_factors import transposed_factors
from tests.autotune.graph.random_graphs import assert_equal_outputs


def make_products(count: int, rows: int, constant: bool = False) -> Graph:
    """Products of several inputs with the same transposed weight of 24 x 16."""
    inputs = {f"x{i}": TensorType((rows, 16)) for i in range(count)} | {"w": TensorType((24, 16))}
    builder = GraphBuilder("g", inputs)
    outs = []
    for i in range(count):
        outs.append(builder.add("matmul", [f"x{i}", builder.add("transpose", ["w"], axes=(1, 0))]))
    return builder.finish(outs)


EXAMPLE = make_products(1, 2)


def read_weight(graph: Graph) -> set[tuple[str, int]]:
    """Operations that read the weight, with the number of the input."""
    return {(n.op, place) for n in graph.nodes for place, name in enumerate(n.inputs) if name == "w"}


@pytest.mark.parametrize(
    ("count", "rows", "stays"),
    [(1, 2, True), (1, 9, True), (1, 10, False), (4, 2, True), (5, 2, False)],
    ids=["few rows", "as large as the others", "many rows", "few products", "many products"],
)
def test_the_smaller_side_is_transposed(count: int, rows: int, stays: bool) -> None:
    graph = make_products(count, rows)
    new = optimise(graph)
    assert read_weight(new) == ({("matmul", 0)} if stays else {("transpose", 0)})
    assert sum(node.op == "transpose" and node.inputs[0] == "w" for node in new.nodes) == (not stays)
    assert_equal_outputs(new, graph)


def test_a_factor_that_is_transposed_for_another_reader_is_read_as_it_is() -> None:
    builder = GraphBuilder("g", {"x": TensorType((2, 16)), "w": TensorType((24, 16))})
    turned = builder.add("transpose", ["w"], axes=(1, 0))
    graph = builder.finish([builder.add("matmul", ["x", turned]), builder.add("exp", [turned])])
    assert transposed_factors(graph).nodes == graph.nodes


def test_a_factor_that_keeps_the_order_of_its_axes_is_read_as_it_is() -> None:
    builder = GraphBuilder("g", {"x": TensorType((2, 16)), "w": TensorType((16, 16))})
    graph = builder.finish([builder.add("matmul", ["x", builder.add("transpose", ["w"], axes=(0, 1))])])
    assert_equal_outputs(transposed_factors(graph), graph)


def test_factors_of_bytes_are_not_exchanged() -> None:
    builder = GraphBuilder("g", {"x": TensorType((2, 16), "uint8"), "w": TensorType((24, 16), "int8")})
    graph = builder.finish([builder.add("matmul", ["x", builder.add("transpose", ["w"], axes=(1, 0))])])
    assert optimise(graph).nodes == graph.nodes

"""Comparisons of operations, and values that are stored alike because they are compared."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autotune.graph.comparisons import Comparison, list_comparisons, stored_alike
from autotune.graph.evaluate import evaluate
from autotune.graph.gradient.reverse import add_gradients
from autotune.graph.ir import Graph, GraphBuilder, Node
from autotune.graph.precision import lower_precision, lower_values
from autotune.graph.types import TensorType

X = TensorType((3, 4))
POOL: dict[str, Any] = {"kernel": (2, 2), "stride": (2, 2), "padding": (0, 0), "dilation": (1, 1)}


def one_node(op: str, types: list[TensorType], **attrs: Any) -> tuple[Graph, Node]:
    builder = GraphBuilder("net", {f"x{number}": kind for number, kind in enumerate(types)})
    graph = builder.finish([builder.add(op, [f"x{number}" for number in range(len(types))], **attrs)])
    return graph, graph.nodes[-1]


@pytest.mark.parametrize(
    ("op", "types", "attrs", "comparisons"),
    [
        ("equal", [X, X], {}, [Comparison((0, 1))]),
        ("equal", [TensorType((3,), "int32")] * 2, {}, []),
        ("maximum", [X, X], {}, []),
        (
            "limited_slope",
            [X, X],
            {"low": -0.7, "high": 6.0},
            [Comparison((1,), (float(np.float32(-0.7)),)), Comparison((1,), (6.0,))],
        ),
        ("window_argmax", [TensorType((1, 4, 4, 2)), TensorType((1, 2, 2, 2))], POOL, [Comparison((0, 1))]),
    ],
)
def test_comparisons_are_read_off_the_expression(
    op: str, types: list[TensorType], attrs: dict[str, Any], comparisons: list[Comparison]
) -> None:
    assert set(list_comparisons(*one_node(op, types, **attrs))) == set(comparisons)


@pytest.mark.parametrize(
    ("op", "inputs", "attrs"),
    [("reduce", ["x"], {"reducer": kind, "axes": (1,)}) for kind in ("max", "min")] + [("maximum", ["x", "y"], {})],
)
def test_gradients_compare(op: str, inputs: list[str], attrs: dict[str, Any]) -> None:
    builder = GraphBuilder("net", {"x": X, "y": X})
    value = builder.add(op, inputs, **attrs)
    flat = builder.add("reshape", [builder.add("exp", [value])], shape=(1, builder.type(value).size))
    loss = builder.add("reduce", [flat], reducer="sum", axes=(1,))
    forward = builder.finish([loss])
    slope = add_gradients(builder, forward, loss, ["x"])["x"]
    graph = builder.finish([slope])
    compared = [
        {node.inputs[number] for number in comparison.inputs}
        for node in graph.nodes
        for comparison in list_comparisons(graph, node)
    ]
    assert compared and all(names == {"x", "y" if op == "maximum" else value} for names in compared)


def compared_with_maximum(limit: float) -> tuple[Graph, dict[str, str]]:
    """A product's value x, its maxima, a mask of the elements that equal theirs, and a product that reads a limit."""
    builder = GraphBuilder("net", {"data": X})
    rng = np.random.default_rng(0)
    weight, last = (builder.constant(rng.standard_normal(shape).astype(np.float32)) for shape in ((4, 8), (8, 2)))
    x = builder.add("tanh", [builder.add("matmul", ["data", weight])])
    best = builder.add("reduce", [x], reducer="max", axes=(1,))
    best_column = builder.add("reshape", [best], shape=(3, 1))
    mask = builder.add("cast", [builder.add("equal", [x, best_column])], dtype="float32")
    clipped = builder.add("clip", [builder.add("multiply", [x, best_column])], low=-limit, high=limit)
    slope = builder.add("limited_slope", [mask, clipped], low=-limit, high=limit)
    graph = builder.finish([x, mask, slope, builder.add("matmul", [clipped, last])])
    return graph, {"x": x, "best": best, "clipped": clipped, "mask": mask}


def test_values_are_stored_alike() -> None:
    graph, names = compared_with_maximum(0.7)
    x, best, clipped = names["x"], names["best"], names["clipped"]
    assert stored_alike(graph, [best, clipped], "bfloat16") == set()
    assert stored_alike(graph, [x, best], "bfloat16") == {x, best}
    assert stored_alike(graph, [x], "bfloat16") == {x}  # its maxima are among its elements
    graph, names = compared_with_maximum(0.5)
    assert stored_alike(graph, [best, clipped], "bfloat16") == {clipped}
    lowered = lower_values(graph, "bfloat16", [best, clipped])
    (test,) = (node for node in lowered.nodes if node.op == "equal")
    assert {lowered.type(name).dtype for name in test.inputs} == {"float32"}


def test_a_network_finds_its_maxima_in_16_bits() -> None:
    graph, _ = compared_with_maximum(0.7)
    lowered = lower_precision(graph, "bfloat16")
    data = {"data": np.random.default_rng(1).standard_normal(X.shape).astype(np.float32)}
    values = evaluate(lowered, data)
    np.testing.assert_array_equal(values[lowered.outputs[1]].sum(1), np.ones(3, np.float32))

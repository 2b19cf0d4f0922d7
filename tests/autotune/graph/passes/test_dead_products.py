"""Products cut to what is read of them; transpositions that meet across a reshape."""

from __future__ import annotations

from collections import Counter
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.graph.ir import Graph, GraphBuilder, TensorType
from autotune.graph.passes import optimise
from autotune.graph.passes.dead_products import dead_products
from autotune.graph.passes.simplify import simplify
from tests.autotune.graph.random_graphs import assert_equal_outputs

COLUMNS = {"begin": (0, 1), "size": (4, 3), "step": (1, 2)}


def factor(builder: GraphBuilder, *shape: int) -> str:
    return builder.constant(np.random.default_rng(0).standard_normal(shape).astype(np.float32))


def sizes(graph: Graph) -> list[tuple[int, ...]]:
    """Returns the shapes of the products."""
    return [node.type.shape for node in graph.nodes if node.op in ("matmul", "batch_matmul")]


def backward_columns() -> Graph:
    b = GraphBuilder("columns", {"x": TensorType((4, 5))})
    y = b.add("matmul", ["x", factor(b, 5, 8)])
    return b.finish([b.add("slice", [y], begin=(0, 7), size=(4, 3), step=(1, -3))])


EXAMPLE = backward_columns()


def test_columns_that_are_read_backwards() -> None:
    new = dead_products(EXAMPLE)
    assert_equal_outputs(new, EXAMPLE)
    assert ([n.op for n in new.nodes], sizes(new)) == (["matmul"], [(4, 3)])


def test_the_real_parts_of_a_batch_of_rows() -> None:
    b = GraphBuilder("rows", {"x": TensorType((3, 5, 7))})
    y = b.add("batch_matmul", [factor(b, 3, 8, 5), "x"])
    y = b.add("transpose", [b.add("reshape", [y], shape=(3, 4, 2, 7))], axes=(3, 1, 0, 2))
    y = b.add("reshape", [y], shape=(7, 12, 2))
    graph = b.finish([b.add("slice", [y], begin=(0, 0, 1), size=(7, 12, 1))])
    new = dead_products(graph)
    assert_equal_outputs(new, graph)
    assert sizes(new) == [(3, 4, 7)]
    assert all(n.op != "slice" for n in new.nodes)


def test_both_factors() -> None:
    b = GraphBuilder("both", {"x": TensorType((4, 5))})
    y = b.add("matmul", [factor(b, 4, 5), factor(b, 5, 8)])
    graph = b.finish([b.add("slice", [y], begin=(1, 1), size=(2, 3), step=(1, 2))])
    new = dead_products(graph)
    assert_equal_outputs(new, graph)
    assert sizes(new) == [(2, 3)]


def staying(case: str) -> Graph:
    """Slices whose products must be computed as they are."""
    b = GraphBuilder(case, {"x": TensorType((4, 5)), "w": TensorType((5, 8))})
    y = b.add("matmul", ["x", "w" if case == "unknown factor" else factor(b, 5, 8)])
    cut = {"rows": {"begin": (1, 0), "size": (2, 8)}, "rows and columns": {"begin": (1, 1), "size": (2, 3)}}
    given = cut.get(case, COLUMNS)
    read = y
    if case == "no slice of columns":  # the middle one of 2 x 2 x 2
        read = b.add("reshape", [y], shape=(4, 2, 2, 2))
        given = {"begin": (0, 0, 1, 0), "size": (4, 2, 1, 2)}
    if case == "across":  # of rows and columns together
        read = b.add("reshape", [y], shape=(32,))
        given = {"begin": (3,), "size": (9,)}
    outputs = [b.add("slice", [read], **given)]
    return b.finish([*outputs, b.add("relu", [y])] if case == "other readers" else outputs)


@pytest.mark.parametrize(
    "case", ["unknown factor", "rows", "rows and columns", "no slice of columns", "across", "other readers"]
)
def test_what_is_read_otherwise_stays(case: str) -> None:
    graph = staying(case)
    assert sizes(dead_products(graph)) == sizes(graph)


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_outputs_stay_whatever_moves_between(data: st.DataObject) -> None:
    extents = st.sampled_from([1, 2, 3, 4])
    m, k, n = (data.draw(extents) * data.draw(extents) for _ in range(3))
    b = GraphBuilder("moved", {"x": TensorType((m, k))})
    y = b.add("matmul", ["x", factor(b, k, n)])
    for _ in range(data.draw(st.integers(0, 4))):
        shape = b.type(y).shape
        if data.draw(st.booleans()):
            y = b.add("transpose", [y], axes=tuple(data.draw(st.permutations(range(len(shape))))))
        else:
            y = b.add("reshape", [y], shape=data.draw(draw_shapes(prod(shape))))
    shape = b.type(y).shape
    size = [data.draw(st.integers(1, extent)) for extent in shape]
    begin = [data.draw(st.integers(0, extent - n)) for extent, n in zip(shape, size, strict=True)]
    graph = b.finish([b.add("slice", [y], begin=tuple(begin), size=tuple(size))])
    for new in (dead_products(graph), simplify(graph), optimise(graph)):
        assert_equal_outputs(new, graph)
        assert sum(map(prod, sizes(new))) <= m * n
        assert Counter(n.op for n in new.nodes)["transpose"] <= Counter(n.op for n in graph.nodes)["transpose"]


@st.composite
def draw_shapes(draw: st.DrawFn, elements: int) -> tuple[int, ...]:
    """Some shape of so many elements."""
    shape = []
    for _ in range(draw(st.integers(0, 3))):
        shape.append(draw(st.sampled_from([d for d in range(1, elements + 1) if elements % d == 0])))
        elements //= shape[-1]
    return (*shape, elements)


def test_transpositions_meet_across_a_reshape() -> None:
    b = GraphBuilder("moved", {"x": TensorType((2, 3, 4, 5))})
    y = b.add("transpose", ["x"], axes=(3, 1, 0, 2))
    y = b.add("reshape", [y], shape=(1, 5, 6, 4))
    y = b.add("transpose", [y], axes=(3, 1, 0, 2))
    graph = b.finish([b.add("relu", [y])])
    new = simplify(graph)
    assert_equal_outputs(new, graph)
    assert [n.op for n in new.nodes] == ["transpose", "reshape", "relu"]


def test_transpositions_stay_that_a_reshape_keeps_apart() -> None:
    b = GraphBuilder("moved", {"x": TensorType((2, 3, 4))})
    y = b.add("transpose", ["x"], axes=(0, 2, 1))
    y = b.add("reshape", [y], shape=(3, 2, 4))
    graph = b.finish([b.add("transpose", [y], axes=(2, 0, 1))])
    assert [n.op for n in simplify(graph).nodes] == ["transpose", "reshape", "transpose"]

"""All passes together, and each by itself: they change an example, outputs stay, and passes come to rest.

The example of a pass is `EXAMPLE` of its own test, `test_NAME.py`. A pass that changes random graphs needs none.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.graph.ir import Graph, GraphBuilder, GraphError, Node, TensorType
from autotune.graph.passes import OPTIONAL, PASSES, ROUNDS, find_pass, optimise, same_graph, verify
from search_space.dtypes import NARROW
from search_space.operators.estimates import STEP
from tests.autotune.graph.random_graphs import assert_equal_outputs, count, random_graph

seeds = st.integers(0, 2**32 - 1)


@settings(max_examples=60, deadline=None)
@given(seeds)
def test_outputs_of_random_graphs_stay(seed: int) -> None:
    graph = random_graph(seed)
    assert_equal_outputs(optimise(graph), graph)


@pytest.mark.parametrize("name", [*PASSES, *OPTIONAL])
@settings(max_examples=25, deadline=None)
@given(seed=seeds)
def test_every_pass_by_itself_keeps_outputs(name: str, seed: int) -> None:
    graph = random_graph(seed)
    new = find_pass(name)(graph)
    verify(new)
    assert_equal_outputs(new, graph)


@cache
def list_examples(name: str) -> tuple[Graph, ...]:
    """The example of a pass; without one, random graphs."""
    module = f"tests.autotune.graph.passes.test_{name}"
    example = getattr(import_module(module), "EXAMPLE", None) if find_spec(module) is not None else None
    return (example,) if example is not None else tuple(map(random_graph, range(20)))


def strip_names(graph: Graph) -> tuple[Any, ...]:
    """A graph without names, which every rewrite may change: its operations, and the number of its constants."""
    return len(graph.constants), [(node.op, dict(node.attrs), node.type) for node in graph.nodes]


@pytest.mark.parametrize("name", [*PASSES, *OPTIONAL])
def test_every_pass_changes_an_example_and_comes_to_rest(name: str) -> None:
    step, changes = find_pass(name), 0
    for example in list_examples(name):
        graph = example if name == "dead_code" else find_pass("dead_code")(example)
        new = step(graph)
        verify(new)
        rtol = max((STEP[node.type.dtype] for node in graph.nodes if node.type.dtype in NARROW), default=2e-4)
        assert_equal_outputs(new, graph, rtol)
        changes += strip_names(new) != strip_names(graph)
        for _ in range(ROUNDS):
            old, new = new, step(new)
            if same_graph(old, new):
                break
        assert same_graph(old, new), "applied again and again, it changes its own result"
    assert changes, f"`{name}` changes no random graph, so test_{name}.py must have an EXAMPLE that it changes"


@settings(max_examples=25, deadline=None)
@given(seeds)
def test_passes_come_to_rest(seed: int) -> None:
    graph = optimise(random_graph(seed))
    assert same_graph(optimise(graph), graph)


def test_every_pass_has_a_row_on_its_page() -> None:
    page = (Path(__file__).parents[4] / "docs" / "passes.md").read_text()
    assert {*PASSES, *OPTIONAL} == set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))


def test_an_unknown_pass_is_named() -> None:
    with pytest.raises(ValueError, match="`passes` must be among .*'simplfy'.*simplify"):
        optimise(random_graph(0), ["simplfy"])


def test_verify_finds_a_wrong_type() -> None:
    node = Node("y", "relu", ("x",), MappingProxyType({}), TensorType((3,)))
    graph = Graph("wrong", {"x": TensorType((2,))}, {}, (node,), ("y",))
    with pytest.raises(GraphError, match=r"'y' must be of type float32\[2\], but got type=float32\[3\]"):
        verify(graph)


def test_verify_finds_attributes_that_are_not_in_their_one_form() -> None:
    node = Node("y", "concat", ("x",), MappingProxyType({"axis": -1}), TensorType((2,)))
    graph = Graph("wrong", {"x": TensorType((2,))}, {}, (node,), ("y",))
    with pytest.raises(GraphError, match="attributes of concat node 'y' must be"):
        verify(graph)


def test_verify_finds_operands_that_do_not_go_together() -> None:
    node = Node("y", "add", ("x", "x2"), MappingProxyType({}), TensorType((2,)))
    graph = Graph("wrong", {"x": TensorType((2,)), "x2": TensorType((3,))}, {}, (node,), ("y",))
    with pytest.raises(GraphError, match="add node 'y' must be well-formed"):
        verify(graph)


def test_an_imported_block_is_three_kernels() -> None:
    """Channels-first convolution, batch normalisation, relu and a sum, as importers write a residual block."""
    rng = np.random.default_rng(0)
    b = GraphBuilder("block", {"x": TensorType((1, 8, 6, 6))})

    def normal(*shape: int) -> str:
        return b.constant(rng.normal(size=shape).astype(np.float32))

    def layer(x: str, relu: bool) -> str:
        y = b.add("transpose", [x], axes=(0, 2, 3, 1))
        y = b.add("conv2d", [y, normal(3, 3, 8, 8)], padding=1)
        y = b.add("transpose", [b.add("add", [y, normal(8)])], axes=(0, 3, 1, 2))
        y = b.add("affine", [b.add("transpose", [y], axes=(0, 2, 3, 1)), normal(8), normal(8)])
        y = b.add("transpose", [y], axes=(0, 3, 1, 2))
        return b.add("relu", [y]) if relu else y

    graph = b.finish([b.add("relu", [b.add("add", [layer(layer("x", True), False), "x"])])])
    new = optimise(graph)
    assert_equal_outputs(new, graph)
    assert count(new, "transpose") == 2 and count(new, "affine") == 0
    ops = [node.op for node in new.nodes if node.op != "transpose"]
    assert ops == ["conv2d", "add", "relu", "conv2d", "add", "add", "relu"]

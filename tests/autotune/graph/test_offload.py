"""Offload: the same numbers in blocks, nothing converted between layers that follow each other."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from autotune.graph.evaluate import evaluate
from autotune.graph.ir import Graph, GraphBuilder, GraphError, TensorType
from autotune.graph.offload import Block, is_covered, is_offloaded, matrix_block, offload, tuned_as
from autotune.graph.partition import partition
from autotune.graph.passes import verify
from autotune.graph.quantise import quantise_with_report, random_feeds
from search_space.workloads import Workload
from targets import registry
from tests.autotune.graph.nets import conv, residual, weight

BLOCK = (1, 16, 16)


def quantise_by_shifts(graph: Graph) -> Graph:
    return quantise_with_report(graph, mode="shift8")[0].graph


def operations(graph: Graph) -> Counter[str]:
    return Counter(node.op for node in graph.nodes)


@pytest.mark.parametrize("block", [BLOCK, (1, 8, 16), (1, 16, 8), (2, 16, 16), (4, 8, 8)])
def test_the_offloaded_graph_computes_the_same(block: Block) -> None:
    rng = np.random.default_rng(0)
    b = GraphBuilder("net", {"x": TensorType((4, 8, 8, 16))})
    start = b.add("relu", [conv(b, rng, "x", 3, 32, padding=1)])
    main = conv(b, rng, b.add("relu", [conv(b, rng, start, 3, 16, padding=1)]), 1, 32)
    joined = b.add("relu", [b.add("add", [main, start])])
    pooled = b.add("reduce", [b.add("max_pool2d", [joined])], axes=(1, 2), reducer="mean")
    hidden = b.add("relu", [b.add("add", [b.add("matmul", [pooled, weight(b, rng, 32, 16)]), weight(b, rng, 16)])])
    plain = quantise_by_shifts(b.finish([b.add("matmul", [hidden, weight(b, rng, 16, 10)])]))
    found = offload(plain, block)
    verify(found)
    assert operations(found)["conv2d_blocked"] == 3 and operations(found)["dense_blocked"] == 1
    feed = random_feeds(plain.inputs, 3, 1)[0]
    (wanted,), (name,) = plain.outputs, found.outputs
    np.testing.assert_array_equal(evaluate(found, feed)[name], evaluate(plain, feed)[wanted])


def test_blocks_stay_between_layers_and_through_additions() -> None:
    """A block of ResNet: one conversion in front, one behind; the addition is done in blocks."""
    found = offload(quantise_by_shifts(residual()), BLOCK)
    kernels = [group for group in partition(found, in_place=False) if group.workload is not None]
    titles = [group.title for group in kernels]
    assert titles.count("conv2d_blocked") == 4 and titles.count("transpose") == 2
    assert "widen+add_widened+requantise+limit" in titles
    assert [is_offloaded(g.workload) for g in kernels].count(True) == 4  # type: ignore[arg-type]
    places = [i for i, title in enumerate(titles) if title in ("conv2d_blocked", "widen+add_widened+requantise+limit")]
    assert places == list(range(places[0], places[-1] + 1))  # nothing between them


def test_constants_of_channels_are_brought_into_blocks() -> None:
    b = GraphBuilder("b", {"x": TensorType((1, 3, 3, 32), "int8")})
    rng = np.random.default_rng(0)
    kernel = b.constant(rng.integers(-9, 9, (1, 1, 32, 48)).astype(np.int8))
    layer = b.add("shift_conv2d", ["x", kernel, b.constant(np.arange(48, dtype=np.int32))], shift=4)
    wide = b.add("widen", [layer, b.constant(np.zeros(1, np.int32))])
    many = b.constant(rng.integers(-50, 50, 48).astype(np.int32))
    out = b.add("requantise", [wide, many, b.constant(np.arange(48, dtype=np.int32) % 3)], low=-7, high=9, dtype="int8")
    plain = b.finish([out])
    found = offload(plain, BLOCK)
    assert [len(node.type.shape) for node in found.nodes if node.op == "requantise"] == [6]
    feed = {"x": rng.integers(-128, 128, (1, 3, 3, 32)).astype(np.int8)}
    np.testing.assert_array_equal(evaluate(found, feed)[found.outputs[0]], evaluate(plain, feed)[out])


def test_what_is_covered() -> None:
    b = GraphBuilder("b", {"x": TensorType((2, 3, 3, 32), "int8"), "w": TensorType((1, 1, 32, 16), "int8")})
    bias = b.constant(np.zeros(16, np.int32))
    constant = b.constant(np.zeros((1, 1, 32, 16), np.int8))
    b.add("shift_conv2d", ["x", constant, bias], "fits")
    b.add("shift_conv2d", ["x", "w", bias], "variable")
    b.add("max_pool2d", ["x"], "pool")
    graph = b.finish(["fits", "variable", "pool"])
    sizes = {"fits": ((1, 16, 16), (2, 16, 32), (1, 8, 8)), "variable": (), "pool": ()}
    for node in graph.nodes:
        for block in ((1, 16, 16), (2, 16, 32), (1, 8, 8), (4, 16, 16), (1, 32, 16), (1, 16, 64)):
            assert is_covered(graph, node, block) == (block in sizes[node.name]), (node.name, block)
    with pytest.raises(GraphError, match="channels fill its blocks of 1x16x64, but b has none"):
        offload(graph, (1, 16, 64))


def test_blocks_are_those_of_the_device() -> None:
    assert matrix_block(registry.get("vta").hardware) == (1, 16, 16)
    assert matrix_block(registry.get("vta:4x8x16").hardware) == (4, 16, 8)  # batch, input, output channels by name
    assert matrix_block(registry.get("cpu").hardware) is None


def test_layers_that_differ_in_the_shift_alone_are_tuned_as_one() -> None:
    sizes = {"height": 8, "width": 8, "in_channels": 16, "out_channels": 16}
    made = [Workload("conv2d_blocked", {**sizes, "shift": s, "relu": relu}) for s in (3, 9) for relu in (False, True)]
    assert len({w.key for w in made}) == 4 and len({tuned_as(w).key for w in made}) == 1
    other = Workload("conv2d_blocked", {**sizes, "padding": 1})
    assert tuned_as(other).key != tuned_as(made[0]).key
    plain = Workload("matmul", {"m": 4, "n": 4, "k": 4})
    assert tuned_as(plain) is plain

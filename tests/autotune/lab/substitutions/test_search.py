"""Matching, costs, segments and the search."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.graph.ir import Graph, GraphBuilder, GraphError, TensorType
from autotune.graph.passes import optimise, same_graph, verify
from autotune.graph.passes.dead_code import dead_code
from autotune.graph.passes.fold_constants import fold_constants
from autotune.lab.substitutions import Analytic, Cost, Rule, explore, saved_rules
from autotune.lab.substitutions.cost import structure
from autotune.lab.substitutions.matching import Matcher, apply
from autotune.lab.substitutions.segments import cut, join_segments
from tests.autotune.graph.random_graphs import assert_equal_outputs, count, random_graph
from tests.autotune.lab.substitutions.helpers import check, search

seeds = st.integers(0, 2**32 - 1)
X = (1, 6, 6, 8)


class Net:
    """A graph on x and y (1, 6, 6, 8)."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(7)
        self.b = GraphBuilder("net", {"x": TensorType(X), "y": TensorType(X)})

    def weight(self, *shape: int) -> str:
        return self.b.constant(self.rng.uniform(-1, 1, shape).astype(np.float32))

    def __call__(self, op: str, *inputs: str, **attrs: object) -> str:
        return self.b.add(op, inputs, **attrs)

    def conv(self, x: str, channels: int = 8, kernel: int = 3) -> str:
        depth = self.b.type(x).shape[-1]
        return self("conv2d", x, self.weight(kernel, kernel, depth, channels), padding=kernel // 2)

    def layer(self, x: str, channels: int = 8, kernel: int = 3) -> str:
        return self("relu", self("add", self.conv(x, channels, kernel), self.weight(channels)))


def rewritten(graph: Graph, rule: str) -> list[Graph]:
    """Returns the graphs that one rule gives, one for each match, all checked."""
    graph = dead_code(graph)
    found = [apply(graph, match) for match in Matcher(graph).matches([Rule.parse(rule)])]
    for new in found:
        if new is not None:
            verify(new)
            assert_equal_outputs(new, graph)
    return [fold_constants(new) for new in found if new is not None]


SUM = "add(conv(x0,w0),conv(x0,w1)) -> conv(x0,add(w0,w1))"
SPLIT = "conv(x0,w0); conv(x0,w1) -> first(conv(x0,concat(w0,w1)),w0); last(conv(x0,concat(w0,w1)),w1)"


def test_a_rule_applies_where_its_source_stands() -> None:
    net = Net()
    graph = net.b.finish([net("add", net.conv("x"), net.conv("x"))])
    (new, *_) = rewritten(graph, SUM)
    assert [node.op for node in new.nodes] == ["conv2d"]


def test_a_rule_does_not_apply_elsewhere() -> None:
    net = Net()
    other, narrow = net("add", net.conv("x"), net.conv("y")), net("add", net.conv("x"), net.conv("x", kernel=1))
    assert rewritten(net.b.finish([other]), SUM) == []
    assert rewritten(net.b.finish([narrow]), SUM) == [], "the paddings differ"


def test_a_small_kernel_is_enlarged_to_be_added() -> None:
    net = Net()
    graph = net.b.finish([net("add", net.conv("x", kernel=1), net.conv("x"))])
    wide = rewritten(graph, "conv(x0,w0) -> conv_wide(x0,enlarge(w0))")
    assert any(new for graph in wide for new in rewritten(graph, SUM))


def test_what_others_read_of_a_source_stays() -> None:
    net = Net()
    first = net.conv("x")
    new, *_ = rewritten(net.b.finish([net("add", first, net.conv("x")), net("relu", first)]), SUM)
    assert count(new, "conv2d") == 2


def test_layers_side_by_side_become_one() -> None:
    net = Net()
    graph = net.b.finish([net.conv("x", 3), net.conv("x", 5)])
    (new,) = rewritten(graph, SPLIT)
    assert [node.op for node in new.nodes] == ["conv2d", "slice", "slice"]


def test_layers_after_each_other_are_not_side_by_side() -> None:
    net = Net()
    first = net.conv("x")
    assert rewritten(net.b.finish([net.conv(first), first]), SPLIT) == []


def test_neighbours_in_a_concat_of_several() -> None:
    net = Net()
    parts = [net("relu", net.conv("x")), net("relu", net.conv("y")), net("tanh", "x"), net("relu", "y")]
    found = rewritten(net.b.finish([net("concat", *parts, axis=3)]), "concat(relu(x0),relu(x1)) -> relu(concat(x0,x1))")
    assert [(count(new, "relu"), count(new, "concat")) for new in found] == [(2, 2)]


def test_cuts_are_found_by_their_extent() -> None:
    net = Net()
    cuts = [net("slice", "x", begin=(0, 0, 0, b), size=(1, 6, 6, n)) for b, n in ((0, 3), (3, 5), (2, 3))]
    rule = "concat(first(x0,w0),last(x0,w1)) -> x0"
    assert [g.nodes for g in rewritten(net.b.finish([net("concat", *cuts[:2], axis=3)]), rule)] == [()]
    assert rewritten(net.b.finish([net("concat", *cuts[1:], axis=3)]), rule) == []
    assert rewritten(net.b.finish([net("concat", cuts[1], cuts[0], axis=3)]), rule) == []
    backwards = net("slice", "x", begin=(0, 0, 0, 2), size=(1, 6, 6, 3), step=(1, 1, 1, -1))
    assert rewritten(net.b.finish([net("concat", backwards, cuts[1], axis=3)]), rule) == []


@settings(max_examples=40, deadline=None)
@given(seeds)
def test_every_rule_keeps_outputs_wherever_it_applies(seed: int) -> None:
    graph = optimise(random_graph(seed, 16))
    for match in islice(Matcher(graph).matches(saved_rules()), 0, 60, 3):
        new = apply(graph, match)
        if new is not None:
            verify(new)
            assert_equal_outputs(new, graph)


# Costs.


def price(cost: Analytic, net: Net, *outputs: str) -> float:
    return cost(dead_code(net.b.finish(outputs)))


def test_element_wise_operations_are_free_behind_a_kernel_of_their_own() -> None:
    net, cost = Net(), Analytic()
    conv = net.conv("x")
    alone = price(cost, net, conv)
    done = net("relu", net("add", conv, net.weight(8)))
    assert alone < price(cost, net, done) < alone + 0.01 * cost.overhead, "the bias is read"
    rest = price(cost, net, net("add", conv, "y")) - alone
    assert rest == pytest.approx(net.b.type("y").nbytes / cost.bandwidth)
    assert price(cost, net, done, conv) > alone + cost.overhead


def test_what_needs_no_kernel_costs_nothing() -> None:
    net, cost = Net(), Analytic()
    half = net("slice", "x", begin=(0, 0, 0, 4), size=(1, 6, 6, 4))
    seen = net("reshape", "x", shape=(36, 8))
    assert price(cost, net, seen, net("relu", net.weight(4))) == 0
    copied = net("relu", half)
    more = price(cost, net, net.conv(copied)) - price(cost, net, net.conv(half))
    assert more == pytest.approx(price(cost, net, copied)), "a slice is read in place"
    parts = [net.conv("x"), net.conv("y", 4)]
    assert price(cost, net, net("concat", *parts, axis=3)) == pytest.approx(sum(price(cost, net, p) for p in parts))
    assert price(cost, net, half) > cost.overhead, "given to the caller"
    assert price(cost, net, net("reshape", half, shape=(36, 4))) > cost.overhead, "strided rows have no other shape"
    assert price(cost, net, net("concat", "x", parts[0], axis=3)) > cost.overhead + price(cost, net, parts[0])


def test_convolutions_that_winograd_computes_take_less() -> None:
    net = Net()
    slow, fast = (Analytic(peak=1e6, winograd=times) for times in (1.0, 2.0))
    assert price(slow, net, net.conv("x")) > 1.9 * price(fast, net, net.conv("x"))
    assert price(slow, net, net.conv("x", kernel=1)) == price(fast, net, net.conv("x", kernel=1))


def test_inputs_of_a_part_may_be_written_into_a_concatenation() -> None:
    net = Net()
    graph = dead_code(net.b.finish([net("concat", "x", "y", net.conv("x"), axis=3)]))
    whole, inside = (Analytic(network_inputs=given)(graph) for given in (None, ()))
    assert whole - inside > Analytic().overhead + 2 * graph.nodes[-1].type.nbytes / Analytic().bandwidth
    assert Analytic(network_inputs=("x",))(graph) == whole, "all of it is, or nothing"


def test_measured_costs_come_first() -> None:
    net = Net()
    graph = net.b.finish([net.layer("x")])
    key = structure(graph, graph.nodes, set(graph.constants))
    assert Analytic(measured_seconds={key: 1.5})(graph) == 1.5
    other = Net()
    assert Analytic(measured_seconds={key: 1.5})(other.b.finish([other.layer("x", 16)])) < 1


# Segments.


@settings(max_examples=30, deadline=None)
@given(seeds, st.integers(1, 6))
def test_segments_make_the_whole(seed: int, least: int) -> None:
    graph = optimise(random_graph(seed))
    parts = cut(graph, least)
    assert sum(len(part.nodes) for part in parts) == len(graph.nodes)
    assert all(len(part.nodes) >= least for part in parts[:-1])
    assert all(len(part.outputs) == 1 for part in parts[:-1] if not set(part.outputs) & set(graph.outputs))
    assert same_graph(join_segments(graph, parts, parts), graph)


# The search.


def branches() -> Graph:
    """Two branches that read x, one that reads y, joined: as in Inception."""
    net = Net()
    parts = [net.layer("x", 8, 1), net.layer("x", 8, 1), net.layer("y", 4, 1)]
    return net.b.finish([net("concat", *parts, axis=3)])


def test_branches_are_merged_where_kernels_cost() -> None:
    graph, cost = branches(), Analytic(peak=1e7)
    found = explore(graph, cost, 1000)
    assert_equal_outputs(found.graph, graph)
    verify(found.graph)
    assert found.after < found.before and cost(found.graph) == pytest.approx(found.after)
    assert (count(found.graph, "conv2d") == 2 and SPLIT.replace("conv", "point")) or SPLIT in found.rule_counts
    assert set(found.graph.constants) and all(len(node.inputs) for node in found.graph.nodes)


def test_a_graph_that_rules_make_no_cheaper_stays() -> None:
    graph = branches()
    assert search(graph, lambda g: float(len(g.nodes)), 0) is graph
    assert search(graph, Analytic(), 100, []) is graph
    assert search(graph, lambda g: 1.0, 50) is graph
    found = explore(graph, Analytic(peak=1e7), 1000)
    gain = 1 - found.after / found.before
    assert explore(graph, Analytic(peak=1e7), 1000, least=0.9 * gain).after == found.after
    assert explore(graph, Analytic(peak=1e7), 1000, least=1.1 * gain).graph is graph


def test_dearer_graphs_are_gone_through_up_to_a_bound() -> None:
    """Enlarging the kernel costs; adding the kernels then saves more. By way of a graph that is too dear, nothing."""
    net = Net()
    graph = net.b.finish([net("add", net.conv("x", kernel=1), net.conv("x"))])
    rules = [Rule.parse(SUM), Rule.parse("conv(x0,w0) -> conv_wide(x0,enlarge(w0))")]

    def cost(step: float) -> Cost:
        shapes = {1: 1.0, 3: 1.0 + step}
        return lambda g: sum(shapes.get(g.type(n.inputs[1]).shape[0], 9.0) for n in g.nodes if n.op == "conv2d")

    assert count(search(graph, cost(0.05), 100, rules), "conv2d") == 1
    assert count(search(graph, cost(0.5), 100, rules), "conv2d") == 2


def dense_block() -> Graph:
    """Layers that read all before them, a 1x1 convolution and a mean that halves rows and columns, as in DenseNet."""
    net, joined = Net(), "x"
    for _ in range(3):
        joined = net("concat", joined, net.layer(net("relu", joined), 8), axis=3)
    out = net("avg_pool2d", net.conv(joined, 16, 1), kernel=2, stride=2)
    return net.b.finish([net.layer(out)])


def test_a_mean_comes_before_a_convolution_of_pixels() -> None:
    graph = dense_block()
    found = explore(graph, Analytic(peak=1e8, network_inputs=graph.inputs), 200, segment=3)
    assert found.rule_counts == {"avg_pool(point(x0,w0)) -> point(avg_pool(x0),w0)": 1}
    assert_equal_outputs(found.graph, graph)
    ops = [node.op for node in found.graph.nodes]
    assert ops.index("avg_pool2d") < len(ops) - 1 - ops[::-1].index("conv2d") and count(found.graph, "concat") == 3
    document = found.to_json()
    assert document["applied"] == 1 and document["seconds_after"] < document["seconds_before"]
    assert json.loads(json.dumps(document)) == document


def test_a_segment_is_taken_where_the_whole_gains() -> None:
    """Each segment alone becomes cheaper; both together would make the whole dearer, and the first alone does not."""
    net, out = Net(), "x"
    for _ in range(2):
        out = net("tanh", net("avg_pool2d", net.conv(out, 8, 1), kernel=2, stride=1))
    graph = dead_code(net.b.finish([out]))
    rules = [Rule.parse("avg_pool(point(x0,w0)) -> point(avg_pool(x0),w0)")]

    def cost(g: Graph) -> float:
        late = sum(
            n.op == "avg_pool2d" and g.node(n.inputs[0]) in [c for c in g.nodes if c.op == "conv2d"] for n in g.nodes
        )
        return 9.0 if count(g, "conv2d") == 2 and not late else float(late)

    found = explore(graph, cost, 100, rules, segment=3)
    assert (found.before, found.after, found.rule_counts.total()) == (2.0, 1.0, 1)
    assert_equal_outputs(found.graph, graph)


def test_outputs_are_compared_where_asked() -> None:
    graph, rng = branches(), np.random.default_rng(0)
    new = search(graph, Analytic(peak=1e7), 1000, rng=rng)
    assert new is not graph
    wrong = Net()
    other = wrong.b.finish([wrong.layer("x", 20)])
    with pytest.raises(GraphError, match="output 'concat' must stay within 0.001 of its size"):
        check(other, graph, rng)
    check(new, graph, rng)


@settings(max_examples=15, deadline=None)
@given(seeds)
def test_searches_keep_outputs_of_random_graphs(seed: int) -> None:
    graph = optimise(random_graph(seed, 16))
    cost = Analytic()
    found = explore(graph, cost, 60, segment=5)
    verify(found.graph)
    assert_equal_outputs(found.graph, graph)
    assert cost(found.graph) <= cost(graph)


def test_searches_find_the_same_graph_in_every_process() -> None:
    """Hashes of names differ from process to process."""
    code = (
        "from tests.autotune.lab.substitutions.test_search import *\n"
        "for graph in (branches(), dense_block()):\n"
        "    print(explore(graph, Analytic(peak=1e8, network_inputs=graph.inputs), 150, segment=3).graph)"
    )
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed}, stdout=subprocess.PIPE, text=True
        )
        for seed in ("1", "2")
    ]
    first, second = (run.communicate()[0] for run in runs)
    assert first == second and "conv2d" in first


@pytest.mark.parametrize("padding", [((1, 2), (0, 1)), ((2, 1), (1, 1)), ((0, 1), (0, 0))])
def test_windows_with_padding_of_different_sides_are_rewritten_to_equals(padding: tuple[tuple[int, int], ...]) -> None:
    """A kernel that grows or shrinks takes as much padding along on either side."""
    net = Net()
    sides = [net.b.add("conv2d", ["x", net.weight(3, 3, 8, n)], padding=padding) for n in (4, 8)]
    small = tuple((max(0, a - 1), max(0, b - 1)) for a, b in padding)
    ones = net.b.add("conv2d", ["x", net.weight(1, 1, 8, 4)], padding=small)
    graph = net.b.finish([net.b.add("relu", [value]) for value in (*sides, ones)])
    found = explore(graph, lambda of: float(count(of, "conv2d")), 300)
    verify(found.graph)
    assert found.after < found.before == 3.0
    assert_equal_outputs(found.graph, graph)

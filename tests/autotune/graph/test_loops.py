"""Loops of graphs: evaluation against NumPy, the tasks of their bodies, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autotune.compiler.executable.compile import Compiler
from autotune.compiler.executable.compile_steps import compile_stepwise
from autotune.compiler.tasks import list_tasks
from autotune.graph.evaluate import evaluate
from autotune.graph.ir import Graph, GraphBuilder, GraphError, TensorType
from autotune.graph.loops import Body, add_loop
from autotune.graph.unrolling import unroll
from targets.base import BuildError

ROW = TensorType((2, 3))


def body() -> Body:
    """state, element, shared -> state + element * shared, kept of all steps and of the last."""
    builder = GraphBuilder("body", {"state": ROW, "element": ROW, "shared": ROW})
    product = builder.add("multiply", ["element", "shared"])
    return Body(builder.finish([builder.add("add", ["state", product]), product]), (0,), 1, (True, False))


def make_loop_graph(trips: int, back: bool = False, **options: Any) -> Graph:
    builder = GraphBuilder("looped", {"first": ROW, "sequence": TensorType((trips, 2, 3)), "shared": ROW})
    inputs = options.get("inputs", ["first", "sequence", "shared"])
    return builder.finish(add_loop(builder, body(), inputs, options.get("said", trips), [back], [back, False]))


@pytest.mark.parametrize("back", [False, True])
@pytest.mark.parametrize("trips", [1, 2, 3, 200])
def test_a_loop_is_its_steps(trips: int, back: bool) -> None:
    rng = np.random.default_rng(trips)
    shapes = {name: kind.shape for name, kind in make_loop_graph(trips).inputs.items()}
    feeds = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    graph = make_loop_graph(trips, back)
    values = evaluate(graph, feeds)
    order = slice(None, None, -1 if back else 1)
    products = (feeds["sequence"] * feeds["shared"])[order]
    sums = feeds["first"] + np.cumsum(products, 0, dtype=np.float64)
    np.testing.assert_allclose(values[graph.outputs[0]], sums[order], rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(values[graph.outputs[1]], products[-1])


def test_kernels_of_a_body_weigh_as_much_as_there_are_steps() -> None:
    assert {(task.weight, task.occurrences) for task in list_tasks(make_loop_graph(7))} == {(7, 1)}


def test_targets_without_loops_refuse_them(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="`graph` must have no loop for target c, but got 'loop'"):
        Compiler(make_loop_graph(2), lambda workload: pytest.fail("nothing is chosen"), "c")
    with pytest.raises(BuildError, match="`graph` must have no loop for an executable of steps, but got 'loop'"):
        compile_stepwise(
            make_loop_graph(2), lambda workload: pytest.fail("nothing is chosen"), tmp_path, "cpu", "vta", 1
        )


@pytest.mark.parametrize("trips", [0, -1, (1 << 20) + 1, 2.0])
def test_bad_trips(trips: Any) -> None:
    with pytest.raises(GraphError, match="`trips` must be 1 to 1048576, but got trips="):
        make_loop_graph(2, said=trips)


def test_bytes_of_a_loop_are_not_read() -> None:
    graph = make_loop_graph(3)
    assert len(unroll(graph).nodes) > len(graph.nodes)
    with pytest.raises(GraphError, match="the bytes of loop 'loop' must be read as its results alone, but got an outp"):
        unroll(Graph(graph.name, graph.inputs, graph.constants, graph.nodes, ("loop",)))


def test_bad_loops() -> None:
    with pytest.raises(GraphError, match=r"inputs must be float32\[2,3\], float32\[2,2,3\]"):
        make_loop_graph(2, inputs=["sequence", "first", "shared"])
    with pytest.raises(GraphError, match="must have no loop in it"):
        Body(make_loop_graph(2), (), 0, (True, True))
    with pytest.raises(GraphError, match="`stacked` must be of each of 2 outputs, but got 1"):
        Body(body().graph, (0,), 1, (True,))
    with pytest.raises(GraphError, match="a state must be of the type of its output"):
        Body(body().graph, (2,), 1, (True, False))

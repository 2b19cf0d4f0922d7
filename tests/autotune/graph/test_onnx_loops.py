"""ONNX's `Loop` and `Scan` as loops of the graph: against ONNX Runtime, in NumPy and compiled, and unrolled."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from autotune.compiler.prepare import load_network
from autotune.graph.evaluate import evaluate
from autotune.graph.frontends.onnx.importer import import_model
from autotune.graph.frontends.onnx.model import with_shapes
from autotune.graph.ir import Array, Graph
from autotune.graph.loops import list_loops
from autotune.graph.passes import optimise
from tests.autotune.graph.onnx_models import assert_close, model_from, runtime
from tests.autotune.graph.test_loops_compiled import make_executable

FLOAT, INT, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
ModelAndInputs = tuple[onnx.ModelProto, dict[str, Array]]
WIDTH = 4


def value(name: str, kind: int = FLOAT, shape: tuple[int, ...] = (2, WIDTH)) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def constant(name: str, array: Any, dtype: str = "float32") -> Any:
    return numpy_helper.from_array(np.asarray(array, dtype), name)


def make_body(nodes: list[Any], inputs: list[Any], outputs: list[Any], constants: list[Any] | None = None) -> Any:
    return helper.make_graph(nodes, "body", inputs, outputs, constants or [])


def draw(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)


def make_scan_model(steps: int, **attrs: Any) -> ModelAndInputs:
    """A state and a weight around: tanh(x + h @ w), which is stacked beside its negative."""
    nodes = [
        helper.make_node("MatMul", ["h", "w"], ["product"]),
        helper.make_node("Add", ["product", "element"], ["sum"]),
        helper.make_node("Tanh", ["sum"], ["next"]),
        helper.make_node("Neg", ["next"], ["shown"]),
        helper.make_node("Identity", ["next"], ["again"]),  # ONNX Runtime errs where an output is given twice
    ]
    body = make_body(nodes, [value("h"), value("element")], [value("next"), value("again"), value("shown")])
    shape = [2, WIDTH]
    shape.insert(attrs.get("scan_input_axes", [0])[0], steps)
    inputs = {"first": draw(2, WIDTH), "x": draw(*shape, seed=1)}
    node = helper.make_node("Scan", ["first", "x"], ["last", "all", "others"], body=body, num_scan_inputs=1, **attrs)
    model = model_from([node], inputs, {"w": draw(WIDTH, WIDTH, seed=2)})
    return model, inputs


def make_counter_model(steps: int, ends: bool = False) -> ModelAndInputs:
    """A state that takes rows of what is around in turn, by a counter that is carried; `ends`: which ends it, too."""
    nodes = [
        helper.make_node("Add", ["i", "one"], ["more"]),
        helper.make_node("Less", ["more", "limit"], ["on"]) if ends else helper.make_node("Identity", ["go"], ["on"]),
        helper.make_node("Gather", ["x", "i"], ["row"], axis=0),
        helper.make_node("Cast", ["step"], ["weight"], to=FLOAT),
        helper.make_node("Mul", ["row", "weight"], ["weighed"]),
        helper.make_node("Add", ["state", "weighed"], ["next"]),
        helper.make_node("Identity", ["kept"], ["kept_on"]),
        helper.make_node("Identity", ["more"], ["number"]),
        helper.make_node("Mul", ["next", "kept"], ["seen"]),
    ]
    ends_at = [constant("one", 1, "int64"), constant("limit", steps, "int64")]
    body = make_body(
        nodes,
        [value("step", INT, ()), value("go", BOOL, ()), value("i", INT, ()), value("state"), value("kept")],
        [
            *(value("on", BOOL, ()), value("more", INT, ()), value("next")),
            *(value("kept_on"), value("seen"), value("number", INT, ())),
        ],
        ends_at,
    )
    inputs = {"first": draw(2, WIDTH), "x": draw(steps, 2, WIDTH, seed=1), "held": draw(2, WIDTH, seed=2)}
    constants = {"count": np.array(2**63 - 1 if ends else steps), "yes": np.array(True), "zero": np.array(0)}
    names = ["end", "last", "held_on", "all", "counts"]
    node = helper.make_node("Loop", ["count", "yes", "zero", "first", "held"], names, body=body)
    return model_from([node], inputs, constants), inputs


def nested(steps: int) -> ModelAndInputs:
    """A loop in a loop of as many steps: powers of what is carried, and sums of these."""
    inner = make_body(
        [helper.make_node("Mul", ["p", "x"], ["q"]), helper.make_node("Identity", ["c"], ["d"])],
        [value("j", INT, ()), value("c", BOOL, ()), value("p")],
        [value("d", BOOL, ()), value("q")],
    )
    nodes = [
        helper.make_node("Loop", ["inner_count", "", "state"], ["power"], body=inner),
        helper.make_node("Add", ["power", "x"], ["next"]),
        helper.make_node("Identity", ["go"], ["on"]),
    ]
    body = make_body(
        nodes, [value("step", INT, ()), value("go", BOOL, ()), value("state")], [value("on", BOOL, ()), value("next")]
    )
    inputs = {"x": draw(2, WIDTH)}
    node = helper.make_node("Loop", ["count", "", "x"], ["last"], body=body)
    return model_from([node], inputs, {"count": np.array(steps), "inner_count": np.array(3)}), inputs


def compute_outputs(graph: Graph, feeds: dict[str, Array]) -> list[Array]:
    values = evaluate(graph, feeds)
    return [values[name] for name in graph.outputs]


MODELS: dict[str, Callable[[], ModelAndInputs]] = {
    "scan": lambda: make_scan_model(9),
    "scan_back": lambda: make_scan_model(8, scan_input_directions=[1], scan_output_directions=[1, 0]),
    "scan_axes": lambda: make_scan_model(10, scan_input_axes=[1], scan_output_axes=[1, -1]),
    "counter": lambda: make_counter_model(11),
    "condition": lambda: make_counter_model(12, ends=True),
    "nested": lambda: nested(9),
}


@pytest.mark.parametrize("name", sorted(MODELS))
def test_loops_are_what_onnxruntime_computes(name: str, tmp_path: Path) -> None:
    model, feeds = MODELS[name]()
    wanted = runtime(model, feeds)
    looped = import_model(model, loops=True)
    assert len(list_loops(looped)) == 1
    assert_close(compute_outputs(looped, feeds), wanted)
    assert_close(compute_outputs(import_model(model), feeds), wanted)
    executable = make_executable(load_network(model, name).graph, tmp_path)
    assert_close(executable.infer([feeds[p.name] for p in executable.inputs]), wanted)
    assert max(step.get("trips", 1) for step in executable.manifest["steps"]) >= 8


@given(st.integers(8, 20), st.booleans(), st.tuples(st.booleans(), st.booleans()), st.integers(0, 2), st.integers(0, 2))
@settings(max_examples=15, deadline=None)
def test_a_scan_is_what_it_is_unrolled(steps: int, back: bool, turned: tuple[bool, bool], axis: int, out: int) -> None:
    model, feeds = make_scan_model(
        steps,
        scan_input_axes=[axis],
        scan_output_axes=[out, 0],
        scan_input_directions=[int(back)],
        scan_output_directions=[int(each) for each in turned],
    )
    looped, plain = optimise(import_model(model, loops=True)), optimise(import_model(model))
    assert list_loops(looped) and not list_loops(plain)
    assert_close(compute_outputs(looped, feeds), compute_outputs(plain, feeds))
    assert_close(compute_outputs(looped, feeds), runtime(model, feeds))


def test_what_depends_on_constants_alone_is_computed_at_import() -> None:
    graph = optimise(import_model(make_counter_model(11)[0], loops=True))
    (loop,) = list_loops(graph)
    body = loop.attrs["body"]
    assert len(body.state_outputs) == 1 and not any("int64" in str(kind) for kind in body.outputs)
    constants = [graph.constants[name].tolist() for name in graph.outputs if name in graph.constants]
    assert constants == [11, list(range(1, 12))]


def test_a_body_that_needs_a_constant_of_each_step_has_nodes_for_each() -> None:
    nodes = [
        helper.make_node("Unsqueeze", ["step", "axis"], ["begin"]),
        helper.make_node("Add", ["begin", "axis_one"], ["end"]),
        helper.make_node("Slice", ["x", "begin", "end"], ["row"]),
        helper.make_node("Add", ["state", "row"], ["next"]),
        helper.make_node("Identity", ["go"], ["on"]),
    ]
    body = make_body(
        nodes,
        [value("step", INT, ()), value("go", BOOL, ()), value("state", shape=(1, WIDTH))],
        [value("on", BOOL, ()), value("next", shape=(1, WIDTH))],
        [constant("axis", [0], "int64"), constant("axis_one", [1], "int64")],
    )
    inputs = {"first": draw(1, WIDTH), "x": draw(9, WIDTH)}
    node = helper.make_node("Loop", ["count", "", "first"], ["last"], body=body)
    model = model_from([node], inputs, {"count": np.array(9)})
    graph = import_model(model, loops=True)
    assert not list_loops(graph)
    assert_close(compute_outputs(graph, inputs), runtime(model, inputs))


def test_states_of_many_shapes_have_nodes_for_each_step() -> None:
    nodes = [
        helper.make_node("Concat", ["state", "x"], ["next"], axis=0),
        helper.make_node("Identity", ["go"], ["on"]),
    ]
    body = helper.make_graph(
        nodes,
        "body",
        [value("step", INT, ()), value("go", BOOL, ()), helper.make_tensor_value_info("state", FLOAT, None)],
        [value("on", BOOL, ()), helper.make_tensor_value_info("next", FLOAT, None)],
    )
    inputs = {"x": draw(2, WIDTH)}
    node = helper.make_node("Loop", ["count", "", "x"], ["last"], body=body)
    model = model_from([node], inputs, {"count": np.array(9)})
    graph = import_model(model, loops=True)
    assert not list_loops(graph)
    assert_close(compute_outputs(graph, inputs), runtime(model, inputs))


def test_a_loop_that_does_not_end_is_refused() -> None:
    body = make_body(
        [helper.make_node("Add", ["s", "s"], ["t"]), helper.make_node("Identity", ["go"], ["on"])],
        [value("step", INT, ()), value("go", BOOL, ()), value("s")],
        [value("on", BOOL, ()), value("t")],
    )
    node = helper.make_node("Loop", ["", "yes", "x"], ["last"], body=body)
    model = with_shapes(model_from([node], {"x": draw(2, WIDTH)}, {"yes": np.array(True)}))
    with pytest.raises(ValueError, match="must have at most 1024 steps, but got more"):
        import_model(model, loops=True)

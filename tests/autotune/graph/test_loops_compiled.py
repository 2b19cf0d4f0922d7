"""Loops in executables: recurrent layers against ONNX Runtime, and bodies of other kinds against the interpreter."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from autotune.compiler.checking.check import check_network
from autotune.compiler.executable.compile import Compiler
from autotune.compiler.executable.loading import load
from autotune.compiler.options import CompileOptions
from autotune.compiler.prepare import load_network
from autotune.compiler.schedules import Schedules
from autotune.graph.copies import executable_graph
from autotune.graph.evaluate import evaluate
from autotune.graph.frontends.onnx.importer import import_model
from autotune.graph.frontends.onnx.model import with_shapes
from autotune.graph.ir import Array, Graph, GraphBuilder, TensorType
from autotune.graph.loops import Body, add_loop, list_loops
from autotune.graph.passes import optimise
from autotune.graph.passes.early_means import EarlyMeans
from autotune.graph.unrolling import unroll
from targets import registry
from targets.executable import Executable
from tests.autotune.fakes import settings_with
from tests.autotune.graph.onnx_models import assert_close, runtime

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
FUNCTIONS = {"LSTM": 3, "GRU": 2, "RNN": 1}
ROW = TensorType((2, 3))


def layers(
    op: str = "LSTM",
    steps: int = 9,
    batch: int = 2,
    size: int = 5,
    width: int = 8,
    direction: str = "forward",
    states: bool = True,
    depth: int = 1,
    **attrs: Any,
) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """Layers on top of each other, all of whose outputs are the model's; initial states are inputs of it."""
    rng, count, gates = np.random.default_rng(steps * width), 1 + (direction == "bidirectional"), GATES[op]
    feeds = {"x": rng.standard_normal((steps, batch, size)).astype(np.float32)}
    arrays: dict[str, Array] = {"flat": np.array([steps, batch, count * width])}
    nodes, outputs, read = [], [], "x"
    for depth_now in range(depth):
        wide = size if depth_now == 0 else count * width
        shapes = {
            "w": (count, gates * width, wide),
            "r": (count, gates * width, width),
            "b": (count, 2 * gates * width),
        }
        for name, shape in shapes.items():
            arrays[f"{name}{depth_now}"] = rng.uniform(-0.5, 0.5, shape).astype(np.float32)
        given = [read, *(f"{name}{depth_now}" for name in shapes), ""]
        for name in ("h", "c")[: 1 + (op == "LSTM")] if states else ():
            feeds[f"{name}{depth_now}"] = rng.standard_normal((count, batch, width)).astype(np.float32)
            given.append(f"{name}{depth_now}")
        made = [f"{name}{depth_now}" for name in ("y", "yh", "yc")[: 2 + (op == "LSTM")]]
        nodes.append(helper.make_node(op, given, made, hidden_size=width, direction=direction, **attrs))
        nodes.append(helper.make_node("Transpose", made[:1], [f"t{depth_now}"], perm=[0, 2, 1, 3]))
        nodes.append(helper.make_node("Reshape", [f"t{depth_now}", "flat"], [f"f{depth_now}"]))
        outputs, read = [*outputs, *made], f"f{depth_now}"
    inputs = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, a.shape) for n, a in feeds.items()]
    constants = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    made_outputs = [helper.make_empty_tensor_value_info(name) for name in [*outputs, read]]
    graph = helper.make_graph(nodes, "layers", inputs, made_outputs, constants)
    return with_shapes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)), feeds


def make_executable(graph: Graph, folder: Path, threads: int = 1) -> Executable:
    """A graph on the CPU, without trials."""
    Compiler(graph, Schedules(None, settings_with(threads=threads)), "cpu", threads).write(
        folder
    )  # chosen one by one, in this process
    return load(folder, threads)


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning", "ignore:invalid value:RuntimeWarning")  # of Relu
@given(st.data())
@settings(max_examples=25, deadline=None)
def test_a_loop_is_bit_for_bit_what_it_is_unrolled(data: st.DataObject) -> None:
    op, direction = data.draw(st.sampled_from(sorted(GATES))), data.draw(st.sampled_from(["forward", "reverse"]))
    both = data.draw(st.booleans())
    count = FUNCTIONS[op] * (1 + both)
    names = data.draw(st.lists(st.sampled_from(["Sigmoid", "Tanh", "Relu"]), min_size=count, max_size=count))
    attrs: dict[str, Any] = {"activations": names}
    if op == "GRU":
        attrs["linear_before_reset"] = data.draw(st.integers(0, 1))
    model, feeds = layers(
        op,
        data.draw(st.integers(8, 14)),
        data.draw(st.integers(1, 3)),
        data.draw(st.integers(1, 4)),
        data.draw(st.integers(1, 5)),
        "bidirectional" if both else direction,
        data.draw(st.booleans()),
        data.draw(st.integers(1, 2)),
        **attrs,
    )
    looped, plain = optimise(import_model(model, loops=True)), optimise(import_model(model))
    assert list_loops(looped)
    assert not list_loops(plain)
    found, wanted = evaluate(looped, feeds), evaluate(plain, feeds)
    again = evaluate(unroll(looped), feeds)
    for ours, theirs, name in zip(looped.outputs, plain.outputs, unroll(looped).outputs, strict=True):
        np.testing.assert_array_equal(found[ours], wanted[theirs])
        np.testing.assert_array_equal(again[name], wanted[theirs])


@pytest.mark.parametrize(
    ("op", "options"),
    [
        ("LSTM", {"direction": "bidirectional", "depth": 2, "steps": 8}),
        ("LSTM", {"batch": 1, "states": False, "direction": "reverse", "width": 17, "steps": 100}),
        ("GRU", {"direction": "bidirectional", "batch": 3}),
        ("GRU", {"linear_before_reset": 1, "steps": 33, "depth": 2}),
        ("RNN", {"direction": "reverse", "activations": ["Relu"], "batch": 5}),
    ],
)
def test_layers_compiled_are_what_onnxruntime_computes(op: str, options: dict[str, Any], tmp_path: Path) -> None:
    model, feeds = layers(op, **options)
    executable = make_executable(load_network(model, op).graph, tmp_path, 2)
    arrays, wanted = [feeds[p.name] for p in executable.inputs], runtime(model, feeds)
    assert_close(executable.infer(arrays), wanted, 1e-5)
    assert_close(executable.infer(arrays), wanted, 1e-5)  # nothing is left of the call before
    trips = [step.get("trips", 1) for step in executable.manifest["steps"]]
    assert trips.count(options.get("steps", 9)) == len([n for n in trips if n > 1]) > 0
    assert executable.profile(2).shape == (2, len(trips))
    assert (executable.profile(2) >= 0).all()


def test_the_check_compiles_the_loops() -> None:
    model, _ = layers("GRU", 10, states=False)
    network, options = load_network(model, "gru"), settings_with()
    assert check_network(network, Schedules(None, options), options).max_error < 1e-5


def test_neither_graph_nor_code_grows_with_the_steps(tmp_path: Path) -> None:
    sizes = []
    for steps in (16, 400):
        network = load_network(layers(steps=steps)[0], "lstm")
        executable = make_executable(network.graph, tmp_path / str(steps))
        kernels = {task.name.partition("_")[0]: task.weight for task in network.tasks}
        assert (kernels["matmul"], kernels["lstm"]) == (steps, steps)
        sizes.append((len(network.graph.nodes), len(executable.manifest["steps"])))
        arena = executable.manifest["memory"]
        assert arena["arena_bytes"] == arena["arena_lower_bound"]
    assert sizes[0] == sizes[1]


def test_few_steps_and_other_precisions_are_unrolled() -> None:
    def count(steps: int, **options: Any) -> int:
        return len(list_loops(load_network(layers(steps=steps)[0], "lstm", CompileOptions(**options)).graph))

    assert [count(7), count(8)] == [0, 1]
    assert count(8, precision="bfloat16") == 0
    assert count(8, substitutions=(EarlyMeans(),)) == 0
    assert count(8, target=registry.get("c")) == 0


def body(states: Sequence[int], stacked: Sequence[bool]) -> Body:
    """Two states, an element, and a value for all -> their product and sum, a weight added, and a scan of them."""
    builder = GraphBuilder("body", dict.fromkeys(("first", "second", "element", "shared"), ROW))
    weight = builder.constant(np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3))
    left = builder.add("add", [builder.add("multiply", ["first", "shared"]), weight])
    right = builder.add("add", ["second", builder.add("multiply", ["element", "first"])])
    half = builder.add("slice", [right], begin=(0, 1), size=(2, 2))
    turned = builder.add("concat", [half, builder.add("slice", [left], begin=(0, 0), size=(2, 1))], axis=1)
    seen = builder.add("reshape", [turned], shape=(3, 2))
    return Body(builder.finish([left, right, seen, "element"]), tuple(states), 1, tuple(stacked))


STATES_AND_SCANS = [
    ((0, 1), (True, False, True, False)),
    ((1, 0), (False, False, False, True)),
    ((3, 3), (True, True, False, False)),
]


def test_states_change_places_and_outputs_are_kept(tmp_path: Path) -> None:
    lengths = (1, 2, 5)
    inputs = {"first": ROW, "shared": ROW, **{f"sequence{n}": TensorType((n, 2, 3)) for n in lengths}}
    builder = GraphBuilder("looped", inputs)
    begun = builder.add("add", ["first", "shared"])
    outputs = [begun]
    for trips in lengths:
        for carried, stacked in STATES_AND_SCANS:
            of, sequence = body(carried, stacked), f"sequence{trips}"
            states = [begun, "first", sequence, "shared"]
            outputs += add_loop(builder, of, states, trips, [True], [False, True, True, False])
            more = add_loop(builder, of, [begun, begun, sequence, begun], trips, [False], [True] * 4)
            outputs.append(builder.add("add", [more[0], more[0]]))
    graph = executable_graph(builder.finish(outputs))
    rng = np.random.default_rng(0)
    feeds = {name: rng.standard_normal(kind.shape).astype(np.float32) for name, kind in graph.inputs.items()}
    values, apart = evaluate(graph, feeds), unroll(graph)
    found = make_executable(graph, tmp_path).infer(list(feeds.values()))
    assert_close(found, [values[name] for name in graph.outputs], 1e-6)
    plain = evaluate(apart, feeds)
    for ours, theirs in zip(graph.outputs, apart.outputs, strict=True):
        np.testing.assert_array_equal(values[ours], plain[theirs])

"""Recurrent layers: steps share their kernels, nothing is copied between them, and what is built is what ONNX means."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from autotune.compiler.checking.check import check_network
from autotune.compiler.prepare import load_network
from autotune.compiler.schedules import Schedules
from autotune.compiler.tasks import list_tasks
from autotune.graph import unrolling
from autotune.graph.copies import executable_graph
from autotune.graph.frontends.onnx.importer import UnsupportedModelError, import_model, recurrent
from autotune.graph.frontends.onnx.model import with_shapes
from autotune.graph.ir import TensorType
from autotune.graph.loops import list_loops
from autotune.graph.ops import find
from autotune.graph.ops.recurrent import CELLS
from autotune.graph.passes import optimise
from autotune.graph.views import free, locate
from search_space.operators import evaluation
from tests.autotune.fakes import settings_with
from tests.autotune.graph.onnx_models import evaluate_import, reference, runtime

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def layer(
    op: str,
    shape: tuple[int, int, int] = (5, 2, 6),
    width: int = 8,
    direction: str = "forward",
    lengths: list[int] | None = None,
    computed: bool = False,
    inputs: int = 0,
    **attrs: Any,
) -> onnx.ModelProto:
    """One layer; `computed`: its recurrence weights are an input; `inputs`: for which there are weights."""
    rng, count = np.random.default_rng(0), 1 + (direction == "bidirectional")
    arrays = {
        "w": rng.uniform(-0.5, 0.5, (count, GATES[op] * width, inputs or shape[2])).astype(np.float32),
        "r": rng.uniform(-0.5, 0.5, (count, GATES[op] * width, width)).astype(np.float32),
        "b": rng.uniform(-0.5, 0.5, (count, 2 * GATES[op] * width)).astype(np.float32),
    }
    given = [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)]
    if computed:
        given.append(helper.make_tensor_value_info("r", onnx.TensorProto.FLOAT, arrays.pop("r").shape))
    if lengths is not None:
        arrays["lengths"] = np.array(lengths, np.int32)
    names = ["x", "w", "r", "b", "lengths" if lengths is not None else ""]
    node = helper.make_node(op, names, ["y", "last"], name="only", hidden_size=width, direction=direction, **attrs)
    outputs = [helper.make_empty_tensor_value_info(name) for name in node.output]
    constants = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    graph = helper.make_graph([node], "layer", given, outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)


@pytest.mark.parametrize("op", sorted(GATES))
def test_samples_first_is_another_order_of_the_same(op: str) -> None:
    x = np.random.default_rng(1).standard_normal((5, 2, 6)).astype(np.float32)
    plain = reference(layer(op, direction="bidirectional"), {"x": x})
    turned = evaluate_import(
        with_shapes(layer(op, (2, 5, 6), direction="bidirectional", layout=1)), {"x": x.swapaxes(0, 1)}
    )
    np.testing.assert_allclose(turned[0].transpose(1, 2, 0, 3), plain[0], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(turned[1].swapaxes(0, 1), plain[1], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("op", "attrs"), [("LSTM", {}), ("GRU", {}), ("GRU", {"linear_before_reset": 1}), ("RNN", {})])
def test_a_layer_compiled_is_what_onnxruntime_computes(op: str, attrs: dict[str, Any]) -> None:
    network = load_network(with_shapes(layer(op, direction="bidirectional", **attrs)), op)
    check = check_network(network, Schedules(None, settings_with()), settings_with())
    assert check.max_error < 1e-5


@pytest.mark.parametrize("op", sorted(GATES))
def test_steps_share_kernels_and_nothing_is_copied(op: str) -> None:
    def kernels(steps: int) -> int:
        return len(list_tasks(executable_graph(optimise(import_model(with_shapes(layer(op, (steps, 2, 6))))))))

    assert kernels(24) == kernels(7)
    graph = optimise(import_model(with_shapes(layer(op, (9, 2, 6), direction="bidirectional"))))
    moved = {"slice", "concat", "transpose"}
    nothing = free(graph, locate(graph))
    slices = [node.name for node in graph.nodes if node.op == "slice"]
    assert len(slices) >= 18
    assert set(slices) <= nothing
    copied = [node for node in graph.nodes if node.op in moved and node.name not in nothing]
    assert sum(node.type.size for node in copied) <= 2 * (2 * 9 * 2 * 8) + 2 * 2 * 8  # stacked, beside each other


def test_many_steps_are_joined_in_parts() -> None:
    steps = 70
    x = np.random.default_rng(1).standard_normal((steps, 1, 3)).astype(np.float32)
    model = layer("RNN", (steps, 1, 3), 4)
    graph = optimise(import_model(with_shapes(model)))
    assert max(len(node.inputs) for node in graph.nodes) <= 64
    np.testing.assert_allclose(evaluate_import(with_shapes(model), {"x": x})[0], runtime(model, {"x": x})[0], atol=1e-5)


@pytest.mark.parametrize(
    ("attrs", "rule"),
    [
        ({"lengths": [5, 4]}, r"must have sequences of all 5 steps, but got sequence_lens=\[5, 4\]"),
        ({"computed": True}, "must have a constant recurrence weight, but got r"),
        ({"clip": 1.0}, "must not clip, but got clip=1.0"),
        ({"activations": ["Sigmoid", "Tanh", "Softsign"]}, "must have 3 activations of Sigmoid, Tanh, Relu"),
        ({"activations": ["Sigmoid"]}, "must have 3 activations of Sigmoid, Tanh, Relu"),
        ({"input_forget": 1}, "must have a gate to forget, but got input_forget=1"),
        ({"inputs": 5}, "must have a weight for each input, but got 5 weights of 6 inputs"),
    ],
)
def test_bad_layers(attrs: dict[str, Any], rule: str) -> None:
    with pytest.raises(UnsupportedModelError, match=rule):
        import_model(with_shapes(layer("LSTM", **attrs)))


def test_too_many_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unrolling, "MOST_STEPS", 8)
    model = with_shapes(layer("LSTM", (9, 2, 6), direction="bidirectional"))
    with pytest.raises(
        UnsupportedModelError, match=r"loop 'only' must have at most 8 steps where it is unrolled, but got 9"
    ):
        import_model(model)
    assert len(list_loops(import_model(model, loops=True))) == 2
    monkeypatch.setattr(recurrent, "MOST_TRIPS", 8)
    with pytest.raises(UnsupportedModelError, match=r"LSTM node 'only' must have 1 to 8 steps, but got 9"):
        import_model(model, loops=True)


WEIGHTED = [(name, weighted) for name, cell in CELLS.items() for weighted in (False, True)[: 1 + bool(cell.weights)]]


@pytest.mark.parametrize(("name", "weighted"), WEIGHTED)
def test_cells_are_their_expressions(name: str, weighted: bool) -> None:
    cell, operation, rng = CELLS[name], find(name), np.random.default_rng(2)
    shapes: list[tuple[int, ...]] = [(3, parts * 5) for parts in cell.inputs.values()]
    shapes += [(cell.weights * 5,)] * weighted
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    types = [TensorType(a.shape) for a in arrays]
    attrs = operation.attributes({"functions": ["sigmoid", "tanh"][: cell.functions]}, types)
    expected = evaluation.evaluate(operation.tensors(attrs, types), arrays)
    np.testing.assert_allclose(operation.evaluate(attrs, arrays), expected, rtol=1e-5, atol=1e-6)


STATE = TensorType((3, 5))


@pytest.mark.parametrize(
    ("types", "functions", "rule"),
    [
        ([TensorType((3, 20)), STATE], ["sigmoid"], "`functions` must be 2 of sigmoid, tanh, relu"),
        ([TensorType((3, 20)), STATE], ["sigmoid", "sin"], "`functions` must be 2 of sigmoid, tanh, relu"),
        ([TensorType((3, 15)), STATE], ["sigmoid", "tanh"], r"inputs must be floating-point values of \[3, 20\]"),
        ([TensorType((3, 20)), TensorType((5,))], ["sigmoid", "tanh"], "a state must be a matrix"),
        ([STATE], ["sigmoid", "tanh"], "inputs must be gates, state, but got 1"),
    ],
)
def test_bad_cells(types: list[TensorType], functions: list[str], rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        find("lstm_state").attributes({"functions": functions}, types)


def test_kinds_of_nodes() -> None:
    graph = optimise(import_model(with_shapes(layer("LSTM"))))
    counts = Counter(node.op for node in graph.nodes)
    assert counts["lstm_state"] == counts["lstm_output"] == 5
    assert counts["matmul"] == 5  # that of the inputs, and of all steps but the first, which begins with zeros

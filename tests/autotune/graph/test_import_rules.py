"""Rules of imports for every node, functions of a model, integers of 64 bits, and cases that need no refusal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper
from onnx import helper as h

import autotune
from autotune.compiler.checking import process, reference
from autotune.graph.frontends.onnx.importer import import_model, registry
from autotune.graph.frontends.onnx.model import UnsupportedModelError, with_shapes
from tests.autotune.graph.onnx_models import Array, evaluate_import, make_model, model_from, runtime

ROW = np.float32([-8, 4])
SETS = [h.make_opsetid("", 20)]
LARGE = (1 << 53) + 1


def ints(*values: int) -> Array:
    return np.array(values, np.int64)


def compile_and_run(model: onnx.ModelProto, *inputs: Array) -> Array:
    return np.asarray(autotune.compile(model)(*inputs))


def with_functions(node: onnx.NodeProto, *functions: onnx.FunctionProto) -> onnx.ModelProto:
    """A model of one node that reads x, a row of two, and the model's own functions."""
    x, y = (h.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy")
    graph = h.make_graph([node], "g", [x], [y], [numpy_helper.from_array(np.array(True), "c")])
    sets = [*SETS, h.make_opsetid("own", 1)]
    return h.make_model(graph, opset_imports=sets, functions=functions, ir_version=9)


def leaky(name: str, slope: float | None = None) -> onnx.FunctionProto:
    """A function whose attribute has a default, or none."""
    node = h.make_node("LeakyRelu", ["a"], ["b"])
    node.attribute.add(name="alpha", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT)
    defaults = [] if slope is None else [h.make_attribute("slope", slope)]
    names = ["slope"] if slope is None else []
    return h.make_function("own", name, ["a"], ["b"], [node], SETS, attributes=names, attribute_protos=defaults)


# ------------------------------------------------------------------ types of nodes
def test_a_node_of_another_type_than_onnx_infers_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_model("Relu", {"x": np.ones((2, 3), np.float32)})
    monkeypatch.setitem(registry.HANDLERS, "Relu", lambda call: call.reshape(call.value(0), (3, 2)))
    message = r"output 'y0' of Relu node 'only' must be float32\[2,3\], as ONNX infers, but was imported as .*\[3,2\]"
    with pytest.raises(UnsupportedModelError, match=message):
        import_model(model)
    monkeypatch.setitem(registry.HANDLERS, "Relu", lambda call: call.cast(call.value(0), "int32"))
    with pytest.raises(UnsupportedModelError, match="must be float32.*but was imported as int32"):
        import_model(model)


@pytest.mark.parametrize("exponent", [-1.0, -0.5, 0.5, 1.0, 2.0, 3.0, 2.5])
def test_a_power_has_the_axes_of_its_exponent(exponent: float) -> None:
    x = np.float32([1, 2, 3])
    model = make_model("Pow", {"x": x}, {"e": np.float32([[exponent]])})
    (found,) = evaluate_import(model, {"x": x})
    np.testing.assert_allclose(found, x[None] ** np.float32(exponent), rtol=1e-6)
    assert found.shape == (1, 3)


def test_a_slope_of_more_axes_keeps_those_of_the_data() -> None:
    (found,) = evaluate_import(make_model("PRelu", {"x": ROW}, {"slope": np.float32([[0.5]])}), {"x": ROW})
    assert found.tolist() == [-4, 4]


# ------------------------------------------------------------------ functions
def test_a_function_has_defaults_of_its_attributes() -> None:
    model = with_functions(h.make_node("leaky", ["x"], ["y"], domain="own"), leaky("leaky", 0.25))
    assert (
        evaluate_import(with_shapes(model), {"x": ROW})[0].tolist() == runtime(model, {"x": ROW})[0].tolist() == [-2, 4]
    )
    model = with_functions(h.make_node("leaky", ["x"], ["y"], domain="own", slope=0.5), leaky("leaky", 0.25))
    assert evaluate_import(with_shapes(model), {"x": ROW})[0].tolist() == [-4, 4]


def test_a_default_holds_where_the_calling_function_has_none() -> None:
    call = h.make_node("leaky", ["a"], ["b"], domain="own")
    call.attribute.add(name="slope", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT)
    outer = h.make_function("own", "outer", ["a"], ["b"], [call], [h.make_opsetid("own", 1)], attributes=["slope"])
    for attributes, wanted in (({}, -2), ({"slope": 0.5}, -4)):
        node = h.make_node("outer", ["x"], ["y"], domain="own", **attributes)
        (found,) = evaluate_import(with_shapes(with_functions(node, outer, leaky("leaky", 0.25))), {"x": ROW})
        assert found.tolist() == [wanted, 4]


@pytest.mark.parametrize("inputs", [["x"], ["x", ""]])
def test_a_function_is_called_without_an_input(inputs: list[str]) -> None:
    branches = [
        h.make_graph([h.make_node("Clip", ["a", "low"], ["r"])], "r", [], [h.make_empty_tensor_value_info("r")])
    ]
    branches.append(h.make_graph([h.make_node("Neg", ["a"], ["n"])], "n", [], [h.make_empty_tensor_value_info("n")]))
    nodes = [h.make_node("Constant", [], ["c"], value=h.make_tensor("c", TensorProto.BOOL, (), [True]))]
    nodes.append(h.make_node("If", ["c"], ["b"], then_branch=branches[0], else_branch=branches[1]))
    nodes.append(h.make_node("Clip", ["b", "low"], ["o"]))
    function = h.make_function("own", "limit", ["a", "low"], ["o"], nodes, SETS)
    model = with_functions(h.make_node("limit", inputs, ["y"], domain="own"), function)
    assert evaluate_import(with_shapes(model), {"x": ROW})[0].tolist() == ROW.tolist()


def test_a_function_is_called_in_a_branch_alone() -> None:
    out = [h.make_tensor_value_info("o", TensorProto.FLOAT, [2])]
    then = h.make_graph([h.make_node("leaky", ["x"], ["o"], domain="own")], "then", [], out)
    other = h.make_graph([h.make_node("Identity", ["x"], ["o"])], "else", [], out)
    node = h.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other)
    assert evaluate_import(with_shapes(with_functions(node, leaky("leaky", 0.25))), {"x": ROW})[0].tolist() == [-2, 4]


def test_a_function_that_calls_itself_is_refused() -> None:
    again = h.make_node("again", ["a"], ["b"], domain="own")
    function = h.make_function("own", "again", ["a"], ["b"], [again], [h.make_opsetid("own", 1)])
    model = with_functions(h.make_node("again", ["x"], ["y"], domain="own"), function)
    with pytest.raises(
        UnsupportedModelError, match="functions of a model must not call themselves, but again node 'b' does"
    ):
        import_model(model)


# ------------------------------------------------------------------ integers of 64 bits
@pytest.mark.parametrize(
    ("op", "constants", "expected"),
    [
        ("Clip", [np.int64(-LARGE), np.int64(LARGE)], [LARGE, LARGE, -LARGE, 7]),
        ("Clip", [np.int64(0), np.int64(2**62 + 1)], [2**62 + 1, LARGE, 0, 7]),
        ("Max", [ints(LARGE)], [2**63 - 1, LARGE, LARGE, LARGE]),
        ("Pad", [ints(0, 1), np.int64(LARGE)], [2**63 - 1, LARGE, -(2**63), 7, LARGE]),
        ("Pad", [ints(0, 1), np.int64(2**63 - 1)], [2**63 - 1, LARGE, -(2**63), 7, 2**63 - 1]),
        ("ReduceSum", [], [LARGE + 6]),
        ("ReduceMax", [], [2**63 - 1]),
        ("ReduceMin", [], [-(2**63)]),
        ("Equal", [ints(LARGE - 1)], [False] * 4),
    ],
)
def test_integers_pass_through_no_float(op: str, constants: list[Array], expected: list[int]) -> None:
    x = ints(2**63 - 1, LARGE, -(2**63), 7)
    model = make_model(op, {"x": x}, {f"c{i}": np.asarray(c) for i, c in enumerate(constants)}, opset=20)
    assert compile_and_run(model, x).reshape(-1).tolist() == expected
    assert evaluate_import(model, {"x": x})[0].reshape(-1).tolist() == expected


def test_an_index_of_64_bits_is_not_cut() -> None:
    indices = ints(1, 2**32 + 1, -(2**32) + 2, -1)
    constants = {"d": ints(4), "v": np.float32([0, 1])}
    model = make_model("OneHot", {"i": indices}, constants, opset=20)
    np.testing.assert_array_equal(compile_and_run(model, indices), runtime(model, {"i": indices})[0])
    data = np.float32([1, 2, 3])
    model = make_model("GatherElements", {"x": data, "i": indices})
    assert evaluate_import(model, {"x": data, "i": indices})[0].tolist() == [2, 3, 1, 3]  # the nearest end


# ------------------------------------------------------------------ what needs no refusal
def make_nodes(*nodes: Sequence[Any]) -> list[onnx.NodeProto]:
    return [h.make_node(op, inputs, outputs, **attrs) for op, inputs, outputs, attrs in nodes]


def test_no_indices_give_no_elements() -> None:
    nodes = make_nodes(("Gather", ["x", "i"], ["n"], {}), ("Concat", ["n", "x"], ["y"], {"axis": 0}))
    assert compile_and_run(model_from(nodes, {"x": ROW}, {"i": ints()}), ROW).tolist() == [-8, 4]
    nodes = make_nodes(("Slice", ["x", "i", "i"], ["n"], {}), ("Concat", ["n", "x"], ["y"], {"axis": 0}))
    assert compile_and_run(model_from(nodes, {"x": ROW}, {"i": ints(1)}), ROW).tolist() == [-8, 4]


def test_a_node_that_nothing_reads_needs_no_importer() -> None:
    nodes = make_nodes(("NonZero", ["x"], ["n"], {}), ("Relu", ["x"], ["y"], {}))
    assert evaluate_import(model_from(nodes, {"x": ROW}), {"x": ROW})[0].tolist() == [0, 4]


def test_an_epsilon_of_nothing() -> None:
    x = np.float32([[1, 2, 3]])
    model = make_model("LayerNormalization", {"x": x}, {"s": np.ones(3, np.float32)}, epsilon=0.0)
    np.testing.assert_allclose(compile_and_run(model, x), (x - 2) / np.sqrt(2 / 3), rtol=1e-6)


def test_a_loop_of_no_step() -> None:
    kinds = {"k": (TensorProto.INT64, []), "c": (TensorProto.BOOL, []), "s": (TensorProto.FLOAT, [2])}
    kinds |= {"c2": kinds["c"], "s2": kinds["s"], "scan": kinds["s"]}
    values = {name: h.make_tensor_value_info(name, *kind) for name, kind in kinds.items()}
    nodes = make_nodes(("Add", ["s", "x"], ["s2"], {}), ("Identity", ["c"], ["c2"], {}), ("Abs", ["s"], ["scan"], {}))
    body = h.make_graph(nodes, "body", [values[n] for n in ("k", "c", "s")], [values[n] for n in ("c2", "s2", "scan")])
    loop = ("Loop", ["m", "t", "x"], ["last", "all"], {"body": body})
    constants = {"m": np.array(0), "t": np.array(True)}
    model = model_from(make_nodes(loop, ("Relu", ["last"], ["y"], {})), {"x": ROW}, constants)
    assert evaluate_import(model, {"x": ROW})[0].tolist() == [0, 4]
    model = model_from(make_nodes(loop, ("Relu", ["all"], ["y"], {})), {"x": ROW}, constants)
    with pytest.raises(
        UnsupportedModelError, match="Loop node 'last' must have a step, as 'all' is read, but got none"
    ):
        import_model(model)


# ------------------------------------------------------------------ references
class Refusing:
    """A process whose runtime cannot open any model."""

    message = ""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        process.raise_refusal("onnxruntime", self.message)


@pytest.mark.parametrize(
    "message", ["NOT_IMPLEMENTED : Could not find an implementation for Relu(14)", "No Op registered for Relu with 20"]
)
def test_an_operator_that_a_runtime_lacks_is_checked_by_onnx(
    message: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    model = make_model("Relu", {"x": ROW})
    monkeypatch.setattr(reference, "NetworkProcess", Refusing)
    monkeypatch.setattr(Refusing, "message", message)
    name, outputs = reference.reference_outputs(model, import_model(model), {"x": ROW}, 1, tmp_path)
    assert (name, outputs["y0"].tolist()) == ("ONNX's evaluator", [0, 4])
    monkeypatch.setattr(Refusing, "message", "FAIL : out of memory")
    with pytest.raises(process.RuntimeFailure, match="out of memory"):
        reference.reference_outputs(model, import_model(model), {"x": ROW}, 1, tmp_path)

"""Limits of what the import of a small file may create, and errors for files that ask for more."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto
from onnx import helper as h

from autotune.graph import limits
from autotune.graph.frontends.onnx.importer import import_model
from autotune.graph.frontends.onnx.model import UnsupportedModelError, with_shapes
from autotune.graph.ir import Graph, TensorType
from autotune.graph.limits import Budget
from autotune.graph.quantise import load_feeds
from autotune.tuner.search.base import make_options
from autotune.tuner.search.registry import get
from tests.autotune.graph.onnx_models import Array

IMAGE = np.zeros((1, 1, 2, 2), np.float32)
MANY = 1 << 40


def node_model(op: str, inputs: Sequence[Array], constants: Sequence[Array], domain: str = "") -> onnx.ModelProto:
    """A model of one node that reads inputs `i0` and so on, then constants, as a file may have it."""
    arrays = {f"i{number}": np.asarray(array) for number, array in enumerate([*inputs, *constants])}
    kinds = {name: (h.np_dtype_to_tensor_dtype(a.dtype), a.shape) for name, a in arrays.items()}
    names = list(arrays)[: len(inputs)]
    graph = h.make_graph(
        [h.make_node(op, list(arrays), ["y"], domain=domain)],
        "graph",
        [h.make_tensor_value_info(name, *kinds[name]) for name in names],
        [h.make_empty_tensor_value_info("y")],
        [onnx.numpy_helper.from_array(a, name) for name, a in arrays.items() if name not in names],
    )
    return h.make_model(graph, opset_imports=[h.make_opsetid("", 20), h.make_opsetid("own", 1)], ir_version=9)


def import_inferred(model: onnx.ModelProto) -> Graph:
    return import_model(with_shapes(model))


def ints(*values: int) -> Array:
    return np.array(values, np.int64)


@pytest.mark.parametrize(
    ("op", "constants"),
    [
        ("Range", [np.int64(0), np.int64(MANY), np.int64(1)]),
        ("Range", [np.float32(0), np.float32(1e30), np.float32(1)]),
        ("ConstantOfShape", [ints(1 << 31)]),
        ("OneHot", [ints(1), ints(MANY), np.float32([0, 1])]),
        ("Expand", [np.float32([1]), ints(MANY)]),
        ("Tile", [np.float32([1]), ints(MANY)]),
        ("Pad", [np.float32([1]), ints(0, MANY)]),
        ("HannWindow", [np.int64(MANY)]),
        ("Add", [np.ones((1 << 15, 1), np.float32), np.ones(1 << 15, np.float32)]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_constants_are_measured_before_they_are_made(op: str, constants: list[Array]) -> None:
    with pytest.raises(
        UnsupportedModelError, match=f"must take at most {limits.MOST_CONSTANT_BYTES} bytes together, but got .*{op}"
    ):
        import_inferred(node_model(op, [], constants))


@pytest.mark.parametrize(
    ("op", "constants"),
    [
        ("Expand", [ints(MANY, 1, 2, 2)]),
        ("Tile", [ints(1, MANY, 1, 1)]),
        ("Pad", [ints(0, 0, 0, 0, 0, MANY, 0, 0)]),
        ("Resize", [np.float32([]), np.float32([1, 1, 1e10, 1])]),
        ("Resize", [np.float32([]), np.float32([1, 1, 1e30, 1])]),
    ],
)
def test_values_are_measured_before_they_are_imported(op: str, constants: list[Array]) -> None:
    with pytest.raises(
        UnsupportedModelError, match=f"must take at most {limits.MOST_VALUE_BYTES} bytes each, but got .*{op}"
    ):
        import_inferred(node_model(op, [IMAGE], constants))


@pytest.mark.parametrize("mode", ["edge", "constant"])
def test_arrays_that_say_where_elements_come_from_are_measured(mode: str) -> None:
    begin = -1 if mode == "edge" else -2  # no element of the input is left
    model = node_model("Pad", [IMAGE], [ints(0, 0, begin, 0, 0, 0, 1 << 29, 0)])
    model.graph.node[0].attribute.append(h.make_attribute("mode", mode))
    for each in (model, node_model("Resize", [IMAGE], [np.float32([]), np.float32([1, 1, 1 << 28, 1])])):
        with pytest.raises(UnsupportedModelError, match="bytes together, but got"):
            import_inferred(each)


def test_constants_count_together() -> None:
    budget = Budget()
    for _ in range(2):
        budget.take("half", TensorType((limits.MOST_CONSTANT_BYTES // 8,)))
    with pytest.raises(UnsupportedModelError, match="bytes together, but got float32\\[1\\] of 4 bytes from more"):
        budget.take("more", TensorType((1,)))
    assert Budget.of_weights(1 << 30).most == limits.GROWTH << 30


def test_weights_in_nodes_count_as_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MOST_CONSTANT_BYTES", 1 << 10)
    weight = onnx.numpy_helper.from_array(np.ones((16, 32), np.float32))
    nodes = [h.make_node("Constant", [], ["w"], value=weight), h.make_node("Transpose", ["w"], ["t"])]
    nodes.append(h.make_node("MatMul", ["x", "t"], ["y"]))
    given = h.make_tensor_value_info("x", TensorProto.FLOAT, (1, 32))
    graph = h.make_graph(nodes, "graph", [given], [h.make_empty_tensor_value_info("y")])
    made = import_inferred(h.make_model(graph, opset_imports=[h.make_opsetid("", 20)], ir_version=9))
    assert made.type(made.outputs[0]) == TensorType((1, 16))


def test_values_of_long_attention_are_taken() -> None:
    limits.check_value("scores", TensorType((1, 32, 16384, 16384)))


def test_functions_that_call_each_other_twice_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MOST_NODES", 100)
    functions = [
        h.make_function("own", "f0", ["a"], ["b"], [h.make_node("Relu", ["a"], ["b"])], [h.make_opsetid("", 20)])
    ]
    for level in range(1, 8):
        inner = f"f{level - 1}"
        nodes = [h.make_node(inner, ["a"], ["m"], domain="own"), h.make_node(inner, ["m"], ["b"], domain="own")]
        functions.append(h.make_function("own", f"f{level}", ["a"], ["b"], nodes, [h.make_opsetid("own", 1)]))
    model = node_model("f7", [IMAGE], [], domain="own")
    model.functions.extend(functions)
    with pytest.raises(UnsupportedModelError, match="must have at most 100 nodes"):
        import_inferred(model)


@pytest.mark.parametrize("number", [0, 99])
def test_elements_of_no_type(number: int) -> None:
    message = f"of an element type that ONNX defines, but got '.*' of type {number}"
    model = node_model("Add", [np.float32([1])], [np.float32([1])])
    model.graph.initializer[0].data_type = number
    with pytest.raises(UnsupportedModelError, match=message):
        import_inferred(model)
    model = node_model("Relu", [np.float32([1])], [])
    model.graph.input[0].type.tensor_type.elem_type = number
    with pytest.raises(UnsupportedModelError, match=message):
        import_inferred(model)


def test_weights_in_another_file_of_a_model_in_memory() -> None:
    model = node_model("Add", [np.float32([1, 2])], [np.float32([1, 2])])
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="weights.bin")
    with pytest.raises(
        UnsupportedModelError, match="in the file 'weights.bin': give the path of the .onnx file, or call onnx.load"
    ):
        with_shapes(model)


def test_sparse_tensors_are_dense_ones() -> None:
    values = onnx.numpy_helper.from_array(np.float32([7, 8]), "w")
    for indices in (ints(1, 5), np.int64([[0, 1], [1, 2]])):
        model = node_model("Add", [np.zeros((2, 3), np.float32), np.zeros((2, 3), np.float32)], [])
        model.graph.node[0].input[1] = "w"
        sparse = h.make_sparse_tensor(values, onnx.numpy_helper.from_array(indices, "i"), [2, 3])
        model.graph.sparse_initializer.append(sparse)
        graph = import_inferred(model)
        assert [array.tolist() for array in graph.constants.values()] == [[[0, 7, 0], [0, 0, 8]]]
        model.graph.sparse_initializer[0].dims[:] = [2, 2]
        with pytest.raises(
            UnsupportedModelError, match="must have an index within \\[2, 2\\] for each value, but got 'w'"
        ):
            with_shapes(model)
        model.graph.sparse_initializer[0].dims[:] = [1 << 20, 1 << 20]
        with pytest.raises(UnsupportedModelError, match="bytes together, but got float32.*the sparse tensor 'w'"):
            with_shapes(model)


def test_feeds_are_measured_by_their_headers(tmp_path: Path) -> None:
    kinds = {"x": TensorType((1 << 16,))}
    good = tmp_path / "good.npz"
    np.savez(good, x=np.ones((2, 1 << 16), np.float32))
    assert len(load_feeds(good, kinds)) == 2
    bad = tmp_path / "bad.npz"
    with zipfile.ZipFile(bad, "w") as archive, archive.open("x.npy", "w") as file:
        facts: Any = {"descr": "<f4", "fortran_order": False, "shape": (1 << 20, 1 << 16)}
        np.lib.format.write_array_header_1_0(file, facts)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=f"must take at most {1 << 30} bytes together, but take {1 << 38}"):
        load_feeds(bad, kinds)


def test_a_population_has_a_bound() -> None:
    with pytest.raises(
        ValueError, match="`population` of evolution must be from 1 to 1048576, but got population=10000000000"
    ):
        make_options(get("evolution").Options, {"population": 10**10}, "evolution")

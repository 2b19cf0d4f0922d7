"""Constants that are computed at import, and those that cannot be."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from autotune.graph.frontends.onnx.importer import UnsupportedModelError, import_model
from autotune.graph.frontends.onnx.nodes import NodeError, run_node
from tests.autotune.graph.onnx_models import Array, check, evaluate_import, model_from, runtime

X = {"x": np.arange(12, dtype=np.float32).reshape(3, 4)}


def test_token_types_of_bert() -> None:
    """The graph is transformers' export: rows of a constant buffer by constant positions, then an embedding."""
    nodes = [
        helper.make_node("Expand", ["buffer", "shape"], ["rows"]),
        helper.make_node("GatherElements", ["rows", "positions"], ["types"], axis=1),
        helper.make_node("Gather", ["table", "types"], ["embedded"]),
        helper.make_node("Add", ["x", "embedded"], ["y"]),
    ]
    inputs = {"x": np.random.default_rng(0).standard_normal((1, 128, 8)).astype(np.float32)}
    constants = {
        "buffer": np.zeros((1, 512), np.int64),
        "shape": np.array([1, 512]),
        "positions": np.arange(128)[None],
        "table": np.random.default_rng(1).standard_normal((2, 8)).astype(np.float32),
    }
    model = model_from(nodes, inputs, constants)
    check(model, inputs)
    assert [node.op for node in import_model(model).nodes] == ["add"]


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6))
def test_elements_gathered_by_the_definition(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = rng.integers(1, 5, rng.integers(1, 4))
    axis = int(rng.integers(-len(shape), len(shape)))
    wanted = [n if a == axis % len(shape) else rng.integers(1, n + 1) for a, n in enumerate(shape)]
    wanted[axis] = rng.integers(1, 6)
    data, indices = rng.standard_normal(shape), rng.integers(-shape[axis], shape[axis], wanted)
    node = helper.make_node("GatherElements", ["d", "i"], ["y"], axis=axis)
    (found,) = run_node(node, {"d": data, "i": indices}, 13).values()
    assert found.shape == indices.shape
    for place in np.ndindex(*found.shape):
        source = list(place)
        source[axis] = indices[place]
        assert found[place] == data[tuple(source)]


OLD: dict[str, tuple[int, onnx.NodeProto, dict[str, Array]]] = {
    "axes to put in, not in order": (11, helper.make_node("Unsqueeze", ["c"], ["k"], axes=[1, 0]), {"c": np.ones(4)}),
    "axes to take out": (11, helper.make_node("Squeeze", ["c"], ["k"], axes=[-1, 0]), {"c": np.ones((1, 4, 1))}),
    "a softmax of all later axes": (11, helper.make_node("Softmax", ["c"], ["k"], axis=0), {"c": np.ones((3, 4))}),
    "a batch normalisation": (
        9,
        helper.make_node("BatchNormalization", ["c", "s", "s", "s", "s"], ["k"]),
        {"c": np.ones((1, 3, 4)), "s": np.full(3, 2.0)},
    ),
}


@pytest.mark.parametrize("case", OLD)
def test_operators_of_old_operator_sets_are_folded_as_they_were_then(case: str) -> None:
    opset, node, constants = OLD[case]
    weights = {name: array.astype(np.float32) for name, array in constants.items()}
    model = model_from([node, helper.make_node("Mul", ["x", "k"], ["y"])], X, weights, opset)
    check(model, X)
    assert [node.op for node in import_model(model).nodes] == ["multiply"]


def test_a_node_that_cannot_be_folded_is_left_to_the_graph() -> None:
    constants = {"c": np.ones((3, 4), np.float32), "pads": np.array([0, -1, 0, 1])}
    pad = helper.make_node("Pad", ["c", "pads"], ["k"])
    with pytest.raises(NodeError, match="Pad node 'k' cannot be computed by NumPy: index can't contain negative"):
        run_node(pad, constants, 13)
    model = model_from([pad, helper.make_node("Mul", ["x", "k"], ["y"])], X, constants)
    check(model, X)
    assert [node.op for node in import_model(model).nodes] == ["slice", "pad", "multiply"]


NODES = [
    helper.make_node("Det", ["c"], ["k"]),
    helper.make_node("Det", ["k"], ["m"]),
    helper.make_node("Mul", ["x", "m"], ["y"]),
]
CONSTANTS = {"c": np.ones((3, 4), np.float32)}


def make_model(nodes: list[onnx.NodeProto]) -> onnx.ModelProto:
    """A model without inference, which would see that the matrix is not square."""
    value = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, (3, 4))
    weights = [onnx.numpy_helper.from_array(array, name) for name, array in CONSTANTS.items()]
    graph = helper.make_graph(nodes, "g", [value], [helper.make_empty_tensor_value_info("y")], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)


def test_what_cannot_be_folded_and_is_no_operation_is_an_error_where_it_is_read() -> None:
    with pytest.raises(UnsupportedModelError, match="Det node 'k' cannot be computed by NumPy: "):
        import_model(make_model(NODES))
    unread = [*NODES[:2], helper.make_node("Relu", ["x"], ["y"])]
    assert [node.op for node in import_model(make_model(unread)).nodes] == ["relu"]
    wanted = [*NODES[:1], helper.make_node("Reshape", ["x", "k"], ["y"])]
    with pytest.raises(UnsupportedModelError, match="Det node 'k' cannot be computed by NumPy: "):
        import_model(make_model(wanted))


def test_infinities_in_sums_of_exponentials() -> None:
    inputs = {"x": np.array([[-np.inf, -np.inf], [-np.inf, 1.0], [np.inf, 1.0]], np.float32)}
    node = helper.make_node("ReduceLogSumExp", ["x"], ["y"], axes=[1])
    model = model_from([node], inputs)
    with np.errstate(divide="ignore"):
        np.testing.assert_allclose(evaluate_import(model, inputs)[0], [[-np.inf], [1.0], [np.inf]])
    np.testing.assert_allclose(runtime(model, inputs)[0], [[-np.inf], [1.0], [np.inf]])

"""ONNX models in 16-bit floats are imported as they are: every operator, and what the passes leave of the roundings."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from autotune.graph.evaluate import evaluate
from autotune.graph.frontends.onnx.float64 import evaluate_nodes
from autotune.graph.frontends.onnx.full_precision import in_float32, narrow_types
from autotune.graph.frontends.onnx.importer import HANDLERS, import_model
from autotune.graph.frontends.onnx.model import with_shapes
from autotune.graph.ir import Graph
from autotune.graph.partition import group_nodes
from autotune.graph.passes import OPTIONAL, PASSES, find_pass, optimise, same_graph, verify
from autotune.graph.views import locate
from search_space.dtypes import NARROW, numpy_dtype
from search_space.operators.estimates import STEP
from tests.autotune.graph.narrow_models import narrow_model, rounded_everywhere
from tests.autotune.graph.onnx_models import Array, model_from, runtime
from tests.autotune.graph.random_graphs import random_graph
from tests.autotune.graph.random_operators import random_feeds, random_model

DRAWS = 2
"""Draws of each operator in each type."""


def assert_rounded(actual: Array, expected: Array, dtype: str) -> None:
    """Asserts float32's results within two steps of the largest element, infinities and NaN at the same places."""
    ours, theirs = actual.astype(float), expected.astype(float)
    finite = np.isfinite(theirs)
    largest = float(np.abs(theirs[finite]).max(initial=1e-30))
    np.testing.assert_allclose(ours[finite], theirs[finite], atol=2 * STEP[dtype] * largest, rtol=0)
    np.testing.assert_array_equal(ours[~finite], theirs[~finite])


@pytest.mark.parametrize("op", sorted(HANDLERS))
def test_an_operator_rounds_what_float32_gives(op: str) -> None:
    for dtype in NARROW:
        for number in range(DRAWS):
            rng = np.random.default_rng([number, *op.encode()])
            drawn = random_model(rng, op)
            feeds = random_feeds(drawn, rng)
            model = with_shapes(narrow_model(drawn, dtype))
            kinds = {v.name: helper.tensor_dtype_to_np_dtype(v.type.tensor_type.elem_type) for v in model.graph.input}
            feeds = {name: array.astype(kinds[name]) for name, array in feeds.items()}
            wide = {n: a.astype(np.float32) if str(a.dtype) in NARROW else a for n, a in feeds.items()}
            wanted = runtime(in_float32(model), wide)
            graph = import_model(model)
            for form in (graph, optimise(graph)):
                values = evaluate(form, feeds)
                for name, theirs, value in zip(form.outputs, wanted, model.graph.output, strict=True):
                    if kind := value.type.tensor_type.elem_type:  # ONNX infers none for some functions
                        assert values[name].dtype == helper.tensor_dtype_to_np_dtype(kind)
                    assert_rounded(values[name], theirs, dtype)


def block(dtype: str) -> onnx.ModelProto:
    """Layer normalisation, a product with bias and gelu written out, a product, and a residual sum."""
    rng = np.random.default_rng(0)
    shapes = {"gamma": (16,), "beta": (16,), "w0": (16, 32), "b0": (32,), "w1": (32, 16), "b1": (16,)}
    weights = {name: (rng.standard_normal(shape) / 4).astype(np.float32) for name, shape in shapes.items()}
    weights |= {"root": np.array(2**0.5, np.float32), "one": np.ones((), np.float32), "half": np.array(0.5, np.float32)}
    steps = [
        ("LayerNormalization", ["x", "gamma", "beta"], "n"),
        *(("MatMul", ["n", "w0"], "p"), ("Add", ["p", "b0"], "q")),
        *(("Div", ["q", "root"], "r"), ("Erf", ["r"], "s"), ("Add", ["s", "one"], "t"), ("Mul", ["q", "t"], "u")),
        *(
            ("Mul", ["u", "half"], "v"),
            ("MatMul", ["v", "w1"], "o"),
            ("Add", ["o", "b1"], "k"),
            ("Add", ["x", "k"], "y"),
        ),
    ]
    nodes = [helper.make_node(op, names, [made]) for op, names, made in steps]
    model = model_from(nodes, {"x": np.zeros((2, 6, 16), np.float32)}, weights)
    return model if dtype == "float32" else with_shapes(narrow_model(model, dtype))


def kernels(graph: Graph) -> list[list[str]]:
    """Operations of each kernel."""
    return [[node.op for node in nodes] for nodes, nothing in group_nodes(graph, locate(graph)) if not nothing]


@pytest.mark.parametrize("dtype", NARROW)
def test_kernels_are_those_of_float32_and_round_once(dtype: str) -> None:
    graph = optimise(import_model(block(dtype)))
    assert kernels(graph) == [[*ops, "cast"] for ops in kernels(optimise(import_model(block("float32"))))]
    products = [node for node in graph.nodes if node.op == "matmul"]
    assert [{graph.type(name).dtype for name in node.inputs} for node in products] == [{dtype}, {dtype}]
    assert same_graph(optimise(graph), graph)


@pytest.mark.parametrize("dtype", NARROW)
def test_what_passes_remove_is_noise(dtype: str) -> None:
    model = block(dtype)
    x = np.random.default_rng(1).standard_normal((2, 6, 16)).astype(numpy_dtype(dtype))
    graph = import_model(model)
    (exact,) = runtime(in_float32(model), {"x": x.astype(np.float32)})
    for form in (graph, optimise(graph)):
        assert_rounded(evaluate(form, {"x": x})[form.outputs[0]], exact, dtype)
    assert_rounded(evaluate_nodes(model, {"x": x})["y"], exact, dtype)
    if dtype == "float16":
        assert_rounded(runtime(model, {"x": x})[0], exact, dtype)


def test_a_model_says_its_types() -> None:
    assert narrow_types(block("float32")) == () and narrow_types(block("float16")) == ("float16",)
    assert narrow_types(in_float32(block("bfloat16"))) == ()


def test_parts_in_16_bits_run_as_such() -> None:
    """The layer is an export of `torch.autocast`: operands converted, product in bfloat16, its result converted."""
    weight = np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32)
    nodes = [
        helper.make_node("Cast", ["x"], ["a"], to=TensorProto.BFLOAT16),
        helper.make_node("Cast", ["w"], ["b"], to=TensorProto.BFLOAT16),
        helper.make_node("MatMul", ["a", "b"], ["c"]),
        helper.make_node("Cast", ["c"], ["d"], to=TensorProto.FLOAT),
        helper.make_node("Softmax", ["d"], ["e"]),
    ]
    graph = optimise(import_model(model_from(nodes, {"x": np.zeros((3, 8), np.float32)}, {"w": weight})))
    assert kernels(graph) == [["cast"], ["matmul", "cast"], ["softmax"]]
    (product,) = (node for node in graph.nodes if node.op == "matmul")
    assert {graph.type(name).dtype for name in product.inputs} == {"bfloat16"}
    assert graph.type(graph.outputs[0]).dtype == "float32"


def test_weights_of_16_bits_are_not_rounded_again() -> None:
    """Batch normalisation behind a layer ends its kernel, as a product with the weights would be rounded."""
    rng = np.random.default_rng(0)
    arrays = {name: rng.uniform(0.5, 1.5, 4).astype(np.float32) for name in ("scale", "shift", "mean", "variance")}
    weights = {"w": rng.standard_normal((4, 3, 3, 3)).astype(np.float32), **arrays}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("BatchNormalization", ["c", *arrays], ["y"]),
    ]
    model = with_shapes(narrow_model(model_from(nodes, {"x": np.zeros((1, 3, 6, 6), np.float32)}, weights), "bfloat16"))
    graph = optimise(import_model(model))
    assert ["conv2d", "affine", "cast"] in kernels(graph)


@pytest.mark.parametrize("dtype", NARROW)
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_passes_keep_types_and_move_outputs_by_few_steps(dtype: str, seed: int) -> None:
    graph = rounded_everywhere(random_graph(seed), dtype)
    rng = np.random.default_rng(seed)
    feeds = {name: rng.uniform(-1, 1, kind.shape).astype(numpy_dtype(dtype)) for name, kind in graph.inputs.items()}
    before = evaluate(graph, feeds)
    whole = optimise(graph)
    assert same_graph(optimise(whole), whole)
    for new in (whole, *(find_pass(name)(graph) for name in (*PASSES, *OPTIONAL))):
        verify(new)
        assert [new.type(name) for name in new.outputs] == [graph.type(name) for name in graph.outputs]
        after = evaluate(new, feeds)
        for name, old in zip(new.outputs, graph.outputs, strict=True):
            ours, theirs = after[name].astype(float), before[old].astype(float)
            most = 8 * STEP[dtype] * float(np.abs(theirs).max(initial=1, where=np.isfinite(theirs)))
            np.testing.assert_allclose(ours, theirs, atol=most)

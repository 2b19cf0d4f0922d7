"""Sums of products by an equation: NumPy's, the graph's form, and what is no equation."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from autotune.graph.frontends.onnx.importer import UnsupportedModelError, import_model
from autotune.graph.frontends.onnx.model import with_shapes
from tests.autotune.graph.onnx_models import assert_close, evaluate_import, make_model


@pytest.mark.parametrize(
    ("equation", "shapes", "operations"),
    [
        ("bhid,bhjd->bhij", [(2, 3, 4, 5), (2, 3, 6, 5)], ["batch_matmul"]),
        ("nkctv,kvw->nctw", [(2, 3, 4, 5, 6), (3, 6, 6)], ["matmul"]),
        ("bhwc,hkc->bhwk", [(2, 3, 4, 5), (3, 6, 5)], ["batch_matmul"]),
        ("oi,bis->bos", [(7, 3), (2, 3, 5)], ["matmul"]),
        ("bi,bi->b", [(2, 300), (2, 300)], ["multiply", "reduce"]),
        ("i,j->ij", [(3,), (4,)], ["multiply"]),
        ("i,i->", [(3,), (3,)], ["matmul"]),
        ("ii->i", [(4, 4)], ["slice"]),
        ("iijj->ij", [(2, 2, 3, 3)], ["slice", "slice"]),
        ("i...,ij...,...->j...", [(3, 2), (3, 4, 2), (2,)], ["batch_matmul", "multiply"]),
        ("ab,bc,cd", [(2, 3), (3, 4), (4, 5)], ["matmul", "matmul"]),
        ("ij,jk->ik", [(2, 1), (3, 4)], ["reduce", "multiply"]),
    ],
)
def test_an_equation_is_numpys(equation: str, shapes: list[tuple[int, ...]], operations: list[str]) -> None:
    rng = np.random.default_rng(0)
    inputs = {f"x{i}": rng.standard_normal(shape).astype(np.float32) for i, shape in enumerate(shapes)}
    model = make_model("Einsum", inputs, equation=equation)
    assert_close(evaluate_import(model, inputs), [np.einsum(equation, *inputs.values())])
    found = [node.op for node in import_model(model).nodes if node.op not in ("reshape", "transpose")]
    assert found == operations


def test_weights_are_on_the_right_of_products() -> None:
    inputs = {"x": np.ones((2, 3, 5), np.float32)}
    constants = {"w": np.ones((7, 3), np.float32)}
    model = make_model("Einsum", inputs, constants, equation="oi,bis->bos", order=["w", "x"])
    graph = import_model(model)
    (product,) = (node for node in graph.nodes if node.op == "matmul")
    assert graph.type(product.inputs[0]).shape == (10, 3)
    assert graph.type(product.inputs[1]).shape == (3, 7)


def test_whole_numbers_are_multiplied_and_added_up() -> None:
    inputs = {"x": np.arange(6, dtype=np.int32).reshape(2, 3), "y": np.arange(12, dtype=np.int32).reshape(3, 4)}
    model = make_model("Einsum", inputs, equation="ij,jk->ki")
    assert_close(evaluate_import(model, inputs), [(inputs["x"] @ inputs["y"]).T])


@pytest.mark.parametrize(
    ("equation", "rule"),
    [
        ("i1,jk->ik", "must have an equation of letters, but got equation='i1,jk->ik'"),
        ("i..j,jk->ik", "must have an equation of letters"),
        ("ij->i", "must have 1 inputs, but got 2"),
        ("ijl,jk->ik", r"must have an input for 'ijl', but got shape=\[2, 3\]"),
        ("ij,ik->jk", "must have one extent for 'i', but got 2 and 3"),
        ("ij,jk->iz", "must have an output whose letters are among those of its inputs"),
        ("ij,jk->ii", "must have distinct letters in its output"),
    ],
)
def test_bad_equations(equation: str, rule: str) -> None:
    node = helper.make_node("Einsum", ["x", "y"], ["z"], name="only", equation=equation)
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in (("x", (2, 3)), ("y", (3, 4)))
    ]
    output = helper.make_tensor_value_info("z", TensorProto.FLOAT, None)
    model = helper.make_model(helper.make_graph([node], "g", inputs, [output]), ir_version=8)
    model.opset_import[0].version = 17
    with pytest.raises(UnsupportedModelError, match=f"Einsum node 'only' {rule}"):
        import_model(model)
    if ".." in equation:  # ONNX's own inference does not end then, so that it must not be asked
        with pytest.raises(UnsupportedModelError, match=f"Einsum node 'only' {rule}"):
            with_shapes(model)

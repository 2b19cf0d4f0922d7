"""Every operator with random legal attributes: imported, folded and in float64, against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from autotune.graph.frontends.onnx.importer import HANDLERS
from autotune.graph.frontends.onnx.model import shapes, with_shapes
from autotune.graph.frontends.onnx.nodes import NodeError, run_node
from tests.autotune.graph.onnx_models import Array, assert_close, evaluate_import, runtime
from tests.autotune.graph.random_operators import GENERATORS, random_feeds, random_model

CASES = 5
"""Cases of each operator."""
TOLERANCE = 1e-4
"""ONNX Runtime's own error where a variance is 0, or a mean is the difference of large numbers."""

Case = tuple[onnx.ModelProto, dict[str, Array], list[Array]]


def draw_cases(op: str, count: int = CASES) -> Iterator[Case]:
    """Models, inputs, and what ONNX Runtime gives."""
    for number in range(count):
        rng = np.random.default_rng([number, *op.encode()])
        model = random_model(rng, op)
        feeds = random_feeds(model, rng)
        yield model, feeds, runtime(model, feeds)


def with_constants(model: onnx.ModelProto, feeds: dict[str, Array]) -> onnx.ModelProto:
    """The model whose inputs are initialisers."""
    out = onnx.ModelProto()
    out.CopyFrom(model)
    del out.graph.input[:]
    out.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in feeds.items())
    return out


def test_there_is_a_generator_of_every_operator() -> None:
    assert set(GENERATORS) == set(HANDLERS)


def test_draws_follow_from_the_generator_alone() -> None:
    first, second = (random_model(np.random.default_rng(3)) for _ in range(2))
    assert first == second
    operators = {random_model(np.random.default_rng(seed)).graph.node[0].op_type for seed in range(50)}
    assert len(operators) > 20


NEVER = {"If", "Loop", "Scan", "Scatter"}
"""Operators of which ONNX's evaluator computes nothing: graphs within nodes, and one that is out of date."""
REFUSED_OPERATORS = {"Pad", "Resize", "LSTM", "GRU", "RNN", *NEVER}
"""Operators of which it does not compute everything.

That is negative padding, aligned corners, negative axes, functions of recurrent layers and lengths of their sequences.
"""


@pytest.mark.parametrize("op", sorted(HANDLERS))
def test_an_operator_is_what_onnxruntime_computes(op: str) -> None:
    exact = 0
    for model, feeds, wanted in draw_cases(op):
        known = with_shapes(model)
        assert_close(evaluate_import(known, feeds), wanted, TOLERANCE, 1.0)
        assert_close(evaluate_import(with_shapes(with_constants(model, feeds)), {}), wanted, TOLERANCE, 1.0)
        found = shapes(known)
        for value, array in zip(known.graph.output, wanted, strict=True):
            assert found.get(value.name, array.shape) == array.shape
        exact += agrees_in_float64(model, feeds, wanted)
    assert exact >= CASES / 3 or op in NEVER


def agrees_in_float64(model: onnx.ModelProto, feeds: dict[str, Array], expected: list[Array]) -> bool:
    """Returns whether the node can be computed in float64; asserts that the result is then `expected`."""
    (node,) = model.graph.node
    values = feeds | {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    wide = {name: array.astype(float) if array.dtype == np.float32 else array for name, array in values.items()}
    try:
        found = list(run_node(node, wide, model.opset_import[0].version).values())
    except NodeError:
        assert node.op_type in REFUSED_OPERATORS
        return False
    narrow = [f.astype(w.dtype) if f.dtype == np.float64 else f for f, w in zip(found, expected, strict=True)]
    assert_close(narrow, expected, TOLERANCE, 1.0)
    return True

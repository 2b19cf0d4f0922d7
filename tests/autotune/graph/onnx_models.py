"""ONNX models of one operator, and the answers of other evaluators to hold an import against."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from autotune.graph.evaluate import evaluate
from autotune.graph.frontends.onnx.importer import import_model
from autotune.graph.frontends.onnx.model import with_shapes

Array = NDArray[Any]


def make_model(
    op: str,
    inputs: Mapping[str, Array],
    constants: Mapping[str, Array] | None = None,
    opset: int = 17,
    outputs: int = 1,
    order: Sequence[str] | None = None,
    **attributes: Any,
) -> onnx.ModelProto:
    """A model of one node that reads inputs and constants, in `order` (inputs first unless it is given)."""
    weights = dict(constants or {})
    names = list(order if order is not None else [*inputs, *weights])
    node = helper.make_node(op, names, [f"y{i}" for i in range(outputs)], name="only", **attributes)
    return model_from([node], inputs, weights, opset)


def model_from(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Array],
    constants: Mapping[str, Array] | None = None,
    opset: int = 17,
) -> onnx.ModelProto:
    """A model whose outputs are those of its last node; inputs have the shapes and dtypes of the arrays."""
    graph = helper.make_graph(
        list(nodes),
        "graph",
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for name, a in inputs.items()
        ],
        [helper.make_empty_tensor_value_info(name) for name in nodes[-1].output],
        [numpy_helper.from_array(a, name) for name, a in (constants or {}).items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    return with_shapes(model)


def evaluate_import(model: onnx.ModelProto, inputs: Mapping[str, Array]) -> list[Array]:
    """Outputs of the imported graph."""
    graph = import_model(model)
    values = evaluate(graph, inputs)
    return [values[name] for name in graph.outputs]


def reference(model: onnx.ModelProto, inputs: Mapping[str, Array]) -> list[Array]:
    """Outputs by ONNX's own evaluator."""
    found: Any = ReferenceEvaluator(model).run(None, dict(inputs))
    return [np.asarray(array) for array in found]


def runtime(model: onnx.ModelProto, inputs: Mapping[str, Array]) -> list[Array]:
    """Outputs by ONNX Runtime, on one thread."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    return [np.asarray(array) for array in session.run(None, dict(inputs))]


def assert_close(
    actual: Sequence[Array], expected: Sequence[Array], tolerance: float = 1e-5, least: float = 1e-30
) -> None:
    """Asserts equal shapes and dtypes, and differences below `tolerance` of the largest element, or of `least`."""
    assert len(actual) == len(expected)
    for ours, theirs in zip(actual, expected, strict=True):
        assert ours.shape == theirs.shape
        assert ours.dtype == theirs.dtype
        if theirs.size:
            scale = max(least, float(np.abs(theirs.astype(float)).max(initial=0)))
            np.testing.assert_allclose(ours.astype(float), theirs.astype(float), atol=tolerance * scale, rtol=0)


def check(model: onnx.ModelProto, inputs: Mapping[str, Array], tolerance: float = 1e-5, ort: bool = True) -> None:
    """The imported graph agrees with ONNX Runtime (or ONNX's evaluator)."""
    wanted = runtime(model, inputs) if ort else reference(model, inputs)
    assert_close(evaluate_import(model, inputs), wanted, tolerance)

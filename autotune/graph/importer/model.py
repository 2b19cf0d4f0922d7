"""A whole model, node by node; what depends on constants alone is computed at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

from autotune.graph.importer.registry import HANDLERS, Call, Context
from autotune.graph.importer.weights import with_weights
from autotune.graph.ir import Array, Builder, Graph, GraphError, TensorType
from autotune.graph.onnx_model import ModelError
from search_space.ir.expr import DTYPES

OPSETS = range(6, 26)
SHAPES = ("Shape", "Size")
"""Operators whose output is known where the shape of their input is."""
MOST_FOLDED = 1 << 22
"""Elements of a constant that is computed at import from fewer; larger ones are left to the graph."""


def import_model(model: onnx.ModelProto, seed: int = 0) -> Graph:
    """The graph of a model, of the same inputs and outputs.

    Args:
        model: with shapes inferred, as `load_model` gives it.
        seed: of the weights that the model does not carry, see `with_weights`.

    Raises:
        ModelError: an operator or operator set that is not supported; it is named.
    """
    opset = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 0)
    if opset not in OPSETS:
        raise ModelError(f"operator set of a model must be {OPSETS[0]} to {OPSETS[-1]}, but got opset={opset}")
    model = with_weights(model, seed)
    graph = model.graph
    arrays = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    inputs = {value.name: _type(value) for value in graph.input if value.name not in arrays}
    builder = Builder(graph.name or "network", inputs)
    context = Context(builder, {name: name for name in inputs}, arrays, opset)
    _check_operators(graph.node, arrays)
    for node in graph.node:
        _import(context, node)
    return builder.finish(context.value(value.name) for value in graph.output)


def _check_operators(nodes: Iterable[onnx.NodeProto], arrays: Mapping[str, Array]) -> None:
    known = {*arrays, ""}
    unsupported: list[onnx.NodeProto] = []
    for node in nodes:
        if node.op_type in SHAPES or (all(name in known for name in node.input) and _repeatable(node)):
            known.update(node.output)
        elif node.op_type not in HANDLERS or node.domain not in ("", "ai.onnx"):
            unsupported.append(node)
    if unsupported:
        first, names = unsupported[0], dict.fromkeys(n.op_type for n in unsupported)
        raise ModelError(
            f"operators of a model must be supported, but got {first.op_type} in node "
            f"{first.name or first.output[0]!r} (not supported here: {', '.join(names)})"
        )


def _repeatable(node: onnx.NodeProto) -> bool:
    return not node.op_type.startswith("Random") and node.op_type not in ("Bernoulli", "Multinomial")


def _foldable(node: onnx.NodeProto, arrays: Mapping[str, Array]) -> bool:
    return all(not name or name in arrays for name in node.input) and _repeatable(node)


def _import(context: Context, node: onnx.NodeProto) -> None:
    attrs = {item.name: onnx.helper.get_attribute_value(item) for item in node.attribute}
    call = Call(context, node.op_type, node.name or node.output[0], tuple(node.input), tuple(node.output), attrs)
    if node.op_type == "Shape" and node.input[0] not in context.arrays:
        shape = np.array(call.type(0).shape, np.int64)
        context.arrays[node.output[0]] = shape[attrs.get("start", 0) : attrs.get("end", len(shape))]
        return
    if node.op_type == "Size" and node.input[0] not in context.arrays:
        context.arrays[node.output[0]] = np.array(call.type(0).size, np.int64)
        return
    if _foldable(node, context.arrays) and _small(node, context.arrays):
        context.arrays.update(_folded(node, context))
        return
    try:
        found = HANDLERS[node.op_type](call)
    except GraphError as error:
        raise ModelError(f"{call.op} node {call.title!r} cannot be imported: {error}") from None
    values = [found] if isinstance(found, str) else list(found)
    context.values.update({name: value for name, value in zip(node.output, values, strict=False) if name})


def _small(node: onnx.NodeProto, arrays: Mapping[str, Array]) -> bool:
    return all(arrays[name].size <= MOST_FOLDED for name in node.input if name)


def _folded(node: onnx.NodeProto, context: Context) -> dict[str, Array]:
    """Outputs of a node of constants, by ONNX's own evaluator."""
    names = [name for name in node.input if name]
    inputs = [
        onnx.helper.make_tensor_value_info(n, onnx.helper.np_dtype_to_tensor_dtype(context.arrays[n].dtype), None)
        for n in names
    ]
    outputs = [onnx.helper.make_empty_tensor_value_info(name) for name in node.output if name]
    graph = onnx.helper.make_graph([node], "folded", inputs, outputs)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", context.opset)])
    found: Any = ReferenceEvaluator(model).run(None, {name: context.arrays[name] for name in names})
    return dict(zip([name for name in node.output if name], map(np.asarray, found), strict=True))


def _type(value: onnx.ValueInfoProto) -> TensorType:
    kind = value.type.tensor_type
    dtype = str(onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type))
    if dtype not in DTYPES:
        raise ModelError(f"inputs of a model must be of {', '.join(DTYPES)}, but got {value.name}: {dtype}")
    return TensorType(tuple(dim.dim_value for dim in kind.shape.dim), dtype)

"""A whole model, node by node; what depends on constants alone is computed at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import inliner, numpy_helper
from onnx.reference import ReferenceEvaluator

from autotune.graph.importer.registry import HANDLERS, Call, Context
from autotune.graph.importer.weights import with_weights
from autotune.graph.ir import Array, Builder, Graph, GraphError, TensorType
from autotune.graph.onnx_model import ModelError
from search_space.ir.expr import DTYPES

OPSETS = range(6, 29)
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
    model = _with_functions_expanded(with_weights(model, seed))
    graph = model.graph
    arrays = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    inputs = {value.name: _type(value) for value in graph.input if value.name not in arrays}
    builder = Builder(graph.name or "network", inputs)
    context = Context(builder, {name: name for name in inputs}, arrays, opset)
    for node in graph.node:
        _import(context, node)
    return builder.finish(context.value(value.name) for value in graph.output)


def _with_functions_expanded(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model in which operators without a handler are what ONNX defines them as, where that is known.

    Raises:
        ModelError: operators that are neither supported nor made of supported ones; they are named.
    """
    missing = _unsupported(model.graph)
    if not missing:
        return model
    names = list(dict.fromkeys((node.domain, node.op_type) for node in missing))
    expanded = inliner.inline_selected_functions(model, names, inline_schema_functions=True)
    if _unsupported(expanded.graph):
        first, shown = missing[0], ", ".join(dict.fromkeys(node.op_type for node in missing))
        raise ModelError(
            f"operators of a model must be supported, but got {first.op_type} in node "
            f"{first.name or first.output[0]!r} (not supported here: {shown})"
        )
    return expanded


def _unsupported(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    known = {*(tensor.name for tensor in graph.initializer), ""}
    unsupported: list[onnx.NodeProto] = []
    for node in graph.node:
        if node.op_type in SHAPES or (all(name in known for name in node.input) and _repeatable(node)):
            known.update(node.output)
        elif node.op_type not in HANDLERS or node.domain not in ("", "ai.onnx"):
            unsupported.append(node)
    return unsupported


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

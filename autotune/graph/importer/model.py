"""A whole model, node by node; what depends on constants alone is computed at once."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import numpy as np
import onnx
from onnx import inliner, numpy_helper

from autotune.graph.errors import ModelError
from autotune.graph.importer.registry import HANDLERS, Call, Context
from autotune.graph.importer.weights import with_weights
from autotune.graph.ir import Array, Builder, Graph, GraphError, TensorType
from autotune.graph.onnx_nodes import TYPED, NodeError, run_node
from search_space.dtypes import BITS, FLOATS, NARROW

_LOG = logging.getLogger(__name__)

OPSETS = range(6, 29)
SHAPES = ("Shape", "Size")
"""Operators whose output is known where the shape of their input is."""
MOST_FOLDED = 1 << 24
"""Elements of a constant that is computed at import from fewer; larger ones are left to the graph."""


def import_model(model: onnx.ModelProto, seed: int = 0) -> Graph:
    """The graph of a model, of the same inputs and outputs.

    Args:
        model: with shapes inferred, as `load_model` gives it.
        seed: of the weights that the model does not carry, see `with_weights`.

    Raises:
        ModelError: an operator or operator set that is not supported; it is named.
    """
    return import_with_types(model, seed)[0]


def import_with_types(model: onnx.ModelProto, seed: int = 0) -> tuple[Graph, dict[str, TensorType]]:
    """The same, and the types of the model's values by the names that they have there."""
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
    made = builder.finish(context.value(value.name) for value in graph.output)
    return made, {name: builder.type(value) for name, value in context.values.items()}


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
    handler = HANDLERS.get(node.op_type) if node.domain in ("", "ai.onnx") else None
    if _foldable(node, context.arrays) and (handler is None or _small(node, context.arrays)):
        try:
            context.arrays.update(run_node(node, context.arrays, context.opset))
            return
        except NodeError as error:
            _LOG.debug("not folded: %s", error)
            context.failed.update(dict.fromkeys(node.output, str(error)))
    if handler is None:  # what it gives stays unknown, and is an error where it is read
        reason = f"{call.op} node {call.title!r} is supported on known constants alone"
        reason = next((context.failed[n] for n in (*node.output, *node.input) if n in context.failed), reason)
        context.failed.update(dict.fromkeys(node.output, reason))
        return
    try:
        found = handler(call)
    except GraphError as error:
        raise ModelError(f"{call.op} node {call.title!r} cannot be imported: {error}") from None
    values = _rounded(call, [found] if isinstance(found, str) else list(found))
    context.values.update({name: value for name, value in zip(node.output, values, strict=False) if name})


def _rounded(call: Call, values: list[str]) -> list[str]:
    """Results of a node in the type that ONNX gives them: graphs compute 16-bit floats in float32.

    An operator's first floating-point input says the type; statistics of `LayerNormalization` are float32 throughout.
    """
    if call.op in TYPED:
        return values
    read = (call.type(i).dtype for i, name in enumerate(call.inputs) if call.context.is_known(name))
    dtype = next((dtype for dtype in read if dtype in FLOATS), "float32")
    rounded = values[:1] if call.op == "LayerNormalization" else values
    if dtype not in NARROW:
        return values
    kinds = [call.context.builder.type(value).dtype for value in rounded]
    made = [call.add("cast", [v], dtype=dtype) if k == "float32" else v for v, k in zip(rounded, kinds, strict=True)]
    return [*made, *values[len(made) :]]


def _small(node: onnx.NodeProto, arrays: Mapping[str, Array]) -> bool:
    return all(arrays[name].size <= MOST_FOLDED for name in node.input if name)


def _type(value: onnx.ValueInfoProto) -> TensorType:
    kind = value.type.tensor_type
    dtype = str(onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type))
    if dtype not in BITS:
        raise ModelError(f"inputs of a model must be of {', '.join(BITS)}, but got {value.name}: {dtype}")
    return TensorType(tuple(dim.dim_value for dim in kind.shape.dim), dtype)

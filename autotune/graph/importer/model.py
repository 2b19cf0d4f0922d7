"""A whole model: its functions, weights, inputs and outputs; its nodes are those of `nodes`."""

from __future__ import annotations

import onnx
from onnx import inliner

from autotune.graph.errors import ModelError
from autotune.graph.importer.functions import has_body
from autotune.graph.importer.nodes import SHAPES, import_nodes, repeatable
from autotune.graph.importer.registry import DEFAULT, Context, handler_of
from autotune.graph.importer.weights import with_weights
from autotune.graph.ir import Builder, Graph, TensorType
from autotune.graph.onnx_file import array_of
from autotune.graph.unrolling import LEAST_STEPS, unrolled
from search_space.dtypes import BITS

OPSETS = range(6, 29)
SHAPELESS = ("NonMaxSuppression", "NonZero", "Unique")
"""Operators of which shapes are known where elements are."""


def import_model(model: onnx.ModelProto, seed: int = 0, loops: bool = False) -> Graph:
    """The graph of a model, of the same inputs and outputs.

    Args:
        model: with shapes inferred, as `load_model` gives it.
        seed: of the weights that the model does not carry, see `with_weights`.
        loops: whether loops of `LEAST_STEPS` steps and more remain loops; otherwise each step is nodes of its own.

    Raises:
        ModelError: an operator or operator set that is not supported, which is named, or too many steps for nodes.
    """
    return unrolled(import_with_types(model, seed)[0], below=LEAST_STEPS if loops else None)


def import_with_types(model: onnx.ModelProto, seed: int = 0) -> tuple[Graph, dict[str, TensorType]]:
    """The same, and the types of the model's values by the names that they have there."""
    opset = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 0)
    if opset not in OPSETS:
        raise ModelError(f"operator set of a model must be {OPSETS[0]} to {OPSETS[-1]}, but got opset={opset}")
    model = _with_functions_expanded(with_weights(model, seed), opset)
    graph = model.graph
    arrays = {tensor.name: array_of(tensor) for tensor in graph.initializer}
    inputs = {value.name: _type(value) for value in graph.input if value.name not in arrays}
    builder = Builder(graph.name or "network", inputs, [value.name for value in graph.output])
    context = Context(builder, {name: name for name in inputs}, arrays, opset)
    import_nodes(context, graph.node)
    made = builder.finish(context.value(value.name) for value in graph.output)
    return made, {name: builder.type(value) for name, value in context.values.items()}


def _with_functions_expanded(model: onnx.ModelProto, opset: int) -> onnx.ModelProto:
    """The model in which its own functions are the nodes that they stand for.

    Raises:
        ModelError: operators that are neither supported nor made of supported ones; they are named.
    """
    names = [(function.domain, function.name) for function in model.functions]
    called = {(node.domain, node.op_type) for node in _unsupported(model.graph, opset)}
    if any(name in called for name in names):
        model = inliner.inline_local_functions(model)
    missing = _unsupported(model.graph, opset)
    if missing:
        if missing[0].op_type in SHAPELESS:
            raise ModelError(
                f"{missing[0].op_type} node {missing[0].name or missing[0].output[0]!r} must read constants, as its "
                f"elements say which shape the result has, but got {missing[0].input[0]}"
            )
        first, shown = missing[0], ", ".join(dict.fromkeys(node.op_type for node in missing))
        raise ModelError(
            f"operators of a model must be supported, but got {first.op_type} in node "
            f"{first.name or first.output[0]!r} (not supported here: {shown})"
        )
    return model


def _unsupported(graph: onnx.GraphProto, opset: int) -> list[onnx.NodeProto]:
    known = {*(tensor.name for tensor in graph.initializer), ""}
    unsupported: list[onnx.NodeProto] = []
    for node in graph.node:
        if node.op_type in SHAPES or (all(name in known for name in node.input) and repeatable(node)):
            known.update(node.output)
        elif handler_of(node) is None and (node.domain not in DEFAULT or not has_body(node, opset)):
            unsupported.append(node)
    return unsupported


def _type(value: onnx.ValueInfoProto) -> TensorType:
    kind = value.type.tensor_type
    dtype = str(onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type))
    if dtype not in BITS:
        raise ModelError(f"inputs of a model must be of {', '.join(BITS)}, but got {value.name}: {dtype}")
    return TensorType(tuple(dim.dim_value for dim in kind.shape.dim), dtype)

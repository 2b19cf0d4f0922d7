"""Import of whole models: functions, weights, inputs and outputs; `nodes` imports the nodes."""

from __future__ import annotations

from collections.abc import Sequence

import onnx

from autotune.graph.errors import UnsupportedModelError
from autotune.graph.frontends.onnx.file import element_type, read_array
from autotune.graph.frontends.onnx.importer.bodies import read_around
from autotune.graph.frontends.onnx.importer.functions import has_body
from autotune.graph.frontends.onnx.importer.nodes import SHAPELESS, SHAPES, import_nodes, refusal, repeatable
from autotune.graph.frontends.onnx.importer.registry import DEFAULT, ModelContext, find_handler
from autotune.graph.frontends.onnx.importer.weights import with_weights
from autotune.graph.ir import Graph, GraphBuilder, TensorType
from autotune.graph.limits import Budget
from autotune.graph.unrolling import LEAST_STEPS, unroll
from search_space.dtypes import BITS

OPSETS = range(6, 29)


def import_model(model: onnx.ModelProto, seed: int = 0, loops: bool = False) -> Graph:
    """Converts a model to a graph with the same inputs and outputs.

    Args:
        model: model with inferred shapes, as `load_model` returns it.
        seed: seed of weights that the model lacks, see `with_weights`.
        loops: whether loops of at least `LEAST_STEPS` steps stay loops; all others are unrolled.

    Raises:
        UnsupportedModelError: an operator or opset is not supported, which is named, or a loop has too many steps to
            unroll.
    """
    return unroll(import_with_types(model, seed)[0], below=LEAST_STEPS if loops else None)


def import_with_types(model: onnx.ModelProto, seed: int = 0) -> tuple[Graph, dict[str, TensorType]]:
    """Converts a model without unrolling; also returns the types of its values by their names in the model."""
    opset = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 0)
    if opset not in OPSETS:
        raise UnsupportedModelError(
            f"operator set of a model must be {OPSETS[0]} to {OPSETS[-1]}, but got opset={opset}"
        )
    model = with_weights(model, seed)
    graph = model.graph
    arrays = {tensor.name: read_array(tensor) for tensor in graph.initializer}
    inputs = {value.name: _type(value) for value in graph.input if value.name not in arrays}
    outputs = [value.name for value in graph.output]
    builder = GraphBuilder(graph.name or "network", inputs, outputs)
    functions = {(function.domain, function.name): function for function in model.functions}
    nodes = _live_nodes(graph)
    constants = sum(
        node.ByteSize() for node in nodes if node.op_type == "Constant"
    )  # some models have all weights there
    budget = Budget.of_weights(constants + sum(array.nbytes for array in arrays.values()))
    context = ModelContext(builder, {name: name for name in inputs}, arrays, opset, functions=functions, budget=budget)
    _check_supported(context, nodes)
    import_nodes(context, nodes)
    made = builder.finish(context.value(name) for name in outputs)
    return made, {name: builder.type(value) for name, value in context.values.items()}


def _live_nodes(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """Lists the nodes that an output depends on, in order."""
    read = {value.name for value in graph.output}
    live = []
    for node in reversed(graph.node):
        if read.intersection(node.output):
            live.append(node)
            read.update(node.input)
            read.update(name for item in node.attribute for g in (item.g, *item.graphs) for name in read_around(g))
    return live[::-1]


def _check_supported(context: ModelContext, nodes: Sequence[onnx.NodeProto]) -> None:
    """Rejects a model before its import, so that the message names all missing operators.

    Raises:
        UnsupportedModelError: operators are neither supported nor defined by supported ones; they are named.
    """
    constants = {*context.arrays, ""}
    missing: list[onnx.NodeProto] = []
    for node in nodes:
        if (node.domain, node.op_type) in context.functions:
            continue
        if node.op_type in SHAPES or (all(name in constants for name in node.input) and repeatable(node)):
            constants.update(node.output)
        elif find_handler(node) is None and (node.domain not in DEFAULT or not has_body(node, context.opset)):
            missing.append(node)
    if not missing:
        return
    first, shown = missing[0], ", ".join(dict.fromkeys(node.op_type for node in missing))
    more = "" if first.op_type in SHAPELESS else f" (not supported here: {shown})"
    raise UnsupportedModelError(refusal(first) + more)


def _type(value: onnx.ValueInfoProto) -> TensorType:
    kind = value.type.tensor_type
    dtype = str(element_type(kind.elem_type, value.name))
    if dtype not in BITS:
        raise UnsupportedModelError(f"inputs of a model must be of {', '.join(BITS)}, but got {value.name}: {dtype}")
    return TensorType(tuple(dim.dim_value for dim in kind.shape.dim), dtype)

"""Node by node from a model to a graph; what depends on constants alone is computed at once."""

from __future__ import annotations

import logging
from collections import ChainMap
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import onnx
from onnx import numpy_helper

from autotune.graph.errors import ModelError
from autotune.graph.importer.functions import body_of, has_body
from autotune.graph.importer.registry import DEFAULT, Call, Context, Result, handler_of
from autotune.graph.ir import Array, GraphError
from autotune.graph.onnx_nodes import TYPED, NodeError, run_node
from search_space.dtypes import FLOATS, NARROW

_LOG = logging.getLogger(__name__)

SHAPES = ("Shape", "Size")
"""Operators whose output is known where the shape of their input is."""
MOST_FOLDED = 1 << 24
"""Elements of a constant that is computed at import from fewer; larger ones are left to the graph."""


def import_nodes(context: Context, nodes: Iterable[onnx.NodeProto]) -> None:
    """Adds nodes to a graph, in order."""
    for node in nodes:
        import_node(context, node)


def import_node(context: Context, node: onnx.NodeProto) -> None:
    """Adds a node to a graph, or computes it.

    Raises:
        ModelError: it cannot be imported; the message names it.
    """
    attrs = {item.name: onnx.helper.get_attribute_value(item) for item in node.attribute}
    call = Call(context, node.op_type, node.name or node.output[0], tuple(node.input), tuple(node.output), attrs)
    if node.op_type == "Shape" and node.input[0] not in context.arrays:
        shape = np.array(call.type(0).shape, np.int64)
        context.arrays[node.output[0]] = shape[attrs.get("start", 0) : attrs.get("end", len(shape))]
        return
    if node.op_type == "Size" and node.input[0] not in context.arrays:
        context.arrays[node.output[0]] = np.array(call.type(0).size, np.int64)
        return
    handler = handler_of(node)
    if foldable(node, context.arrays) and (handler is None or _small(node, context.arrays)):
        try:
            context.arrays.update(run_node(node, context.arrays, context.opset))
            return
        except NodeError as error:
            _LOG.debug("not folded: %s", error)
            context.failed.update(dict.fromkeys(node.output, str(error)))
    if handler is None and node.domain in DEFAULT and has_body(node, context.opset) and _all_known(context, node):
        _import_body(call, node)
        return
    if handler is None:  # what it gives stays unknown, and is an error where it is read
        reason = f"{call.op} node {call.title!r} is supported on known constants alone"
        reason = next((context.failed[n] for n in (*node.output, *node.input) if n in context.failed), reason)
        context.failed.update(dict.fromkeys(node.output, reason))
        return
    try:
        found = handler(call)
    except GraphError as error:
        raise ModelError(f"{call.op} node {call.title!r} cannot be imported: {error}") from None
    results: list[Result] = [found] if isinstance(found, str) else list(found)
    for name, result in zip(node.output, _rounded(call, results), strict=False):
        if name:
            context.bind(name, result)


def _all_known(context: Context, node: onnx.NodeProto) -> bool:
    return all(not name or context.is_known(name) for name in node.input)


def _import_body(call: Call, node: onnx.NodeProto) -> None:
    """Adds what ONNX defines an operator as, in names of its own."""
    context = call.context
    types = [call.type(i) if call.has(i) else None for i in range(len(node.input))]
    function = body_of(node, context.opset, types)
    if function is None:
        raise ModelError(f"{call.op} node {call.title!r} must have a definition of its inputs, but there is none")
    opset = next((o.version for o in function.opset_import if o.domain in DEFAULT), context.opset)
    inner = Context(context.builder, {}, {}, opset, prefix=f"{context.prefix}{call.title}.")
    for name, given in zip(function.input, node.input, strict=False):
        if given:
            inner.bind(name, context.result(given))
    import_nodes(inner, function.node)
    for name, wanted in zip(function.output, node.output, strict=False):
        if wanted:
            context.bind(wanted, inner.result(name))


def import_subgraph(call: Call, graph: onnx.GraphProto, given: Sequence[Result]) -> list[Result]:
    """Adds the nodes of a node's own graph, which see what the node sees; its outputs.

    Args:
        call: of the node.
        graph: its own.
        given: inputs of that graph.
    """
    outer = call.context
    inner = Context(
        outer.builder,
        ChainMap({}, outer.values),
        ChainMap({}, outer.arrays),
        outer.opset,
        dict(outer.failed),
        f"{outer.prefix}{call.title}.",
    )
    inner.arrays.update({tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer})
    for value, result in zip(graph.input, given, strict=True):
        inner.bind(value.name, result)
    import_nodes(inner, graph.node)
    return [inner.result(value.name) for value in graph.output]


def repeatable(node: onnx.NodeProto) -> bool:
    """Whether a node gives the same every time."""
    return not node.op_type.startswith("Random") and node.op_type not in ("Bernoulli", "Multinomial")


def foldable(node: onnx.NodeProto, arrays: Mapping[str, Array]) -> bool:
    """Whether a node depends on constants alone."""
    return all(not name or name in arrays for name in node.input) and repeatable(node)


def _rounded(call: Call, results: list[Result]) -> list[Result]:
    """Results of a node in the type that ONNX gives them: graphs compute 16-bit floats in float32.

    An operator's first floating-point input says the type; statistics of `LayerNormalization` are float32 throughout.
    """
    if call.op in TYPED or any(isinstance(value, onnx.GraphProto) for value in call.attrs.values()):
        return results
    read = (call.type(i).dtype for i, name in enumerate(call.inputs) if call.context.is_known(name))
    dtype = next((dtype for dtype in read if dtype in FLOATS), "float32")
    if dtype not in NARROW:
        return results
    count = 1 if call.op == "LayerNormalization" else len(results)
    return [_narrowed(call, result, dtype) for result in results[:count]] + results[count:]


def _narrowed(call: Call, result: Result, dtype: str) -> Result:
    if not isinstance(result, str) or call.context.builder.type(result).dtype != "float32":
        return result
    return call.add("cast", [result], dtype=dtype)


def _small(node: onnx.NodeProto, arrays: Mapping[str, Array]) -> bool:
    return all(arrays[name].size <= MOST_FOLDED for name in node.input if name)

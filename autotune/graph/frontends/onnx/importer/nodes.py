"""Import of a model's nodes into a graph; nodes that depend on constants alone are evaluated at once."""

from __future__ import annotations

import logging
from collections import ChainMap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import onnx

from autotune.graph.calls import Call, Context, Result
from autotune.graph.errors import UnsupportedModelError
from autotune.graph.frontends.onnx.file import read_array
from autotune.graph.frontends.onnx.importer.functions import bound_node, expand_definition, has_body
from autotune.graph.frontends.onnx.importer.node_types import InferredType, check_types, infer_types
from autotune.graph.frontends.onnx.importer.registry import DEFAULT, ModelContext, find_handler, get_model_context
from autotune.graph.frontends.onnx.nodes import TYPED_OPS, NodeError, run_node
from autotune.graph.ir import Array, GraphError
from autotune.graph.limits import check_value
from search_space.dtypes import FLOATS, NARROW, numpy_dtype

_LOG = logging.getLogger(__name__)

SHAPES = ("Shape", "Size")
"""Operators whose output depends only on the shape of their input."""
SHAPELESS = ("NonMaxSuppression", "NonZero", "Unique")
"""Operators whose output shapes depend on elements."""
MOST_FOLDED = 1 << 24
"""Maximum elements of constants that are evaluated at import; nodes on larger ones stay in the graph."""


def import_nodes(context: ModelContext, nodes: Iterable[onnx.NodeProto]) -> None:
    """Adds nodes to a graph, in order."""
    for node in nodes:
        import_node(context, node)


def import_node(context: ModelContext, node: onnx.NodeProto) -> None:
    """Adds a node to a graph, or evaluates it.

    Raises:
        UnsupportedModelError: the node cannot be imported; the message names it.
    """
    attrs = {item.name: onnx.helper.get_attribute_value(item) for item in node.attribute}
    call = Call(context, node.op_type, node.name or node.output[0], tuple(node.input), tuple(node.output), attrs)
    title = f"{call.op} node {call.title!r}"
    context.budget.count_node(title)
    if node.op_type == "Shape" and node.input[0] not in context.arrays:
        shape = np.array(call.type(0).shape, np.int64)
        context.arrays[node.output[0]] = shape[attrs.get("start", 0) : attrs.get("end", len(shape))]
        return
    if node.op_type == "Size" and node.input[0] not in context.arrays:
        context.arrays[node.output[0]] = np.array(call.type(0).size, np.int64)
        return
    own = context.functions.get((node.domain, node.op_type))
    if own is not None and _all_known(context, node):
        _import_body(context, call, node, own)
        return
    fold = foldable(node, context.arrays)
    inferred = infer_types(context, node)
    for name, kind in ((name, each.full) for name, each in inferred.items()):
        if kind is not None and name:
            context.budget.take(title, kind) if fold else check_value(title, kind)
    if not _import_known(call, node, inferred, fold):
        _import_computed(context, call, node)
    check_types(context, node, title, inferred)


def _import_known(call: Call, node: onnx.NodeProto, inferred_types: Mapping[str, InferredType], fold: bool) -> bool:
    """Evaluates a node that depends on constants alone, or has no output elements; tells whether it did."""
    context = call.context
    kinds = {name: inferred_types[name].full if name in inferred_types else None for name in node.output if name}
    reads_nothing = any(name and call.type(i).size == 0 for i, name in enumerate(node.input) if context.is_known(name))
    may_give_nothing = reads_nothing or node.op_type == "Slice"
    if may_give_nothing and kinds and all(kind is not None and kind.size == 0 for kind in kinds.values()):
        context.arrays.update({n: np.zeros(k.shape, numpy_dtype(k.dtype)) for n, k in kinds.items() if k is not None})
        return True
    if not fold or not (find_handler(node) is None or _small(node, context.arrays)):
        return False
    try:
        context.arrays.update(run_node(node, context.arrays, context.opset))
        return True
    except NodeError as error:
        _LOG.debug("not folded: %s", error)
        context.failures.update(dict.fromkeys(node.output, str(error)))
    return False


def _import_computed(context: ModelContext, call: Call, node: onnx.NodeProto) -> None:
    """Adds a node that is computed at run time."""
    handler = find_handler(node)
    if handler is None and node.domain in DEFAULT and has_body(node, context.opset) and _all_known(context, node):
        types = [call.type(i) if call.has(i) else None for i in range(len(node.input))]
        function = expand_definition(node, context.opset, types)
        if function is None:
            raise UnsupportedModelError(
                f"{call.op} node {call.title!r} must have a definition of its inputs, but there is none"
            )
        _import_body(context, call, node, function)
        return
    if handler is None:  # its outputs stay unknown, which is an error only where they are read
        reason = next(
            (context.failures[n] for n in (*node.output, *node.input) if n in context.failures), refusal(node)
        )
        context.failures.update(dict.fromkeys(node.output, reason))
        return
    try:
        found = handler(call)
    except GraphError as error:
        raise UnsupportedModelError(f"{call.op} node {call.title!r} cannot be imported: {error}") from None
    results: list[Result | None] = [found] if isinstance(found, str) else list(found)
    for name, result in zip(node.output, _round_results(call, results), strict=False):
        if name and result is not None:
            context.bind(name, result)


def _all_known(context: Context, node: onnx.NodeProto) -> bool:
    return all(not name or context.is_known(name) for name in node.input)


def _import_body(context: ModelContext, call: Call, node: onnx.NodeProto, function: onnx.FunctionProto) -> None:
    """Adds the body of a function, defined by ONNX or by the model, with names of its own.

    Raises:
        UnsupportedModelError: the function calls itself.
    """
    key = (node.domain, node.op_type)
    if key in context.calling:
        raise UnsupportedModelError(
            f"functions of a model must not call themselves, but {call.op} node {call.title!r} does"
        )
    attributes = {item.name: item for item in function.attribute_proto} | {item.name: item for item in node.attribute}
    opset = next((o.version for o in function.opset_import if o.domain in DEFAULT), context.opset)
    prefix, calling = f"{context.prefix}{call.title}.", (*context.calling, key)
    inner = replace(context, values={}, arrays={}, opset=opset, failures={}, prefix=prefix, calling=calling)
    omitted = set(function.input)
    for name, outer in zip(function.input, node.input, strict=False):
        if outer:
            inner.bind(name, context.result(outer))
            omitted.remove(name)
    import_nodes(inner, (bound_node(each, attributes, omitted) for each in function.node))
    for name, wanted in zip(function.output, node.output, strict=False):
        if not wanted:
            continue
        if not inner.is_known(name) and name in inner.failures:  # an error only where it is read
            context.failures[wanted] = inner.failures[name]
        else:
            context.bind(wanted, inner.result(name))


def refusal(node: onnx.NodeProto) -> str:
    """Returns the reason why a node without an importer has no outputs."""
    title = repr(node.name or node.output[0])
    if node.op_type in SHAPELESS:
        return (
            f"{node.op_type} node {title} must read constants, as its elements say which shape the result has, "
            f"but got {node.input[0]}"
        )
    return f"operators of a model must be supported, but got {node.op_type} in node {title}"


def import_subgraph(call: Call, graph: onnx.GraphProto, inputs: Sequence[Result]) -> list[Result]:
    """Adds the nodes of a subgraph, which see the values around its node, and returns its outputs.

    Args:
        call: call of the node.
        graph: subgraph of the node.
        inputs: inputs of the subgraph.
    """
    outer = get_model_context(call)
    inner = replace(
        outer,
        values=ChainMap({}, outer.values),
        arrays=ChainMap({}, outer.arrays),
        failures=dict(outer.failures),
        prefix=f"{outer.prefix}{call.title}.",
    )
    inner.arrays.update({tensor.name: read_array(tensor) for tensor in graph.initializer})
    for value, result in zip(graph.input, inputs, strict=True):
        inner.bind(value.name, result)
    import_nodes(inner, graph.node)
    return [inner.result(value.name) for value in graph.output]


def repeatable(node: onnx.NodeProto) -> bool:
    """Tells whether a node is deterministic."""
    return not node.op_type.startswith("Random") and node.op_type not in ("Bernoulli", "Multinomial")


def foldable(node: onnx.NodeProto, arrays: Mapping[str, Array]) -> bool:
    """Tells whether a node is deterministic and depends on constants alone."""
    return all(not name or name in arrays for name in node.input) and repeatable(node)


def _round_results(call: Call, results: list[Result | None]) -> list[Result | None]:
    """Casts results of a node to ONNX's dtype: graphs compute 16-bit floats in float32.

    The operator's first floating-point input decides the dtype; statistics of `LayerNormalization` are always float32.
    """
    if call.op in TYPED_OPS or any(isinstance(value, onnx.GraphProto) for value in call.attrs.values()):
        return results
    read = (call.type(i).dtype for i, name in enumerate(call.inputs) if call.context.is_known(name))
    dtype = next((dtype for dtype in read if dtype in FLOATS), "float32")
    if dtype not in NARROW:
        return results
    count = 1 if call.op == "LayerNormalization" else len(results)
    return [_narrow(call, result, dtype) for result in results[:count]] + results[count:]


def _narrow(call: Call, result: Result | None, dtype: str) -> Result | None:
    if not isinstance(result, str) or call.context.builder.type(result).dtype != "float32":
        return result
    return call.add("cast", [result], dtype=dtype)


def _small(node: onnx.NodeProto, arrays: Mapping[str, Array]) -> bool:
    return all(arrays[name].size <= MOST_FOLDED for name in node.input if name)

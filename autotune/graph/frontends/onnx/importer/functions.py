"""Operators that ONNX defines as functions of others, expanded to their nodes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any

import onnx
from onnx import AttributeProto, FunctionProto, NodeProto, TypeProto, defs, helper

from autotune.graph.types import TensorType
from search_space.dtypes import numpy_dtype

Attributes = Mapping[str, AttributeProto]


@cache
def find_schema(op: str, domain: str, opset: int) -> Any:  # onnx's annotations lack the functions of schemas
    try:
        return defs.get_schema(op, opset, domain)
    except defs.SchemaError:
        return None


def has_body(node: NodeProto, opset: int) -> bool:
    """Tells whether ONNX defines the operator of a node by others."""
    schema = find_schema(node.op_type, node.domain, opset)
    return schema is not None and bool(schema.has_function or schema.has_context_dependent_function)


def expand_definition(node: NodeProto, opset: int, types: Sequence[TensorType | None]) -> FunctionProto | None:
    """Returns ONNX's definition of a node with its attributes inserted; None if ONNX defines no function.

    Args:
        node: node of the default domain.
        opset: version of that domain in the model.
        types: types of the node's inputs; None for omitted ones.
    """
    schema = find_schema(node.op_type, node.domain, opset)
    if schema is None:
        return None
    plain, dependent = schema.function_opset_versions, schema.context_dependent_function_opset_versions
    if plain:
        text = schema.get_function_with_opset_version(_newest(plain, opset))
    elif dependent:
        given = [type_proto(kind).SerializeToString() for kind in types]
        version = _newest(dependent, opset)
        text = schema.get_context_dependent_function_with_opset_version(version, node.SerializeToString(), given)
    else:
        return None
    function = FunctionProto()
    function.ParseFromString(text)
    attributes = {name: each.default_value for name, each in schema.attributes.items() if each.default_value.name}
    attributes |= {item.name: item for item in node.attribute}
    nodes = [bound_node(inner, attributes) for inner in function.node]
    del function.node[:]
    function.node.extend(nodes)
    return function


def _newest(versions: Sequence[int], opset: int) -> int:
    """Returns the newest version up to the opset, or the oldest one after it."""
    older = [version for version in versions if version <= opset]
    return max(older) if older else min(versions)


def bound_node(node: NodeProto, attributes: Attributes, omitted_inputs: Collection[str] = ()) -> NodeProto:
    """Copies a node of a function's body with the caller's attributes in place of references to them.

    Args:
        node: node, not modified.
        attributes: attributes of the caller, by name.
        omitted_inputs: inputs of the function that the caller omits; the copy omits them, too.
    """
    copied = NodeProto()
    copied.CopyFrom(node)
    _bind(copied, attributes, omitted_inputs)
    return copied


def _bind(node: NodeProto, attributes: Attributes, omitted_inputs: Collection[str]) -> None:
    """Replaces references to attributes by the caller's attributes in place; references without one are removed."""
    for place, name in enumerate(node.input):
        if name in omitted_inputs:
            node.input[place] = ""
    items = []
    for item in node.attribute:
        if item.ref_attr_name:
            if item.ref_attr_name in attributes:
                bound = AttributeProto()
                bound.CopyFrom(attributes[item.ref_attr_name])
                bound.name = item.name
                items.append(bound)
            continue
        for graph in (item.g, *item.graphs):
            for inner in graph.node:
                _bind(inner, attributes, omitted_inputs)
        items.append(item)
    kept = [AttributeProto.FromString(item.SerializeToString()) for item in items]
    del node.attribute[:]
    node.attribute.extend(kept)


@lru_cache(maxsize=4096)
def type_proto(kind: TensorType | None) -> TypeProto:
    """Returns a type as an ONNX message, which must not be modified; an empty one for None."""
    if kind is None:
        return TypeProto()
    found: onnx.TypeProto = helper.make_tensor_type_proto(
        helper.np_dtype_to_tensor_dtype(numpy_dtype(kind.dtype)), kind.shape
    )
    return found

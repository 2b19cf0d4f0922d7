"""Conversion of ONNX models with 16-bit floats to float32, which every runtime computes."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from search_space.dtypes import NARROW

NARROW_TYPES = {TensorProto.FLOAT16: "float16", TensorProto.BFLOAT16: "bfloat16"}
"""ONNX's numbers of the 16-bit floats → their names."""


def narrow_types(model: onnx.ModelProto) -> tuple[str, ...]:
    """Lists the 16-bit float dtypes of a model's values, sorted; types must have been inferred."""
    graph = model.graph
    kinds = {v.type.tensor_type.elem_type for v in (*graph.input, *graph.output, *graph.value_info)}
    kinds |= {tensor.data_type for tensor in graph.initializer}
    kinds |= {item.i for node in graph.node if node.op_type == "Cast" for item in node.attribute if item.name == "to"}
    return tuple(sorted(NARROW_TYPES[kind] for kind in kinds if kind in NARROW_TYPES))


def in_float32(model: onnx.ModelProto) -> onnx.ModelProto:
    """Copies a model with float32 in place of 16-bit floats: the same numbers, without any rounding."""
    out = onnx.ModelProto()
    out.CopyFrom(model)
    _widen_graph(out.graph)
    return out


def _widen_graph(graph: onnx.GraphProto) -> None:
    """Widens a graph and the graphs in its nodes in place."""
    for tensor in graph.initializer:
        _widen(tensor)
    for value in (*graph.input, *graph.output, *graph.value_info):
        if value.type.tensor_type.elem_type in NARROW_TYPES:
            value.type.tensor_type.elem_type = TensorProto.FLOAT
    for node in graph.node:
        for item in node.attribute:
            if item.type == onnx.AttributeProto.TENSOR:
                _widen(item.t)
            if node.op_type == "Cast" and item.name == "to" and item.i in NARROW_TYPES:
                item.i = TensorProto.FLOAT
            if item.type == onnx.AttributeProto.GRAPH:
                _widen_graph(item.g)


def _widen(tensor: onnx.TensorProto) -> None:
    array = numpy_helper.to_array(tensor) if tensor.data_type in NARROW_TYPES else None
    if array is not None:
        assert str(array.dtype) in NARROW
        tensor.CopyFrom(numpy_helper.from_array(array.astype(np.float32), tensor.name))

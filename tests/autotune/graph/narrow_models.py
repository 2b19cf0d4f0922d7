"""ONNX models and graphs in 16-bit floats, made of such in float32."""

from __future__ import annotations

import onnx
from onnx import TensorProto, helper, numpy_helper

from autotune.graph.ir import Graph, GraphBuilder, TensorType
from search_space.dtypes import numpy_dtype

FLOAT_OPERANDS = {"Resize": (1, 2), "Upsample": (1,)}
"""Operands that are float32 whatever the data are."""


def narrow_model(model: onnx.ModelProto, dtype: str) -> onnx.ModelProto:
    """The model with inputs, outputs and weights in `dtype` where they are float32."""
    out = onnx.ModelProto()
    out.CopyFrom(model)
    _narrow(out.graph, dtype)
    return out


def _narrow(graph: onnx.GraphProto, dtype: str) -> None:
    """Narrows a graph in place, with the graphs within its nodes."""
    kind = helper.np_dtype_to_tensor_dtype(numpy_dtype(dtype))
    for node in graph.node:
        for item in node.attribute:
            if item.type == onnx.AttributeProto.GRAPH:
                _narrow(item.g, dtype)
    operands = ((node, place) for node in graph.node for place in FLOAT_OPERANDS.get(node.op_type, ()))
    kept = {node.input[place] for node, place in operands if place < len(node.input)}
    for value in (*graph.input, *graph.output):
        if value.type.tensor_type.elem_type == TensorProto.FLOAT and value.name not in kept:
            value.type.tensor_type.elem_type = kind
    for tensor in graph.initializer:
        if tensor.data_type == TensorProto.FLOAT and tensor.name not in kept:
            array = numpy_helper.to_array(tensor).astype(numpy_dtype(dtype))
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    del graph.value_info[:]


def rounded_everywhere(graph: Graph, dtype: str) -> Graph:
    """The graph with inputs and constants in `dtype`, and a rounding behind each operation, as models are imported."""
    b = GraphBuilder(graph.name, {name: TensorType(kind.shape, dtype) for name, kind in graph.inputs.items()})
    names = {name: name for name in graph.inputs}
    names |= {n: b.constant(array.astype(numpy_dtype(dtype)), n) for n, array in graph.constants.items()}
    for node in graph.nodes:
        made = b.add(node.op, [names[name] for name in node.inputs], node.name, **node.attrs)
        names[node.name] = b.add("cast", [made], dtype=dtype) if b.type(made).dtype == "float32" else made
    return b.finish(dict.fromkeys(names[name] for name in graph.outputs))

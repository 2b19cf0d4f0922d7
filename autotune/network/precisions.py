"""What models and executables multiply, as results name it."""

from __future__ import annotations

import onnx
from onnx import TensorProto

from autotune.graph.precision import FULL
from autotune.network.load import Network
from autotune.titles import INT8

_QUANTISED = {"QuantizeLinear", "DynamicQuantizeLinear", "ConvInteger", "MatMulInteger", "QLinearConv", "QLinearMatMul"}
_NARROW = {TensorProto.BFLOAT16: "bfloat16", TensorProto.FLOAT16: "float16"}


def model_precision(model: onnx.ModelProto) -> str:
    """Of a model: int8 where it has quantised operators, else its 16-bit floats, or float32."""
    if any(node.op_type in _QUANTISED for node in model.graph.node):
        return INT8
    kinds = {tensor.data_type for tensor in model.graph.initializer}
    kinds |= {value.type.tensor_type.elem_type for value in model.graph.input}
    return " and ".join(sorted(name for kind, name in _NARROW.items() if kind in kinds)) or FULL


def own_precision(network: Network) -> str:
    """Of our executable of a network."""
    if network.accuracy is not None:
        return network.accuracy.stored
    on_bytes = network.imported is not None and network.imported.layers > 0
    return INT8 if on_bytes else network.precision

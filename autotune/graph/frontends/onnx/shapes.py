"""ONNX's shape inference without a model's large weights, as it copies its argument five times."""

from __future__ import annotations

import math
import re
from typing import Any

import onnx
from onnx import shape_inference

from autotune.graph.errors import UnsupportedModelError

SMALL = 1024
"""Maximum number of elements of weights that may determine shapes: extents, axes, scales."""


def infer_shapes(model: onnx.ModelProto, strict: bool = False) -> None:
    """Adds the shapes that ONNX infers to a model, with regard to small weights; large ones are not copied.

    Args:
        model: model to change; unchanged if an error is raised.
        strict: whether an operator that fails is an error; otherwise its outputs have no shape.

    Raises:
        UnsupportedModelError: an equation is invalid.
        onnx.shape_inference.InferenceError: shapes disagree, with `strict`.
        onnx.checker.ValidationError: the model is invalid.
    """
    _check_equations(model)
    light = onnx.ModelProto(**_fields(model, "graph"), graph=onnx.GraphProto(**_fields(model.graph, "initializer")))
    inputs = {value.name for value in model.graph.input}
    stated: list[str] = []
    for tensor in model.graph.initializer:
        if math.prod(tensor.dims) <= SMALL:
            light.graph.initializer.append(tensor)
        elif tensor.name not in inputs:
            stated.append(tensor.name)
            light.graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    inferred = shape_inference.infer_shapes(light, strict_mode=strict, data_prop=True)
    if stated:
        del inferred.graph.input[-len(stated) :]
    del inferred.graph.initializer[:]
    for name in _fields(model.graph, "initializer"):
        model.graph.ClearField(name)
    model.graph.MergeFrom(inferred.graph)


def infers_otherwise(node: onnx.NodeProto) -> bool:
    """Tells whether ONNX's inference may deviate from the operator's definition.

    It counts windows of pools that begin beyond the input. It adds `output_padding` to extents that `auto_pad` fixes,
    and treats `output_shape` as the shape of all dimensions. For `STFT` it always applies the default of all
    frequencies.
    """
    attrs = {item.name: item for item in node.attribute}
    if node.op_type in ("MaxPool", "AveragePool", "LpPool"):
        return "ceil_mode" in attrs and attrs["ceil_mode"].i != 0
    if node.op_type == "STFT":
        return "onesided" not in attrs
    same = "auto_pad" in attrs and attrs["auto_pad"].s.startswith(b"SAME")
    return node.op_type == "ConvTranspose" and (same or "output_shape" in attrs)


def is_equation(text: str) -> bool:
    """Tells whether a text is an equation of letters and ellipses, as `Einsum` accepts it."""
    text = text.replace(" ", "")
    dots = all(part.count(".") == 3 * part.count("...") <= 3 for part in re.split(",|->", text))
    return dots and re.fullmatch(r"[a-zA-Z.,]*(->[a-zA-Z.]*)?", text) is not None


def read_equation(node: onnx.NodeProto) -> str:
    """Returns the equation of an `Einsum` node; "" if it has no equation."""
    return next((item.s.decode(errors="replace") for item in node.attribute if item.name == "equation"), "")


def _check_equations(model: onnx.ModelProto) -> None:
    """Checks equations before ONNX's inference reads them, which may not terminate on invalid ones."""
    waiting: list[onnx.GraphProto | onnx.FunctionProto] = [model.graph, *model.functions]
    while waiting:
        for node in waiting.pop().node:
            if node.op_type == "Einsum" and not is_equation(read_equation(node)):
                title = node.name or (node.output[0] if node.output else "")
                raise UnsupportedModelError(
                    f"Einsum node {title!r} must have an equation of letters, but got equation={read_equation(node)!r}"
                )
            for item in node.attribute:
                waiting += [item.g] if item.type == onnx.AttributeProto.GRAPH else []
                waiting += item.graphs


def _fields(message: onnx.ModelProto | onnx.GraphProto, but: str) -> dict[str, Any]:
    """Returns the fields of a message that are set, by name, except one."""
    return {kind.name: value for kind, value in message.ListFields() if kind.name != but}

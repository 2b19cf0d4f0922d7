"""ONNX's shape inference of a model without its large weights: it copies what it is given five times."""

from __future__ import annotations

import math
import re
from typing import Any

import onnx
from onnx import shape_inference

from autotune.graph.errors import ModelError

SMALL = 1024
"""Elements up to which a weight may say something of a shape: extents, axes, scales."""


def infer_shapes(model: onnx.ModelProto, strict: bool = False) -> None:
    """Gives a model the shapes that ONNX infers, weights of small size taken into account; the others stay in place.

    Args:
        model: is changed; where an error is raised, it stays as it is.
        strict: an operator that fails is an error; otherwise its outputs have no shape.

    Raises:
        ModelError: an equation that is none.
        onnx.shape_inference.InferenceError: shapes that do not agree, with `strict`.
        onnx.checker.ValidationError: a model that is none.
    """
    _check_equations(model)
    light = onnx.ModelProto(**_fields(model, "graph"), graph=onnx.GraphProto(**_fields(model.graph, "initializer")))
    given = {value.name for value in model.graph.input}
    stated: list[str] = []
    for tensor in model.graph.initializer:
        if math.prod(tensor.dims) <= SMALL:
            light.graph.initializer.append(tensor)
        elif tensor.name not in given:
            stated.append(tensor.name)
            light.graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    found = shape_inference.infer_shapes(light, strict_mode=strict, data_prop=True)
    if stated:
        del found.graph.input[-len(stated) :]
    del found.graph.initializer[:]
    for name in _fields(model.graph, "initializer"):
        model.graph.ClearField(name)
    model.graph.MergeFrom(found.graph)


def infers_otherwise(node: onnx.NodeProto) -> bool:
    """Whether ONNX's inference may give another shape than the operator's definition.

    It counts windows of pools that begin beyond the input, adds `output_padding` to extents that `auto_pad` fixes, and
    takes an `output_shape` for that of all dimensions. Of `STFT` it takes the default for all frequencies.
    """
    attrs = {item.name: item for item in node.attribute}
    if node.op_type in ("MaxPool", "AveragePool", "LpPool"):
        return "ceil_mode" in attrs and attrs["ceil_mode"].i != 0
    if node.op_type == "STFT":
        return "onesided" not in attrs
    same = "auto_pad" in attrs and attrs["auto_pad"].s.startswith(b"SAME")
    return node.op_type == "ConvTranspose" and (same or "output_shape" in attrs)


def is_equation(text: str) -> bool:
    """Tells whether a text is an equation of letters and whole ellipses, as `Einsum` takes it."""
    text = text.replace(" ", "")
    dots = all(part.count(".") == 3 * part.count("...") <= 3 for part in re.split(",|->", text))
    return dots and re.fullmatch(r"[a-zA-Z.,]*(->[a-zA-Z.]*)?", text) is not None


def equation_of(node: onnx.NodeProto) -> str:
    """The equation of an `Einsum` node; "" where it states none."""
    return next((item.s.decode(errors="replace") for item in node.attribute if item.name == "equation"), "")


def _check_equations(model: onnx.ModelProto) -> None:
    """Checks equations before ONNX's inference reads them, which need not come to an end where one is none."""
    waiting: list[onnx.GraphProto | onnx.FunctionProto] = [model.graph, *model.functions]
    while waiting:
        for node in waiting.pop().node:
            if node.op_type == "Einsum" and not is_equation(equation_of(node)):
                title = node.name or (node.output[0] if node.output else "")
                raise ModelError(
                    f"Einsum node {title!r} must have an equation of letters, but got equation={equation_of(node)!r}"
                )
            for item in node.attribute:
                waiting += [item.g] if item.type == onnx.AttributeProto.GRAPH else []
                waiting += item.graphs


def _fields(message: onnx.ModelProto | onnx.GraphProto, but: str) -> dict[str, Any]:
    """The fields of a message that are set, by name, all but one."""
    return {kind.name: value for kind, value in message.ListFields() if kind.name != but}

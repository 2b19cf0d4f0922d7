"""Types of a node's outputs by ONNX's own inference, to check imported outputs against."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import onnx
from onnx import checker, helper, numpy_helper, shape_inference

from autotune.graph.calls import Context
from autotune.graph.errors import UnsupportedModelError
from autotune.graph.frontends.onnx.importer.functions import find_schema, type_proto
from autotune.graph.frontends.onnx.importer.registry import DEFAULT
from autotune.graph.frontends.onnx.shapes import SMALL, infers_otherwise, is_equation, read_equation
from autotune.graph.ir import Array, TensorType, array_type

_MOST_SCALES = 16
"""Maximum number of floats that may be scales of axes."""


@dataclass(frozen=True)
class InferredType:
    """ONNX's partial knowledge of an output's type.

    Attributes:
        dtype: dtype of its elements; "" if unknown, or for strings.
        extents: extents, None for unknown ones; None if the rank is unknown.
    """

    dtype: str
    extents: tuple[int | None, ...] | None

    @property
    def full(self) -> TensorType | None:
        """The type, if all of it is known."""
        if not self.dtype or self.extents is None:
            return None
        known = tuple(extent for extent in self.extents if extent is not None)
        return TensorType(known, self.dtype) if len(known) == len(self.extents) else None

    def agrees(self, kind: TensorType) -> bool:
        """Tells whether a type is compatible with the inferred one."""
        if self.dtype and self.dtype != kind.dtype:
            return False
        if self.extents is None:
            return True
        pairs = zip(self.extents, kind.shape, strict=False)
        return len(self.extents) == len(kind.shape) and all(mine in (None, theirs) for mine, theirs in pairs)

    def __str__(self) -> str:
        shape = "..." if self.extents is None else ",".join("?" if n is None else str(n) for n in self.extents)
        return f"{self.dtype or 'any'}[{shape}]"


def infer_types(context: Context, node: onnx.NodeProto) -> Mapping[str, InferredType]:
    """Infers the types of a node's outputs by name; empty if ONNX does not know its operator or inputs.

    Constant elements of small inputs take part, such as the shape of a `Reshape`.

    Args:
        context: context that knows the node's inputs.
        node: node that is not imported yet.
    """
    schema = find_schema(node.op_type, "", context.opset) if node.domain in DEFAULT else None
    inner = any(item.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS) for item in node.attribute)
    if (
        schema is None
        or inner
        or node.op_type == "Constant"
        or (node.op_type == "Einsum" and not is_equation(read_equation(node)))
        or not all(not name or context.is_known(name) for name in node.input)
    ):
        return {}
    small = {name: context.arrays[name] for name in node.input if name in context.arrays}
    small = {name: array for name, array in small.items() if _says_of_shapes(array)}
    if node.op_type == "Range":  # its inputs are vectors of one element in many models
        small = {name: array.reshape(()) if array.size == 1 else array for name, array in small.items()}
        if counted := _range(node, list(small.values())):
            return counted
    kinds = {
        name: array_type(small[name]) if name in small else _known_type(context, name) for name in node.input if name
    }
    types = {name: type_proto(kind) for name, kind in kinds.items()}
    data = {name: numpy_helper.from_array(array, name) for name, array in small.items()}
    opsets = [helper.make_opsetid("", context.opset)]
    try:
        outputs = shape_inference.infer_node_outputs(schema, node, types, data, {}, opsets)
    except (shape_inference.InferenceError, checker.ValidationError):
        # The importers give better messages, and accept some nodes that ONNX's inference does not.
        return {}
    return {name: _read_type(kind) for name, kind in outputs.items() if kind.HasField("tensor_type")}


def check_types(context: Context, node: onnx.NodeProto, title: str, inferred_types: Mapping[str, InferredType]) -> None:
    """Checks the imported outputs of a node against the types that ONNX infers.

    Raises:
        UnsupportedModelError: an output has another type.
    """
    shapes = not infers_otherwise(node)
    for name, kind in _list_imported(context, node):
        wanted = inferred_types.get(name)
        if wanted is None:
            continue
        if not (wanted if shapes else InferredType(wanted.dtype, None)).agrees(kind):
            raise UnsupportedModelError(
                f"output {name!r} of {title} must be {wanted}, as ONNX infers, but was imported as {kind}"
            )


def _says_of_shapes(array: Array) -> bool:
    """Tells whether an array is small enough to hold extents, axes or, if floats, scales."""
    return array.size <= (SMALL if array.dtype.kind in "iu" else _MOST_SCALES)


def _range(node: onnx.NodeProto, ends: Sequence[Array]) -> Mapping[str, InferredType]:
    """Returns the type of a `Range` of constants with so many numbers that ONNX may not infer it."""
    start, limit, delta = (each.reshape(-1)[:1].astype(float).sum() for each in ends) if len(ends) == 3 else (0, 0, 0)
    count = (limit - start) / delta if delta else math.nan
    if not math.isfinite(count) or count < 1 << 31:  # ONNX infers these, rounded as in runtimes
        return {}
    return {node.output[0]: InferredType(str(ends[0].dtype), (max(0, math.ceil(count)),))}


def _list_imported(context: Context, node: onnx.NodeProto) -> Iterator[tuple[str, TensorType]]:
    for name in node.output:
        if name and context.is_known(name):
            yield name, _known_type(context, name)


def _known_type(context: Context, name: str) -> TensorType:
    """Returns the type of a value without adding a constant to the graph."""
    return array_type(context.arrays[name]) if name in context.arrays else context.builder.type(context.values[name])


def _read_type(kind: onnx.TypeProto) -> InferredType:
    tensor = kind.tensor_type
    dtype = str(helper.tensor_dtype_to_np_dtype(tensor.elem_type)) if tensor.elem_type else ""
    dtype = "" if dtype == "object" else dtype  # NumPy has types of its own for strings
    if not tensor.HasField("shape"):
        return InferredType(dtype, None)
    extents = tuple(dim.dim_value if dim.HasField("dim_value") else None for dim in tensor.shape.dim)
    return InferredType(dtype, extents)

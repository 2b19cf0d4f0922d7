"""ONNX models into graphs: node by node, what is constant computed on the way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import RuntimeContextError, RuntimeImplementationError

from autotune.graph.importer import elementwise, normalisation, products, reductions, resize, shapes, windows
from autotune.graph.importer.call import Call, Unsupported
from autotune.graph.importer.naming import named
from autotune.graph.importer.registry import IMPORTERS, supported
from autotune.graph.importer.weights import seeded
from autotune.graph.ir import Array, Builder, Graph, TensorType
from autotune.graph.onnx_model import ModelError, load_model
from search_space.ir.expr import DTYPES
from search_space.ir.interp import numpy_dtype
from search_space.operators.checks import nearest

__all__ = ["elementwise", "import_model", "normalisation", "products", "reductions", "resize", "shapes", "windows"]

OLDEST_OPSET = 6
_DEFAULT = ("", "ai.onnx")


def import_model(
    model: onnx.ModelProto | str | PathLike[str],
    seed: int = 0,
    shapes: Mapping[str, Sequence[int]] | None = None,
) -> Graph:
    """A model as a graph; values that an ONNX node gives keep their names.

    Convolutions and pools are computed channels-last between transpositions. What depends on constants and shapes
    only is computed here.

    Args:
        model: itself, the path of an .onnx file, or the name of a network that `load_model` knows.
        seed: of the weights of models that carry none; see `weights.seeded`.
        shapes: of inputs whose dimensions the model leaves open.

    Raises:
        ModelError: a file that is none, dimensions left open, or an operator, opset or attribute that graphs do not
            have; the message names the node.
    """
    loaded = load_model(model, shapes)
    opset = _opset(loaded)
    graph = loaded.graph
    known = {tensor.name: _array(tensor) for tensor in graph.initializer} | seeded(loaded, seed)
    inputs = {value.name: _input_type(value) for value in graph.input if value.name not in known}
    builder = Builder(graph.name or "model", inputs)
    values = {name: name for name in inputs}
    placed: dict[str, str] = {}
    missing: set[str] = set()
    for proto in graph.node:
        if all(name in known for name in proto.output):
            continue  # a weight that was seeded
        _check(proto, values, known, missing)
        folded = _folded(proto, opset, values, known, builder)
        if folded is not None:
            known.update(folded)
            continue
        results = _call(proto, Call(builder, proto, opset, values, known, placed))
        for name, value in zip(proto.output, results, strict=False):
            if isinstance(value, str) and name:
                values[name] = value
            elif value is not None and name:
                known[name] = np.asarray(value)
        missing |= {name for name in proto.output if name and name not in values and name not in known}
    outputs = [value.name for value in graph.output]
    if lost := [name for name in outputs if name in missing]:
        raise Unsupported(f"outputs of `model` must be values that graphs have, but got {lost[0]!r}, an optional one")
    return named(builder.finish(()), values, known, outputs)


def _opset(model: onnx.ModelProto) -> int:
    versions = [entry.version for entry in model.opset_import if entry.domain in _DEFAULT]
    newest = onnx.defs.onnx_opset_version()
    if not versions or not OLDEST_OPSET <= versions[0] <= newest:
        got = versions[0] if versions else "none"
        raise ModelError(f"opset of `model` must be between {OLDEST_OPSET} and {newest}, but got opset={got}")
    return int(versions[0])


def _array(tensor: onnx.TensorProto) -> Array:
    array: Array = numpy_helper.to_array(tensor)
    return array


def _input_type(value: onnx.ValueInfoProto) -> TensorType:
    tensor = value.type.tensor_type
    kind = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type) if tensor.elem_type else np.dtype(object)
    if str(kind) not in DTYPES:
        raise ModelError(f"inputs of `model` must be of {', '.join(DTYPES)}, but got {value.name}: {kind}")
    return TensorType(tuple(dim.dim_value for dim in tensor.shape.dim), str(kind))


def _check(proto: onnx.NodeProto, values: Mapping[str, str], known: Mapping[str, Array], missing: set[str]) -> None:
    title = f"{proto.op_type} node {proto.name or next(iter(proto.output), '')!r}"
    for name in proto.input:
        if name in missing:
            raise Unsupported(f"{title} must read outputs that graphs have, but got {name!r}, an optional one")
        if name and name not in values and name not in known:
            raise ModelError(f"{title} must read values that stand before it, but got {name!r}")


def _folded(
    proto: onnx.NodeProto, opset: int, values: Mapping[str, str], known: Mapping[str, Array], builder: Builder
) -> dict[str, Array] | None:
    """The outputs of a node that depends on constants and shapes only, else None."""
    if proto.domain not in _DEFAULT:
        return None
    if proto.op_type in ("Shape", "Size") and proto.input[0] in values:
        shape = np.array(builder.type(values[proto.input[0]]).shape, np.int64)
        if proto.op_type == "Size":
            return {proto.output[0]: np.array(shape.prod())}
        ends = {a.name: a.i for a in proto.attribute}
        return {proto.output[0]: shape[ends.get("start", 0) : ends.get("end", len(shape))]}
    if proto.op_type == "CastLike" and proto.input[0] in known and proto.input[1] in values:
        kind = builder.type(values[proto.input[1]])
        return {proto.output[0]: known[proto.input[0]].astype(numpy_dtype(kind.dtype))}
    if not all(name in known for name in proto.input if name):
        return None
    if proto.op_type.startswith("Random") or proto.op_type in ("Bernoulli", "Multinomial"):
        return None
    feeds = {name: known[name] for name in proto.input if name}
    axes = next((tuple(a.ints) for a in proto.attribute if a.name == "axes"), None)
    if proto.op_type in ("Squeeze", "Unsqueeze") and axes:  # ONNX's reference of the old form fails on it
        move = np.squeeze if proto.op_type == "Squeeze" else np.expand_dims
        return {proto.output[0]: np.asarray(move(feeds[proto.input[0]], axes))}
    try:
        with np.errstate(all="ignore"):
            results = ReferenceEvaluator(proto, opsets={"": opset}).run(None, feeds)
    except (RuntimeImplementationError, RuntimeContextError, NotImplementedError):
        return None  # ONNX has no reference for it: it becomes a node that reads constants
    return {name: np.asarray(array) for name, array in zip(proto.output, results, strict=False) if name}


def _call(proto: onnx.NodeProto, call: Call) -> Sequence[str | Array | None]:
    importer = IMPORTERS.get(proto.op_type) if proto.domain in _DEFAULT else None
    if importer is None:
        shown = proto.op_type if proto.domain in _DEFAULT else f"{proto.domain}.{proto.op_type}"
        title = proto.name or next(iter(proto.output), "")
        raise Unsupported(
            f"operators of `model` must be among the {len(supported())} that graphs have, "
            f"but got {shown} (node {title!r}){nearest(shown, supported())}"
        )
    results = importer(call)
    return [results] if isinstance(results, str | np.ndarray) else results

"""Reads ONNX models by path, or by names of the `onnx` package's and our own, and infers every shape."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING

import onnx
from google.protobuf.message import DecodeError
from onnx import checker, shape_inference

from autotune.graph.errors import UnsupportedModelError
from autotune.graph.frontends.onnx.file import check_weights, element_type, read_without_weights
from autotune.graph.frontends.onnx.importer import import_with_types
from autotune.graph.frontends.onnx.importer.nbits import MICROSOFT
from autotune.graph.frontends.onnx.shapes import infer_shapes, infers_otherwise
from autotune.graph.frontends.onnx.sparse import make_dense
from autotune.graph.import_path import is_import_path
from autotune.graph.ir import TensorType
from autotune.graph.zoo import BUILDERS
from search_space.dtypes import numpy_dtype
from search_space.former_names import former_attributes

__all__ = ["ZOO", "UnsupportedModelError", "with_shapes", "load_model", "model_path", "shapes"]

ZOO = {
    "alexnet": "bvlc_alexnet",
    "densenet121": "densenet121",
    "inception_v1": "inception_v1",
    "inception_v2": "inception_v2",
    "resnet50": "resnet50",
    "shufflenet": "shufflenet",
    "squeezenet": "squeezenet",
    "vgg19": "vgg19",
    "zfnet512": "zfnet512",
}
"""Name of a network → its model-zoo graph in the `onnx` package, whose weights are constant."""


def model_path(name_or_path: str | PathLike[str]) -> Path:
    """Returns the file of a model.

    Raises:
        UnsupportedModelError: the text is neither a known name nor an existing file.
    """
    text = fspath(name_or_path)
    if text in ZOO:
        return Path(onnx.__file__).parent / "backend" / "test" / "data" / "light" / f"light_{ZOO[text]}.onnx"
    path = Path(text).expanduser()
    if path.is_file():
        return path
    if not path.exists() and (path.suffix == ".onnx" or len(path.parts) > 1):
        raise UnsupportedModelError(f"`model` must be an existing file, but there is none at {text!r}")
    names = [*ZOO, *BUILDERS]
    near = difflib.get_close_matches(text, names, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise UnsupportedModelError(
        f"`model` must be one of {', '.join(names)}, the path of an .onnx file, "
        f"or package.module:function of a PyTorch module, but got model={text!r}{hint}"
    )


def load_model(
    name_or_path: str | PathLike[str], shapes: Mapping[str, Sequence[int]] | None = None, weights: bool = True
) -> onnx.ModelProto:
    """Reads a model and infers the shape of every value in it.

    Args:
        name_or_path: a name of `ZOO` or of `zoo.BUILDERS`, or the path of an .onnx file.
        shapes: shapes of inputs whose dimensions the model leaves open.
        weights: whether the model has all of its weights; otherwise large ones may stay in the file, where the importer
            reads them, see `onnx.file`.

    Raises:
        UnsupportedModelError: the name is unknown, the file is not a complete ONNX model, or inputs have dynamic
            shapes.
    """
    if fspath(name_or_path) in BUILDERS:
        return _infer_in_place(BUILDERS[fspath(name_or_path)](), shapes, fspath(name_or_path))
    if is_import_path(fspath(name_or_path)) and not Path(name_or_path).is_file():
        raise UnsupportedModelError(
            "`load_model` must be given a model of ONNX, as modules of PyTorch are read by "
            f"`autotune.graph.frontends.aten.import_exported`, but got model={fspath(name_or_path)!r}"
        )
    path = model_path(name_or_path)
    try:
        model = (None if weights else read_without_weights(path)) or onnx.load(path)
    except (DecodeError, OSError, ValueError, checker.ValidationError) as error:
        raise UnsupportedModelError(
            f"`model` must be a complete ONNX file, but got model={str(path)!r}: {_first_line(error)}"
        ) from error
    if not model.graph.node or not model.opset_import:
        raise UnsupportedModelError(
            f"`model` must be an ONNX graph with nodes, but got model={str(path)!r}, which holds none"
        )
    for number, node in enumerate(model.graph.node):  # strings of damaged files may be bytes
        if not node.output or not all(isinstance(text, str) for text in (node.op_type, node.domain, *node.output)):
            raise UnsupportedModelError(
                f"nodes of `model` must have an operator and an output, but got number {number} of model={str(path)!r}"
            )
    return _infer_in_place(model, shapes, str(path))


def with_shapes(
    model: onnx.ModelProto, shapes: Mapping[str, Sequence[int]] | None = None, title: str = "a ModelProto"
) -> onnx.ModelProto:
    """Copies a model and infers every shape.

    Args:
        model: model, not modified.
        shapes: shapes of inputs whose dimensions the model leaves open.
        title: name of the model in messages.

    Raises:
        UnsupportedModelError: inputs have dynamic shapes, or shapes disagree.
    """
    given = onnx.ModelProto()
    given.CopyFrom(model)
    return _infer_in_place(given, shapes, title)


def _infer_in_place(model: onnx.ModelProto, shapes: Mapping[str, Sequence[int]] | None, title: str) -> onnx.ModelProto:
    """Infers every shape of a model in place, so that its weights need no copy."""
    check_weights(model)
    make_dense(model.graph)
    _import_contributed(model)
    _open_negative_dimensions(model.graph)
    _give_shapes(model.graph, shapes or {})
    _check_inputs(model.graph)
    if any(map(infers_otherwise, model.graph.node)):
        found = _with_shapes_by_definition(model, title)
        if found is not None:
            return found
    try:
        infer_shapes(model, strict=True)
    except (shape_inference.InferenceError, checker.ValidationError) as error:
        raise UnsupportedModelError(
            f"`model` must be a graph whose shapes agree, but got model={title!r}: {_first_line(error)}"
        ) from error
    return model


def _import_contributed(model: onnx.ModelProto) -> None:
    """Imports version 1 of ONNX Runtime's own domain if nodes use it and the model does not import it.

    ONNX Runtime accepts such models, and its weight quantisers write them.
    """
    if any(item.domain == MICROSOFT for item in model.opset_import):
        return
    graphs = [model.graph]
    while graphs:
        graph = graphs.pop()
        if any(node.domain == MICROSOFT for node in graph.node):
            model.opset_import.add(domain=MICROSOFT, version=1)
            return
        parts = [attribute for node in graph.node for attribute in node.attribute]
        graphs += [inner for part in parts for inner in (*([part.g] if part.HasField("g") else []), *part.graphs)]


def _with_shapes_by_definition(model: onnx.ModelProto, title: str) -> onnx.ModelProto | None:
    """Returns the model with the shapes of the graph imported from it; None if it cannot be imported.

    Raises:
        UnsupportedModelError: a stated shape is neither the graph's nor the one that ONNX infers.
    """
    bare = onnx.ModelProto()
    bare.CopyFrom(model)
    del bare.graph.value_info[:]
    for value in bare.graph.output:
        value.type.tensor_type.ClearField("shape")
    infer_shapes(bare)
    try:
        _, types = import_with_types(bare)
    except UnsupportedModelError:
        return None
    presumed = shapes(bare)
    for name, stated in shapes(model).items():
        if name in types and stated not in (types[name].shape, presumed.get(name)):
            raise UnsupportedModelError(
                f"`model` must be a graph whose shapes agree, but got model={title!r}: {name} is stated to be "
                f"{list(stated)} and is {list(types[name].shape)}"
            )
    inputs, outputs = ({value.name for value in values} for values in (bare.graph.input, bare.graph.output))
    unknown = [value for value in bare.graph.value_info if value.name not in types]
    del bare.graph.value_info[:]
    bare.graph.value_info.extend(unknown)
    bare.graph.value_info.extend(_value(name, types[name]) for name in types if name not in inputs | outputs)
    for value in bare.graph.output:
        if value.name in types:
            value.CopyFrom(_value(value.name, types[value.name]))
    return bare


def _value(name: str, kind: TensorType) -> onnx.ValueInfoProto:
    dtype = onnx.helper.np_dtype_to_tensor_dtype(numpy_dtype(kind.dtype))
    return onnx.helper.make_tensor_value_info(name, dtype, kind.shape)


def shapes(model: onnx.ModelProto) -> dict[str, tuple[int, ...]]:
    """Collects the static shapes of a model's values by name."""
    graph = model.graph
    shapes_by_name = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    for value in (*graph.input, *graph.output, *graph.value_info):
        if value.type.tensor_type.HasField("shape"):
            dims = value.type.tensor_type.shape.dim
            if all(dim.HasField("dim_value") for dim in dims):
                shapes_by_name.setdefault(value.name, tuple(dim.dim_value for dim in dims))
    return shapes_by_name


def _open_negative_dimensions(graph: onnx.GraphProto) -> None:
    """Opens dimensions below 0, by which some exporters mean any extent."""
    for value in (*graph.input, *graph.output, *graph.value_info):
        for dim in value.type.tensor_type.shape.dim:
            if dim.HasField("dim_value") and dim.dim_value < 0:
                dim.ClearField("dim_value")


def _give_shapes(graph: onnx.GraphProto, shapes: Mapping[str, Sequence[int]]) -> None:
    inputs = {value.name: value for value in graph.input}
    for name, shape in shapes.items():
        if name not in inputs:
            raise UnsupportedModelError(
                f"`shapes` must be of inputs of the model ({', '.join(inputs)}), but got {name!r}"
            )
        dims = inputs[name].type.tensor_type.shape.dim
        if len(dims) != len(shape):
            raise UnsupportedModelError(f"`shapes` of {name} must have {len(dims)} dimensions, but got {list(shape)}")
        for dim, extent in zip(dims, shape, strict=True):
            if dim.HasField("dim_value") and dim.dim_value not in (0, extent):
                raise UnsupportedModelError(f"`shapes` of {name} must agree with the model's, but got {list(shape)}")
            dim.dim_value = extent


def _check_inputs(graph: onnx.GraphProto) -> None:
    weights = {tensor.name for tensor in graph.initializer}
    for value in graph.input:
        if value.name in weights:
            continue
        element_type(value.type.tensor_type.elem_type, value.name)
        dims = value.type.tensor_type.shape.dim
        if any(not dim.HasField("dim_value") or dim.dim_value < 1 for dim in dims):
            shown = ", ".join(
                dim.dim_param or (str(dim.dim_value) if dim.HasField("dim_value") else "?") for dim in dims
            )
            raise UnsupportedModelError(
                f"inputs of `model` must have fixed positive dimensions, but got {value.name}=({shown}); "
                "`shapes` fixes dimensions, and `sizes` keeps them open within bounds"
            )


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


if not TYPE_CHECKING:
    __getattr__ = former_attributes(__name__, {"inferred": "with_shapes"})

"""ONNX files read without their large weights, which are read from the file once an array needs them.

`onnx.load` keeps a file's bytes, a copy in messages, and another copy for each array. This module scans the file for
the fields of its messages (https://protobuf.dev/programming-guides/encoding), and builds a message without the bytes of
large floats. Instead, it records their position, as ONNX does for weights in separate files. Large floats in such files
are left there, too.
"""

from __future__ import annotations

import math
import mmap
import os
import sys
from collections.abc import Container, Hashable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import TensorProto, checker, external_data_helper, helper, numpy_helper

from autotune.graph.errors import UnsupportedModelError
from autotune.graph.ir import Array

LEAST_BYTES = 1 << 16
"""Minimum bytes of weights that stay in the file; shapes are never computed from so many."""
_FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE)
_GRAPH, _INITIALIZER = 7, 5  # fields of a model, and of a graph
_RAW_DATA = 9  # field of a tensor
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_STAMP, _ALONE = "stamp", "alone"

_Field = tuple[int, int, int, int]
"""A field: its number, the offsets of its tag and payload, and its end."""


def read_without_weights(path: Path) -> onnx.ModelProto | None:
    """Reads a model without its large weights, which `read_array` reads later; returns None if the file prevents it.

    Raises:
        OSError: the file cannot be read.
    """
    if sys.byteorder != "little" or not path.stat().st_size:
        return None
    left: set[str] = set()
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        try:
            bare = b"".join(_model(data, str(path.resolve()), _stamp(path), left))
            model: onnx.ModelProto = onnx.ModelProto.FromString(bare)
            separate = _leave_in_files(model.graph, path, left)
        except (ValueError, IndexError, DecodeError, OSError, checker.ValidationError):
            return None  # a full read reports the error in the file
    tensors = [tensor for tensor in _tensors(model.graph) if tensor.data_location == TensorProto.EXTERNAL]
    if model.functions:
        return None
    for tensor in () if separate else tensors:
        tensor.external_data.add(key=_ALONE, value="1")
    return model


def is_of_one_file(model: onnx.ModelProto) -> bool:
    """Tells whether `read_without_weights` left weights in the model's own file, and no other file has weights."""
    return any(_ALONE in _entries(tensor) for tensor in model.graph.initializer)


def _leave_in_files(graph: onnx.GraphProto, path: Path, left: Container[str]) -> bool:
    """Leaves large floats in separate files, and reads all other tensors there; tells whether there are such files.

    Args:
        graph: graph of a model.
        path: file of the model, in whose folder the others are.
        left: offsets of the tensors that are left in the model's own file.

    Raises:
        ValueError, OSError, ValidationError: a tensor is not in a file of the folder.
    """
    folder, separate = path.resolve().parent, False
    for tensor in _tensors(graph):
        entries = _entries(tensor)
        own = entries.get("location") == str(path.resolve()) and entries.get("offset") in left
        if tensor.data_location != TensorProto.EXTERNAL or own:
            continue
        separate = True
        if tensor.data_type not in _FLOATS or _count_bytes(tensor) < LEAST_BYTES:
            external_data_helper.load_external_data_for_tensor(tensor, str(folder))
            continue
        file = folder / entries["location"]
        if file.resolve(strict=True) != file or folder not in file.parents or not file.is_file():
            raise ValueError(f"weights must be in files of the model's folder, but got {file}")
        offset = int(entries.get("offset", 0))
        length = int(entries.get("length", file.stat().st_size - offset))
        if min(offset, length) < 0 or offset + length > file.stat().st_size:
            raise ValueError(f"weights must be within their file, but got {length} bytes from {offset} of {file}")
        _record_position(tensor, str(file), offset, length, _stamp(file))
    return separate


def _count_bytes(tensor: TensorProto) -> int:
    nbytes: int = math.prod(tensor.dims) * element_type(tensor.data_type, tensor.name).itemsize
    return nbytes


def _record_position(tensor: TensorProto, path: str, offset: int, length: int, stamp: str) -> None:
    """Records where the elements of a tensor are."""
    tensor.data_location = TensorProto.EXTERNAL
    del tensor.external_data[:]
    for key, value in {"location": path, "offset": offset, "length": length, _STAMP: stamp}.items():
        tensor.external_data.add(key=key, value=str(value))


@contextmanager
def reading_once(arrays: dict[Hashable, Array]) -> Iterator[None]:
    """Makes `read_array` read each weight of a file once while a model is read several times.

    Args:
        arrays: arrays read so far, by position in the file.
    """
    token = _READ.set(arrays)
    try:
        yield
    finally:
        _READ.reset(token)


_READ: ContextVar[dict[Hashable, Array] | None] = ContextVar("known", default=None)


def read_array(tensor: TensorProto) -> Array:
    """Returns the elements of a tensor, also of a file that `read_without_weights` has read.

    Raises:
        UnsupportedModelError: the file has changed since, or ONNX does not define the element type.
    """
    element_type(tensor.data_type, tensor.name)
    entries = _entries(tensor) if tensor.data_location == TensorProto.EXTERNAL else {}
    if _STAMP not in entries:
        found: Array = numpy_helper.to_array(tensor)
        return found
    arrays = _READ.get()
    if arrays is None:
        return _elements(tensor, entries)
    key = (*sorted(entries.items()), *tensor.dims, tensor.data_type)
    if key not in arrays:
        arrays[key] = _elements(tensor, entries)
    return arrays[key]


def element_type(number: int, name: str) -> np.dtype[Any]:
    """Returns NumPy's dtype of an element type of ONNX.

    Args:
        number: number of the element type.
        name: name of the value, for the message.

    Raises:
        UnsupportedModelError: ONNX defines no element type of that number.
    """
    if number in TensorProto.DataType.values() and number != TensorProto.UNDEFINED:
        return helper.tensor_dtype_to_np_dtype(number)
    raise UnsupportedModelError(
        f"values of a model must be tensors of an element type that ONNX defines, but got {name!r} of type {number}"
    )


def check_weights(model: onnx.ModelProto) -> None:
    """Checks that all tensors of a model have elements, or positions of these in the model's file.

    Raises:
        UnsupportedModelError: elements are in a separate file, whose folder a model in memory does not know.
    """
    for tensor in _tensors(model.graph):
        entries = _entries(tensor)
        if tensor.data_location == TensorProto.EXTERNAL and _STAMP not in entries:
            raise UnsupportedModelError(
                f"`model` must have its weights in memory, but got {tensor.name!r} in the file "
                f"{entries.get('location', '')!r}: give the path of the .onnx file, or call "
                "onnx.load_external_data_for_model on the model first"
            )


def _elements(tensor: TensorProto, entries: Mapping[str, str]) -> Array:
    path = Path(entries["location"])
    dtype = element_type(tensor.data_type, tensor.name)
    nbytes = _count_bytes(tensor)
    if nbytes != int(entries["length"]):
        raise UnsupportedModelError(f"`{tensor.name}` of a model must have {nbytes} bytes, but has {entries['length']}")
    array = np.empty(tuple(tensor.dims), dtype)
    rest = array.reshape(-1).view(np.uint8).data
    try:
        with path.open("rb", buffering=0) as file:
            file.seek(int(entries["offset"]))
            while got := file.readinto(rest):
                rest = rest[got:]
            same = _stamp(path) == entries[_STAMP] and not rest
    except OSError:
        same = False
    if not same:
        raise UnsupportedModelError(f"`model` must stay as it is while it is compiled, but {path} has changed")
    array.flags.writeable = False
    return array


def _tensors(graph: onnx.GraphProto) -> Iterator[TensorProto]:
    """Yields all tensors of a graph and of the graphs in its nodes."""
    yield from graph.initializer
    for attribute in (attribute for node in graph.node for attribute in node.attribute):
        yield from (attribute.t, *attribute.tensors)
        for inner in (attribute.g, *attribute.graphs):
            yield from _tensors(inner)


def _stamp(path: Path) -> str:
    facts = os.stat(path)
    return f"{facts.st_size} {facts.st_mtime_ns} {facts.st_ino}"


def _entries(tensor: TensorProto) -> dict[str, str]:
    return {entry.key: entry.value for entry in tensor.external_data}


def _model(data: mmap.mmap, path: str, stamp: str, left: set[str]) -> Iterator[bytes]:
    """Yields the bytes of a model, in parts, without its large weights; adds the offsets of these to `left`."""
    for number, begin, start, end in _fields(data, 0, len(data)):
        if number != _GRAPH:
            yield data[begin:end]
            continue
        parts = []
        for inner, at, first, last in _fields(data, start, end):
            large = inner == _INITIALIZER and last - first >= LEAST_BYTES
            tensor = _left(data, first, last, path, stamp, left) if large else None
            parts.append(data[at:last] if tensor is None else _tag(_INITIALIZER) + _varint(len(tensor)) + tensor)
        graph = b"".join(parts)
        yield _tag(_GRAPH) + _varint(len(graph)) + graph


def _left(data: mmap.mmap, start: int, end: int, path: str, stamp: str, left: set[str]) -> bytes | None:
    """Returns a tensor whose elements stay in the file; None if they must be read."""
    fields = list(_fields(data, start, end))
    raw = [field for field in fields if field[0] == _RAW_DATA]
    if len(raw) != 1 or raw[0][3] - raw[0][2] < LEAST_BYTES:
        return None
    kept = (data[begin:end] for number, begin, _, end in fields if number != _RAW_DATA)
    tensor = TensorProto.FromString(b"".join(kept))
    if tensor.data_type not in _FLOATS or tensor.data_location == TensorProto.EXTERNAL:
        return None
    _, _, first, last = raw[0]
    _record_position(tensor, path, first, last - first, stamp)
    left.add(str(first))
    found: bytes = tensor.SerializeToString()
    return found


def _fields(data: mmap.mmap, at: int, end: int) -> Iterator[_Field]:
    """Yields the fields of the message from `at` to `end`.

    Raises:
        ValueError, IndexError: the bytes are not a message.
    """
    while at < end:
        begin = at
        tag, at = _read(data, at)
        kind = tag & 7
        if kind == _VARINT:
            start = at
            _, at = _read(data, at)
        elif kind == _BYTES:
            size, start = _read(data, at)
            at = start + size
        elif kind in (_FIXED32, _FIXED64):
            start, at = at, at + (4 if kind == _FIXED32 else 8)
        else:
            raise ValueError(f"kind of a field must be 0, 1, 2 or 5, but got {kind}")
        if at > end:
            raise ValueError(f"a field must end with its message, at {end}, but ends at {at}")
        yield tag >> 3, begin, start, at


def _read(data: mmap.mmap, at: int) -> tuple[int, int]:
    """Returns a number of variable length, and the offset behind it."""
    value, shift = 0, 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a number must have at most ten bytes")


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _tag(number: int) -> bytes:
    return _varint(number << 3 | _BYTES)

"""ONNX files read without their large weights, which are read from the file when an array is made of them.

`onnx.load` holds a file's bytes, then a copy in messages, and another is made for each array. Here the file is scanned
for the fields of its messages (https://protobuf.dev/programming-guides/encoding), and a message is made of all but the
bytes of large floats. In their place stands where they lie, as ONNX writes it of weights in files of their own.
"""

from __future__ import annotations

import math
import mmap
import os
import sys
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import TensorProto, helper, numpy_helper

from autotune.graph.errors import ModelError
from autotune.graph.ir import Array

LEAST_BYTES = 1 << 16
"""Of weights that are left in the file; no shape is computed from so many."""
_FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE)
_GRAPH, _INITIALIZER = 7, 5  # fields of a model, and of a graph
_RAW_DATA, _DATA_LOCATION = 9, 14  # of a tensor
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_STAMP = "stamp"

_Field = tuple[int, int, int, int]
"""Number of a field, where it begins with its tag, where its payload begins, and where it ends."""


def read_without_weights(path: Path) -> onnx.ModelProto | None:
    """The model in a file whose large weights `array_of` reads; None where it is not of a form in which that can be.

    Raises:
        OSError: a file that cannot be read.
    """
    if sys.byteorder != "little" or path.stat().st_size < LEAST_BYTES:
        return None
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        try:
            model = onnx.ModelProto.FromString(b"".join(_model(data, str(path.resolve()), _stamp(path))))
        except (ValueError, IndexError, DecodeError):
            return None  # whoever reads it whole says what is wrong with it
    elsewhere = [tensor for tensor in _tensors(model.graph) if tensor.data_location == TensorProto.EXTERNAL]
    return model if all(_STAMP in _entries(tensor) for tensor in elsewhere) and not model.functions else None


def is_of_one_file(model: onnx.ModelProto) -> bool:
    """Whether `read_without_weights` has left weights of a model in its file: then no other file has any."""
    return any(tensor.data_location == TensorProto.EXTERNAL for tensor in model.graph.initializer)


@contextmanager
def reading_once(known: dict[Hashable, Array]) -> Iterator[None]:
    """Has `array_of` read each weight of a file once, for a model that is read several times.

    Args:
        known: what has been read so far.
    """
    token = _KNOWN.set(known)
    try:
        yield
    finally:
        _KNOWN.reset(token)


_KNOWN: ContextVar[dict[Hashable, Array] | None] = ContextVar("known", default=None)


def array_of(tensor: TensorProto) -> Array:
    """The elements of a tensor, of a file that `read_without_weights` has read, too.

    Raises:
        ModelError: the file has been written to since, or elements of a type that ONNX does not define.
    """
    element_type(tensor.data_type, tensor.name)
    entries = _entries(tensor) if tensor.data_location == TensorProto.EXTERNAL else {}
    if _STAMP not in entries:
        found: Array = numpy_helper.to_array(tensor)
        return found
    known = _KNOWN.get()
    if known is None:
        return _elements(tensor, entries)
    key = (*sorted(entries.items()), *tensor.dims, tensor.data_type)
    if key not in known:
        known[key] = _elements(tensor, entries)
    return known[key]


def element_type(number: int, name: str) -> np.dtype[Any]:
    """NumPy's type of elements that have a number in ONNX.

    Args:
        number: of the type.
        name: of the value that has it, for the message.

    Raises:
        ModelError: ONNX defines no tensor elements of that number.
    """
    if number in TensorProto.DataType.values() and number != TensorProto.UNDEFINED:
        return helper.tensor_dtype_to_np_dtype(number)
    raise ModelError(
        f"values of a model must be tensors of an element type that ONNX defines, but got {name!r} of type {number}"
    )


def check_weights(model: onnx.ModelProto) -> None:
    """Checks that a model has the elements of all its tensors, or knows where they are left in its file.

    Raises:
        ModelError: elements in a file of their own, whose folder a model in memory does not know.
    """
    for tensor in _tensors(model.graph):
        entries = _entries(tensor)
        if tensor.data_location == TensorProto.EXTERNAL and _STAMP not in entries:
            raise ModelError(
                f"`model` must have its weights in memory, but got {tensor.name!r} in the file "
                f"{entries.get('location', '')!r}: give the path of the .onnx file, or call "
                "onnx.load_external_data_for_model on the model first"
            )


def _elements(tensor: TensorProto, entries: Mapping[str, str]) -> Array:
    path = Path(entries["location"])
    dtype = element_type(tensor.data_type, tensor.name)
    nbytes = math.prod(tensor.dims) * dtype.itemsize
    if nbytes != int(entries["length"]):
        raise ModelError(f"`{tensor.name}` of a model must have {nbytes} bytes, but has {entries['length']}")
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
        raise ModelError(f"`model` must stay as it is while it is compiled, but {path} has changed")
    array.flags.writeable = False
    return array


def _tensors(graph: onnx.GraphProto) -> Iterator[TensorProto]:
    """All tensors of a graph and of those in its nodes."""
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


def _model(data: mmap.mmap, path: str, stamp: str) -> Iterator[bytes]:
    """The bytes of a model, in parts, without those of its large weights."""
    for number, begin, start, end in _fields(data, 0, len(data)):
        if number != _GRAPH:
            yield data[begin:end]
            continue
        parts = []
        for inner, at, first, last in _fields(data, start, end):
            large = inner == _INITIALIZER and last - first >= LEAST_BYTES
            tensor = _left(data, first, last, path, stamp) if large else None
            parts.append(data[at:last] if tensor is None else _tag(_INITIALIZER) + _varint(len(tensor)) + tensor)
        graph = b"".join(parts)
        yield _tag(_GRAPH) + _varint(len(graph)) + graph


def _left(data: mmap.mmap, start: int, end: int, path: str, stamp: str) -> bytes | None:
    """A tensor whose elements stay in the file; None where they must not."""
    fields = list(_fields(data, start, end))
    raw = [field for field in fields if field[0] == _RAW_DATA]
    if len(raw) != 1 or raw[0][3] - raw[0][2] < LEAST_BYTES or any(f[0] == _DATA_LOCATION for f in fields):
        return None
    kept = (data[begin:end] for number, begin, _, end in fields if number != _RAW_DATA)
    tensor = TensorProto.FromString(b"".join(kept))
    if tensor.data_type not in _FLOATS:
        return None
    _, _, first, last = raw[0]
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": path, "offset": first, "length": last - first, _STAMP: stamp}.items():
        tensor.external_data.add(key=key, value=str(value))
    found: bytes = tensor.SerializeToString()
    return found


def _fields(data: mmap.mmap, at: int, end: int) -> Iterator[_Field]:
    """Fields of the message from `at` to `end`.

    Raises:
        ValueError, IndexError: it is none.
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
    """A number of variable length, and where it ends."""
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

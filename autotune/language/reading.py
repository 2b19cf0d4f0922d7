"""Weights from a safetensors file, which is a header in JSON and arrays one after the other.

https://github.com/huggingface/safetensors#format
"""

from __future__ import annotations

import json
import math
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np

from autotune.graph.types import Array
from autotune.language.model import LanguageModelError
from search_space.dtypes import numpy_dtype

_DTYPES = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "I64": "int64",
    "I32": "int32",
    "I8": "int8",
    "U8": "uint8",
    "BOOL": "bool",
}


def read_safetensors(path: str | os.PathLike[str]) -> dict[str, Array]:
    """Maps the arrays of a file by name, read-only and without copying.

    Raises:
        LanguageModelError: the file is no safetensors file, or ends too early.
        OSError: it cannot be read.
    """
    data = np.memmap(Path(path), np.uint8, "r")
    try:
        (length,) = struct.unpack("<Q", data[:8].tobytes())
        header = json.loads(data[8 : 8 + length].tobytes())
        return {name: _array(data[8 + length :], facts) for name, facts in header.items() if name != "__metadata__"}
    except (ValueError, KeyError, TypeError, AttributeError, struct.error) as error:
        raise LanguageModelError(f"{path}: weights must be a safetensors file, but: {error}") from error


def _array(data: Array, facts: dict[str, Any]) -> Array:
    shape = tuple(facts["shape"])
    start, end = facts["data_offsets"]
    dtype = np.dtype(numpy_dtype(_DTYPES[facts["dtype"]]))
    if not 0 <= start <= end <= len(data) or end - start != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"bytes {start} to {end} are not {facts['dtype']}{list(shape)} within {len(data)} bytes")
    found: Array = np.frombuffer(data[start:end].data, dtype).reshape(shape)
    return found

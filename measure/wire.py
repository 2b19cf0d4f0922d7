"""Messages between the pool and its worker processes: a JSON header and raw bytes in one frame."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any

_LENGTH = struct.Struct("<I")


def pack(header: Mapping[str, Any], blob: bytes = b"") -> bytes:
    """Makes a frame: length of the header in bytes, header, blob."""
    text = json.dumps(header).encode()
    return _LENGTH.pack(len(text)) + text + blob


def unpack(frame: bytes) -> tuple[dict[str, Any], bytes]:
    """Splits a frame into header and blob.

    Raises:
        ValueError: the frame is malformed.
    """
    start = _LENGTH.size
    if len(frame) < start:
        raise ValueError(f"a frame must have at least {start} bytes, but got {len(frame)}")
    end = start + _LENGTH.unpack_from(frame)[0]
    return json.loads(frame[start:end]), frame[end:]

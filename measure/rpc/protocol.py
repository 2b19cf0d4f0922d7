"""The protocol of RPC devices, in one place: its version, its messages and its limits.

Messages are frames of `measure.wire` (a JSON header and raw bytes) in unary gRPC calls; nothing is ever unpickled.
Every call carries the token and the version in its metadata, and is refused by those alone, before its message is read.

Calls of a worker (W) and of a tracker (T); fields of the request -> fields of the reply:

| call | | request | reply |
|---|---|---|---|
| Hello | WT | client, lease | role; W: session, instance, name, key, target, host, exclusive, description, lease |
| Submit | W | session, job, kind, fetched | |
| Poll | W | session, job, wait | state, message, header; blob |
| Cancel | W | session, job | |
| Upload | W | session, digest; blob: a module | |
| Renew | W | session | |
| Close | W | session | |
| Register | T | key, host, port, instance | lease |
| Withdraw | T | instance | |
| Ask | T | request, client, key, priority, wait | lease and place, or neither |
| Renew | T | client, leases | recalled, lost |
| Release | T | lease, broken | |

`Submit` of kind `trial` has `trial`, `best_seconds`, `check`, `fresh` (in a new process) and the module as its blob.
`Submit` of kind `call` has `call`, see `measure.kernel_call`, with `module` (digest of an uploaded one) and `timeout`,
and the bytes of arrays as its blob.

A session is a client's claim to its jobs. Every call renews it. A worker kills and forgets the jobs of a session that
made no call for `lease` seconds. The client chooses a job's id; submitting a job again has no effect. Its answer is
kept until a later `Submit` names the job in `fetched` or needs its place, or the session ends.

A tracker knows the devices that register again and again, every `lease / 3` seconds. An asker gets a lease on one, or
waits in a queue, in the order of priority and then of asking. The asker chooses the id `request`; asking again has no
effect. All leases are renewed together; those `recalled` should be released soon, those `lost` have ended.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, TypeVar

from measure.wire import unpack

VERSION = 2
"""Version of the protocol; client and server must have the same."""

SERVICE = "autotune.Measure"
TOKEN_METADATA = "authorization"
VERSION_METADATA = "autotune-protocol"

MAX_MESSAGE = 64 << 20
"""Maximum bytes of a message, either way."""
MAX_HEADER = 4 << 20
"""Maximum bytes of the JSON in a message."""
MAX_SESSIONS = 64  # of a worker
MAX_HOST_SESSIONS = 16
"""Maximum sessions of clients on one host, so that no host keeps all others out."""
MAX_JOBS = 4
"""Maximum jobs of a session, under way or answered; a new one replaces the oldest that was answered."""
MAX_MODULES = 64
"""Maximum number of modules that a session has uploaded."""
MAX_HELD = 512 << 20
"""Maximum bytes of modules, inputs and answers that a worker keeps for all its sessions."""
MAX_CALLS = 256
"""Maximum number of calls that a server handles at a time."""
MAX_WAIT = 5.0
"""Maximum seconds for which a server delays its reply to a call that waits for an event."""
MAX_LEASE = 120.0
"""Maximum seconds for which a silent client keeps its session."""
MAX_TIMEOUT = 3600.0
"""Maximum seconds that a job may take."""
MAX_TOKEN = 1024
"""Maximum number of characters of a token."""
MAX_NAME = 200
"""Maximum number of characters of names, keys and ids."""
MAX_DESCRIPTION = 8192
"""Maximum bytes of JSON in which a worker describes its machine; every record contains it."""

_LARGE = 1 << 63  # integers of records have 64 bits, with sign

T = TypeVar("T")


class ProtocolError(ValueError):
    """A message that breaks the protocol; the text is one sentence that says how."""


def read(frame: bytes) -> tuple[dict[str, Any], bytes]:
    """Reads header and blob of a frame from the network.

    Raises:
        ProtocolError: the frame is malformed.
    """
    if len(frame) < 4:
        raise ProtocolError(f"a message must have at least 4 bytes, but got {len(frame)}")
    length = int.from_bytes(frame[:4], "little")
    if length > min(MAX_HEADER, len(frame) - 4):
        raise ProtocolError(
            f"a message's header must be within the message and have at most {MAX_HEADER} bytes, but got {length}"
        )
    try:
        header, blob = unpack(frame)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"a message's header must be JSON, but: {error}") from None
    if not isinstance(header, dict):
        raise ProtocolError(f"a message's header must be a JSON object, but got {type(header).__name__}")
    return header, blob


def get(header: Mapping[str, Any], name: str, kind: type[T]) -> T:
    """Reads a field of a header.

    Raises:
        ProtocolError: the field is missing or of another type, an infinite number, or a text that is too long or not
            printable.
    """
    value = header.get(name)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(max(-_LARGE, min(value, _LARGE)))
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise ProtocolError(f"`{name}` must be of type {kind.__name__}, but got {name}={_short(value)}")
    if isinstance(value, float) and not math.isfinite(value):
        raise ProtocolError(f"`{name}` must be finite, but got {name}={value}")
    if isinstance(value, str) and len(value) > MAX_NAME:
        raise ProtocolError(f"`{name}` must have at most {MAX_NAME} characters, but got {len(value)}")
    if isinstance(value, str) and not value.isprintable():
        raise ProtocolError(f"`{name}` must be of characters that can be shown, but got {name}={_short(value)}")
    return value


def check_description(description: Mapping[str, Any]) -> None:
    """Refuses a description of a machine that its records cannot contain.

    Raises:
        ProtocolError: the description is too long, or is not JSON.
    """
    try:
        size = len(json.dumps(description, allow_nan=False, ensure_ascii=False).encode())
    except (ValueError, RecursionError) as error:  # UnicodeEncodeError is one
        raise ProtocolError(f"`description` must be JSON, but: {error}") from None
    if size > MAX_DESCRIPTION:
        raise ProtocolError(f"`description` must have at most {MAX_DESCRIPTION} bytes of JSON, but got {size}")
    if (largest := _largest(description)) >= _LARGE:
        raise ProtocolError(f"`description` must hold integers of 64 bits, but got {largest:.3g}")


def _largest(value: Any) -> float:
    """Returns the magnitude of the largest integer in plain data, at most `_LARGE`."""
    if isinstance(value, Mapping):
        return max(map(_largest, value.values()), default=0.0)
    if isinstance(value, list):
        return max(map(_largest, value), default=0.0)
    return float(min(abs(value), _LARGE)) if isinstance(value, int) else 0.0


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."

"""Settings of RPC clients and servers: tokens, certificates, addresses, time-outs."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field, fields
from ipaddress import IPv6Address
from pathlib import Path
from typing import Literal, get_args
from urllib.parse import parse_qsl, urlsplit

from measure.errors import PoolError
from measure.rpc.protocol import MAX_LEASE, MAX_NAME, MAX_TOKEN

Check = Literal["device", "client"]
"""Side that compares a kernel's output with the reference."""

SCHEME = "rpc"
_HOST = 253
"""Maximum number of characters of a host's name."""
_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?(\.[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?)*\.?")
"""Labels separated by dots, including decimal addresses."""


@dataclass(frozen=True)
class RpcSettings:
    """Settings of a client of workers and trackers.

    Attributes:
        token: shared secret.
        ca: certificates, PEM, that sign those of the servers; None: connections are not encrypted.
        check: side that compares outputs with the reference, `device` or `client`.
        lease: seconds after which a server releases what a silent client holds.
        patience: seconds for which a device that does not answer is asked again before it counts as lost.
        call_timeout: seconds until a call counts as not answered.
        retry_pause: seconds between attempts.
        connect_timeout: seconds for the first of the workers and trackers to answer.
        executor: import path of the code that makes references, if the client compares.
        task_bytes: most memory for references that are kept.
    """

    token: str = field(repr=False)
    ca: bytes | None = field(default=None, repr=False)
    check: Check = "device"
    lease: float = 20.0
    patience: float = 15.0
    call_timeout: float = 5.0
    retry_pause: float = 0.2
    connect_timeout: float = 30.0
    executor: str = "measure.executor:KernelExecutor"
    task_bytes: int = 1 << 30

    def __post_init__(self) -> None:
        check_token(self.token, "`token`")
        if self.check not in get_args(Check):
            raise ValueError(f"`check` must be one of {', '.join(get_args(Check))}, but got check={self.check!r}")
        for item in fields(self):
            value = getattr(self, item.name)
            if isinstance(value, int | float) and not value > 0:
                raise ValueError(f"`{item.name}` must be positive, but got {item.name}={value}")
        if self.lease > MAX_LEASE:
            raise ValueError(f"`lease` must be at most {MAX_LEASE:g} seconds, but got lease={self.lease}")


@dataclass(frozen=True)
class RpcAddress:
    """A worker or a tracker, and the devices wanted of it.

    Attributes:
        address: `HOST:PORT`.
        keys: keys of wanted devices; empty: any key.
        priority: priority at a tracker, which serves higher ones first.
        check: see `RpcSettings`.
    """

    address: str
    keys: tuple[str, ...] = ()
    priority: int = 0
    check: Check = "device"


def parse_addresses(spec: str) -> list[RpcAddress]:
    """Parses addresses of the form `rpc://HOST:PORT?key=NAME&priority=1,rpc://...`.

    Raises:
        ValueError: `spec` is not of this form.
    """
    return [_address(part.strip(), spec) for part in spec.split(",")]


def _address(part: str, spec: str) -> RpcAddress:
    url = urlsplit(part)
    if url.scheme != SCHEME or url.path.strip("/") or url.fragment or "@" in url.netloc:
        rule = f"{SCHEME}://HOST:PORT?key=NAME, several with commas between"
        raise ValueError(f"`pool` must be {rule}, but got pool={spec!r}")
    host_and_port = check_place(url.netloc, "pool")
    keys: list[str] = []
    priority, check = 0, "device"
    for name, value in parse_qsl(url.query, keep_blank_values=True):
        if name == "key" and value:
            keys.append(check_key(value))
        elif name == "priority" and value.removeprefix("-").isdecimal():
            priority = int(value)
        elif name == "check" and value in get_args(Check):
            check = value
        else:
            raise ValueError(
                f"`pool` must have key=NAME, priority=INTEGER or check=device|client after the question mark, "
                f"but got {name}={value}"
            )
    return RpcAddress(host_and_port, tuple(keys), priority, check)  # type: ignore[arg-type]


def check_place(text: str, name: str, any_port: bool = False) -> str:
    """Returns `HOST:PORT` after validation; an IPv6 address needs brackets; `any_port` allows port 0.

    Raises:
        ValueError: `text` is not of this form.
    """
    host, _, port = text.rpartition(":")
    number = int(port) if re.fullmatch(r"\d{1,5}", port, re.ASCII) else -1
    if not (0 if any_port else 1) <= number < 1 << 16 or not _is_host(host):
        raise ValueError(f"`{name}` must be HOST:PORT, but got {name}={text!r}")
    return text


def _is_host(host: str) -> bool:
    """Tells whether a text is a name, an address, or `*` for all addresses."""
    if host.startswith("[") and host.endswith("]"):
        try:
            return bool(IPv6Address(host[1:-1]))
        except ValueError:
            return False
    return host == "*" or (len(host) <= _HOST and _NAME.fullmatch(host) is not None)


def check_key(key: str) -> str:
    """Returns a device's key after validation.

    Raises:
        ValueError: the key is too long, empty, or has characters that a URL would change.
    """
    if not 0 < len(key) <= MAX_NAME or not all(c.isascii() and (c.isalnum() or c in "-_.") for c in key):
        raise ValueError(f"`key` must be 1 to {MAX_NAME} letters, digits and -_., but got key={key!r}")
    return key


def read_token(path: str | os.PathLike[str]) -> str:
    """Reads the token in a file, without surrounding blanks.

    Raises:
        PoolError: the file cannot be read or holds no token.
    """
    try:
        token = Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise PoolError(f"`token_file` must be a readable file with a token, but got {path}: {why}") from None
    try:
        return check_token(token, f"the token in {path}")
    except ValueError as error:
        raise PoolError(str(error)) from None


def check_token(token: str, what: str) -> str:
    """Returns a token after validation.

    Raises:
        ValueError: the token is empty, too long, or not allowed in a header; the message does not show it.
    """
    if not 0 < len(token) <= MAX_TOKEN or not all(33 <= ord(c) < 127 for c in token):
        raise ValueError(
            f"{what} must be 1 to {MAX_TOKEN} visible ASCII characters on one line, but got {len(token)} characters"
            + ("" if token.isascii() and token.isprintable() and " " not in token else ", some of them others")
        )
    return token


def read_certificates(path: str | os.PathLike[str], name: str) -> bytes:
    """Reads a PEM file.

    Raises:
        PoolError: the file cannot be read or is not a PEM file.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise PoolError(f"`{name}` must be a readable PEM file, but got {path}: {error.strerror}") from None
    if b"-----BEGIN" not in data:
        raise PoolError(f"`{name}` must be a PEM file, but got {path}")
    return data

"""A gRPC server of frames: authentication before anything else, limits, and handlers that are coroutines."""

from __future__ import annotations

import asyncio
import hmac
import signal
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import grpc
import grpc.aio

from measure.errors import PoolError
from measure.rpc.protocol import (
    MAX_CALLS,
    MAX_MESSAGE,
    SERVICE,
    TOKEN_METADATA,
    VERSION,
    VERSION_METADATA,
    ProtocolError,
    get,
    read,
)
from measure.rpc.settings import check_token
from measure.wire import pack

_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_MESSAGE),
    ("grpc.max_send_message_length", MAX_MESSAGE),
    ("grpc.so_reuseport", 0),  # two servers on one port would share its clients
    ("grpc.max_metadata_size", 8 << 10),
    ("grpc.server_handshake_timeout_ms", 10_000),
    ("grpc.max_connection_idle_ms", 60_000),  # closes idle connections, such as a stranger's; a client reconnects
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
)


@dataclass(frozen=True)
class Listen:
    """Address and credentials of a server.

    Attributes:
        address: `HOST:PORT`; port 0: the system chooses one.
        token: token that clients must have.
        certificate, key: PEM of the server's certificate and its key; None: connections are not encrypted.
    """

    address: str
    token: str = field(repr=False)
    certificate: bytes | None = None
    key: bytes | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        check_token(self.token, "`token`")
        if (self.certificate is None) != (self.key is None):
            raise ValueError("`certificate` and `key` must be given together, but got one of them")


class NotFound(Exception):
    """The server does not know the subject of a request, or has forgotten it."""


class Full(Exception):
    """A limit is reached; the client may try again later."""


@dataclass(frozen=True)
class Request:
    """Content of a call.

    Attributes:
        header: plain data.
        blob: bytes beside it.
        peer: the client's address as gRPC writes it.
    """

    header: Mapping[str, Any]
    blob: bytes
    peer: str

    @property
    def host(self) -> str:
        """The client's address without its port; empty if gRPC does not show it.

        gRPC writes `ipv4:127.0.0.1:4711` and `ipv6:%5B::1%5D:4711`.
        """
        kind, _, rest = self.peer.partition(":")
        return unquote(rest.rpartition(":")[0]) if kind in ("ipv4", "ipv6") else ""

    def get(self, name: str, kind: type[Any]) -> Any:
        """Reads a field of the header; raises `ProtocolError` if it is missing or of another type."""
        return get(self.header, name, kind)


Handler = Callable[[Request], Awaitable[tuple[Mapping[str, Any], bytes]]]


class Service:
    """A server that listens, authenticates, and passes calls to handlers.

    Args:
        listen: address and credentials.
        handlers: handler of each call, by name.
        period: seconds between calls of `expire`.

    Attributes:
        address: `HOST:PORT` that it listens on, once it has started.
    """

    def __init__(self, listen: Listen, handlers: Mapping[str, Handler], period: float = 0.1) -> None:
        self._listen = listen
        self._handlers = handlers
        self._period = period
        self._server: Any = None
        self._expiring: asyncio.Task[None] | None = None
        self.address = ""

    def expire(self) -> None:
        """Ends claims whose lease has run out; does nothing by default."""

    async def start(self) -> str:
        """Begins to listen; returns `HOST:PORT` with the actual port.

        Raises:
            PoolError: the address is not available.
        """
        self._server = grpc.aio.server(
            interceptors=(_Authentication(self._listen.token),), options=_OPTIONS, maximum_concurrent_rpcs=MAX_CALLS
        )
        methods = {name: grpc.unary_unary_rpc_method_handler(_answering(each)) for name, each in self._handlers.items()}
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, methods),))
        try:
            if self._listen.certificate is None:
                port = self._server.add_insecure_port(self._listen.address)
            else:
                pair = (self._listen.key, self._listen.certificate)
                port = self._server.add_secure_port(self._listen.address, grpc.ssl_server_credentials([pair]))
        except RuntimeError as error:
            raise PoolError(f"`listen` must be an address to be had, but got {self._listen.address}: {error}") from None
        await self._server.start()
        self.address = f"{self._listen.address.rpartition(':')[0]}:{port}"
        self._expiring = asyncio.create_task(self._keep_expiring())
        return self.address

    async def close(self) -> None:
        """Closes all connections; may be called twice."""
        if self._server is not None:
            await self._server.stop(None)
            self._server = None
        if self._expiring is not None:
            self._expiring.cancel()

    async def _keep_expiring(self) -> None:
        while True:
            await asyncio.sleep(self._period)
            self.expire()


class _Authentication(grpc.aio.ServerInterceptor):  # type: ignore[misc,unused-ignore]
    """Interceptor that lets only calls with the right token and version pass.

    A refused call gets a handler for a stream of messages, so that no message is read: a stranger can fill only the
    system's buffers.
    """

    def __init__(self, token: str) -> None:
        self._expected = f"Bearer {token}".encode()

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], details: Any) -> Any:
        metadata = dict(details.invocation_metadata or ())
        token = metadata.get(TOKEN_METADATA, "")
        if not hmac.compare_digest(token.encode() if isinstance(token, str) else token, self._expected):
            return _refusal(grpc.StatusCode.UNAUTHENTICATED, "the token must be that of the server, but is another one")
        version = metadata.get(VERSION_METADATA, "none")
        if version != str(VERSION):
            sentence = f"the version of the protocol must be {VERSION}, but got {str(version)[:20]}"
            return _refusal(grpc.StatusCode.FAILED_PRECONDITION, sentence)
        return await continuation(details)


def _refusal(code: Any, sentence: str) -> Any:
    async def refuse(_messages: Any, context: Any) -> None:
        await context.abort(code, sentence)

    return grpc.stream_unary_rpc_method_handler(refuse)


def _answering(handler: Handler) -> Callable[[bytes, Any], Awaitable[bytes]]:
    async def answer(frame: bytes, context: Any) -> bytes:
        try:
            header, blob = read(frame)
            return pack(*await handler(Request(header, blob, context.peer())))
        except ProtocolError as error:
            code, sentence = grpc.StatusCode.INVALID_ARGUMENT, str(error)
        except NotFound as error:
            code, sentence = grpc.StatusCode.NOT_FOUND, str(error)
        except Full as error:
            code, sentence = grpc.StatusCode.RESOURCE_EXHAUSTED, str(error)
        await context.abort(code, sentence)
        raise AssertionError("abort raises")

    return answer


def ending() -> asyncio.Event:
    """Returns an event that is set when SIGTERM or SIGINT asks this process to end; call it in the main thread."""
    signalled = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, signalled.set)
    return signalled

"""The client's end of a connection: calls with token and deadline, and the classes of their failures."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import grpc

from measure.rpc.protocol import (
    MAX_MESSAGE,
    SERVICE,
    TOKEN_METADATA,
    VERSION,
    VERSION_METADATA,
    ProtocolError,
    read,
)
from measure.rpc.settings import RpcSettings
from measure.wire import pack

_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_MESSAGE),
    ("grpc.max_send_message_length", MAX_MESSAGE),
    ("grpc.enable_http_proxy", 0),  # devices are asked directly, even if the shell defines web proxies
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.use_local_subchannel_pool", 1),  # a new channel is a new connection
)
_UNREACHABLE_CODES = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED)


class CallError(Exception):
    """A call that failed; the text is one sentence."""


class Unreachable(CallError):
    """The peer is unreachable; retrying may help."""


class UnknownSubject(CallError):
    """The server does not know the subject of the call: it was restarted, or the client's lease has run out."""


class ClientRefusal(CallError):
    """The server refuses this client for its token or its version."""


class GarbledAnswer(CallError):
    """An answer of the server that breaks the protocol."""


class RequestRejection(CallError):
    """The server refuses this request, and would refuse it again."""


class Busy(CallError):
    """The server has reached one of its limits; retrying may help."""


_MEANING = {
    grpc.StatusCode.NOT_FOUND: UnknownSubject,
    grpc.StatusCode.UNAUTHENTICATED: ClientRefusal,
    grpc.StatusCode.FAILED_PRECONDITION: ClientRefusal,
    grpc.StatusCode.UNIMPLEMENTED: ClientRefusal,
    grpc.StatusCode.INVALID_ARGUMENT: RequestRejection,
    grpc.StatusCode.RESOURCE_EXHAUSTED: Busy,
    **dict.fromkeys(_UNREACHABLE_CODES, Unreachable),
}

Reply = tuple[dict[str, Any], bytes]


class Connection:
    """Calls to one server; reconnects when the connection breaks. Threads may share it.

    Args:
        address: `HOST:PORT`.
        settings: token, certificates, time-outs.
    """

    def __init__(self, address: str, settings: RpcSettings) -> None:
        self.address = address
        self._settings = settings
        self._lock = threading.Lock()
        self._channel: Any = None
        self._open_calls: set[Any] = set()
        self._metadata = (
            (TOKEN_METADATA, f"Bearer {settings.token}"),
            (VERSION_METADATA, str(VERSION)),
        )

    async def call(
        self, method: str, header: Mapping[str, Any], blob: bytes = b"", timeout: float | None = None
    ) -> Reply:
        """Performs a call; several may be under way.

        Args:
            method: name of the call.
            header: header of the request.
            blob: bytes of the request.
            timeout: seconds; None: as in the settings.

        Raises:
            CallError: the call failed; its subclass says why.
        """
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()

        def settle() -> None:
            if not done.done():
                done.set_result(None)

        def notify_loop(_call: Any) -> None:
            with suppress(RuntimeError):  # the loop was closed meanwhile, so that the result is not needed
                loop.call_soon_threadsafe(settle)

        call = self._begin(method, header, blob, timeout)
        call.add_done_callback(notify_loop)
        try:
            await done
        finally:
            call.cancel()
        return self._reply(method, call)

    def ask(self, method: str, header: Mapping[str, Any], blob: bytes = b"", timeout: float | None = None) -> Reply:
        """Performs a call as `call`, but blocks."""
        return self._reply(method, self._begin(method, header, blob, timeout))

    def tell(self, method: str, header: Mapping[str, Any]) -> None:
        """Performs a call without waiting for its answer."""
        call = self._begin(method, header, b"", None)
        self._open_calls.add(call)  # gRPC cancels a call without references
        call.add_done_callback(self._open_calls.discard)

    def close(self) -> None:
        """Closes the connection; the next call connects again."""
        with self._lock:
            channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()

    def _begin(self, method: str, header: Mapping[str, Any], blob: bytes, timeout: float | None) -> Any:
        frame = pack(header, blob)
        if len(frame) > MAX_MESSAGE - 1024:
            raise RequestRejection(f"a message must have at most {MAX_MESSAGE - 1024} bytes, but got {len(frame)}")
        limit = self._settings.call_timeout if timeout is None else timeout
        with self._lock:
            if self._channel is None:
                self._channel = self._connect()
            stub = self._channel.unary_unary(f"/{SERVICE}/{method}")
            return stub.future(frame, timeout=limit, metadata=self._metadata)

    def _connect(self) -> Any:
        if self._settings.ca is None:
            return grpc.insecure_channel(self.address, _OPTIONS)
        return grpc.secure_channel(self.address, grpc.ssl_channel_credentials(self._settings.ca), _OPTIONS)

    def _reply(self, method: str, call: Any) -> Reply:
        try:
            return read(call.result())
        except grpc.RpcError as error:
            code, details = error.code(), error.details() or ""
        except grpc.FutureCancelledError:
            code, details = grpc.StatusCode.CANCELLED, "the call was cancelled"
        except ProtocolError as error:
            raise GarbledAnswer(f"{self.address} must speak the protocol, but: {error}") from None
        if code in _UNREACHABLE_CODES:
            self.close()  # a connection that was cut silently never recovers
        kind = _MEANING.get(code, CallError)
        raise kind(f"{method} at {self.address}: {details or code.name}")

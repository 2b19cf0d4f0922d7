"""Refusals of a worker: strangers, other versions, garbage, too many bytes, and requests that make no sense."""

from __future__ import annotations

import asyncio
import socket
import ssl
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from types import SimpleNamespace

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import settings as bounded
from hypothesis import strategies as st

from measure.errors import ErrorClass, PoolError
from measure.rpc import service
from measure.rpc.client import RpcDevice
from measure.rpc.jobs import greet
from measure.rpc.protocol import MAX_HOST_SESSIONS, MAX_JOBS, MAX_MESSAGE, MAX_SESSIONS, SERVICE, VERSION
from measure.rpc.server import RpcServer
from measure.rpc.service import Full, Listen, Request
from measure.rpc.tracker import Tracker
from measure.rpc.transport import Busy, Connection, RequestRejection, UnknownSubject, Unreachable
from measure.wire import pack
from tests.measure.helpers import trial
from tests.measure.rpc.processes import TOKEN, Wire, module, settings, worker

METHODS = ("Hello", "Submit", "Poll", "Cancel", "Upload", "Renew", "Close")
RIGHT = (("authorization", f"Bearer {TOKEN}"), ("autotune-protocol", str(VERSION)))


@pytest.fixture(scope="module")
def board(tmp_path_factory):
    with worker(tmp_path_factory.mktemp("rpc"), target="vta") as process:
        yield process


@pytest.fixture(scope="module")
def connection(board):
    line = Connection(board.address, settings(call_timeout=10.0))
    yield line
    line.close()


@pytest.fixture(scope="module")
def session(connection):
    return connection.ask("Hello", {"client": "test", "lease": 100.0})[0]["session"]


def raw(address, method, frame, metadata=RIGHT):
    """Status of a call made without our client: no limits of its own."""
    with grpc.insecure_channel(address, [("grpc.max_send_message_length", -1)]) as channel:
        try:
            channel.unary_unary(f"/{SERVICE}/{method}")(frame, timeout=20, metadata=metadata)
        except grpc.RpcError as error:
            return error.code()
    return grpc.StatusCode.OK


def works(address):
    async def scenario():
        device = await RpcDevice.connect(address, settings(patience=10.0))
        try:
            tried = trial(options={"target": "vta"})
            return (await device.run(tried, module(tried), None)).error
        finally:
            await device.close()

    return asyncio.run(scenario()) is ErrorClass.ok


@pytest.mark.parametrize("method", [*METHODS, "NoSuchMethod"])
def test_strangers_learn_nothing(board, method):
    frame = pack({"client": "x", "lease": 1.0, "session": "x"})
    for given_token in ("", "Bearer", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", TOKEN, "Bearer \N{BULLET}".encode()):
        name = "authorization-bin" if isinstance(given_token, bytes) else "authorization"
        metadata = ((name, given_token), ("autotune-protocol", str(VERSION)))
        assert raw(board.address, method, frame, metadata) is grpc.StatusCode.UNAUTHENTICATED
    assert raw(board.address, method, frame, ()) is grpc.StatusCode.UNAUTHENTICATED


def test_a_strangers_message_is_not_even_read(board):
    with Wire(board.address) as wire:
        assert raw(wire.address, "Upload", b"x" * (MAX_MESSAGE // 2), ()) is grpc.StatusCode.UNAUTHENTICATED
        assert wire.sent_bytes < 8 << 20  # what fits the buffers on the way


def test_the_client_says_who_refuses_it_and_never_shows_the_token(board):
    async def scenario():
        with pytest.raises(PoolError, match="the token must be that of the server") as caught:
            await RpcDevice.connect(board.address, settings(token="another-token"))
        assert "another-token" not in str(caught.value)

    asyncio.run(scenario())
    assert "another-token" not in repr(settings(token="another-token"))


def test_another_version_is_told_so(board):
    metadata = (RIGHT[0], ("autotune-protocol", "99"))
    assert raw(board.address, "Hello", b"", metadata) is grpc.StatusCode.FAILED_PRECONDITION
    assert raw(board.address, "Hello", b"", RIGHT[:1]) is grpc.StatusCode.FAILED_PRECONDITION


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\nHost: board\r\n\r\n",
        bytes(range(256)) * 4096,
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),  # TLS
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 100_000,
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
        + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
        + b"\x00\xff\xff\x01\x05\x00\x00\x00\x01",
    ],
)
def test_garbage_on_the_wire_ends_that_connection_alone(board, garbage):
    host, _, port = board.address.rpartition(":")
    with socket.create_connection((host, int(port)), 5) as line, suppress(OSError):  # it may hang up on us
        line.sendall(garbage)
    assert works(board.address)


def test_what_is_too_large_is_refused(board):
    assert raw(board.address, "Upload", bytes(MAX_MESSAGE + 1)) is grpc.StatusCode.RESOURCE_EXHAUSTED
    huge = (*RIGHT, ("x", "y" * (1 << 20)))
    assert raw(board.address, "Hello", b"", huge) is not grpc.StatusCode.OK
    assert works(board.address)


def test_the_client_refuses_to_send_what_is_too_large(connection, session):
    with pytest.raises(RequestRejection, match="a message must have at most"):
        connection.ask("Upload", {"session": session, "digest": ""}, bytes(MAX_MESSAGE))


@bounded(max_examples=60, deadline=None)
@given(st.sampled_from(METHODS[1:]), st.binary(max_size=60))
def test_any_bytes_get_a_status(connection, method, frame):
    assert raw_status(connection, method, frame) is grpc.StatusCode.INVALID_ARGUMENT


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
FIELDS = ("job", "kind", "fetched", "trial", "best_seconds", "check", "fresh", "call", "wait", "digest")


@bounded(max_examples=60, deadline=None)
@given(st.sampled_from(("Submit", "Poll", "Cancel", "Upload")), st.dictionaries(st.sampled_from(FIELDS), PLAIN))
def test_any_header_gets_a_status(connection, session, method, header):
    status = raw_status(connection, method, pack({**header, "session": session}))
    allowed = (grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND)
    assert status in allowed


def raw_status(connection, method, frame):
    """Status of a call over a connection that is there already."""
    if connection._channel is None:
        connection.ask("Hello", {"client": "test", "lease": 0.1})
    try:
        connection._channel.unary_unary(f"/{SERVICE}/{method}")(frame, timeout=20, metadata=RIGHT)
    except grpc.RpcError as error:
        return error.code()
    return grpc.StatusCode.OK


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"kind": "shell"}, "`kind` must be trial or call, but got kind='shell'"),
        ({"check": "nowhere"}, "`check` must be one of device, client, but got check='nowhere'"),
        ({"best_seconds": "fast"}, "`best_seconds` must be of type float"),
        ({"trial": {"trace_key": "x"}}, "`trial` must have a workload_key, but got workload_key=None"),
        ({"trial.target": "cpu"}, "`target` must be one of vta here, but got target='cpu'"),
        ({"trial.threads": 1.5}, "`trial` must have a threads, but got threads=1.5"),
        ({"trial.run_timeout": 1e9}, "`run_timeout` must be at most 3600"),
        ({"trial.cache": "cold"}, "`trial` must be a trial, but: `cache` must be one of"),
        ({"trial.extra": 1}, "`trial` must be a trial, but:"),
        ({"kind": "call", "call": {"module": "x", "timeout": -1.0}}, "`module` must be uploaded first"),
        ({"session": "x"}, "the session is not known here"),
        ({"job": "x" * 1000}, "`job` must have at most 200 characters"),
    ],
)
def test_requests_that_make_no_sense_are_told_why(connection, session, changes, sentence):
    plain = trial(options={"target": "vta"}).to_json()
    request = {"session": session, "job": "a", "kind": "trial", "fetched": [], "check": "device", "fresh": False}
    for name, value in changes.items():
        if name.startswith("trial."):
            plain[name.removeprefix("trial.")] = value
    request |= {"trial": plain, **{name: value for name, value in changes.items() if "." not in name}}
    with pytest.raises((RequestRejection, UnknownSubject)) as caught:
        connection.ask("Submit", request)
    assert sentence in str(caught.value)


def test_a_trial_that_the_worker_does_not_take_is_a_result(board):
    async def scenario():
        device = await RpcDevice.connect(board.address, settings())
        try:
            answer = await device.run(trial(options={"target": "cpu"}), b"", None)
        finally:
            await device.close()
        assert answer.error is ErrorClass.unknown and "`target` must be one of vta here" in answer.header["message"]

    asyncio.run(scenario())


def test_a_module_must_have_its_digest(connection, session):
    with pytest.raises(RequestRejection, match="`digest` must be the SHA-256 of the module"):
        connection.ask("Upload", {"session": session, "digest": "00"}, b"module")


def poll(line, session, job):
    """Polls until a job is answered; returns its reply."""
    reply = {}
    while reply.get("state") in (None, "waiting", "running"):
        reply = line.ask("Poll", {"session": session, "job": job, "wait": 1.0}, timeout=30.0)[0]  # of a busy machine
    return reply


def test_jobs_and_sessions_are_limited(board):
    line = Connection(board.address, settings())
    greedy = {"client": "greedy", "lease": 60.0}  # far longer than this takes on the busiest machine
    sessions = [line.ask("Hello", greedy)[0]["session"]]
    slow, tried = (
        trial(options={"target": "vta"}, sleep=True, deterministic=True, seconds=seconds) for seconds in (1.0, 0.01)
    )
    request = {"kind": "trial", "trial": tried.to_json(), "fetched": [], "check": "device", "fresh": False}
    with pytest.raises(Busy, match=f"a session must have at most {MAX_JOBS} jobs under way"):
        for number in range(MAX_JOBS + 1):  # none of them ends before all are there: they wait for the first
            what = slow if number == 0 else tried
            header = {**request, "trial": what.to_json(), "session": sessions[0], "job": str(number)}
            line.ask("Submit", header, module(what))
    for number in range(MAX_JOBS):
        assert poll(line, sessions[0], str(number))["state"] == "done"
    line.ask("Submit", {**request, "session": sessions[0], "job": "new"}, module(tried))
    with pytest.raises(UnknownSubject, match="the job is not known here: '0'"):
        poll(line, sessions[0], "0")
    assert poll(line, sessions[0], "1")["header"]["seconds"] == pytest.approx(0.01)
    with pytest.raises(Busy, match=f"a worker must have at most {MAX_HOST_SESSIONS} sessions of one host"):
        for _ in range(MAX_HOST_SESSIONS + 1):
            sessions.append(line.ask("Hello", greedy)[0]["session"])
    for each in sessions:
        line.ask("Close", {"session": each})
    line.close()
    assert works(board.address)


def test_no_host_keeps_all_others_out():
    """Sessions of one host are bounded, whatever its ports and names are; those of all hosts together are, too."""

    async def scenario():
        device = SimpleNamespace(name="d", spec="cpu", host="h", exclusive=False, description={})
        server = RpcServer(device, Listen("127.0.0.1:0", TOKEN))

        async def hello(peer, number):
            header = {"client": f"client {number}", "lease": 100.0}
            await server._handlers["Hello"](Request(header, b"", f"{peer}:{1000 + number}"))

        for host in range(MAX_SESSIONS // MAX_HOST_SESSIONS):
            for number in range(MAX_HOST_SESSIONS):
                await hello(f"ipv6:%5B2001:db8::{host}%5D" if host else "ipv4:10.0.0.1", number)
            if host == 0:
                with pytest.raises(Full, match=f"at most {MAX_HOST_SESSIONS} sessions of one host, but got one more"):
                    await hello("ipv4:10.0.0.1", number + 1)
        with pytest.raises(Full, match=f"a worker must have at most {MAX_SESSIONS} sessions, but got one more"):
            await hello("ipv4:10.0.0.2", 0)

    asyncio.run(scenario())


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
NO_SETTINGS = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"


@pytest.mark.parametrize("data", [b"", PREFACE[:10], PREFACE, PREFACE + NO_SETTINGS], ids=len)
def test_a_connection_that_says_nothing_more_is_ended(monkeypatch, data):
    quick = {"grpc.server_handshake_timeout_ms": 1500, "grpc.max_connection_idle_ms": 300}
    assert quick.keys() <= dict(service._OPTIONS).keys()
    monkeypatch.setattr(service, "_OPTIONS", tuple({**dict(service._OPTIONS), **quick}.items()))

    def wait(address):
        host, _, port = address.partition(":")
        with socket.create_connection((host, int(port)), timeout=20) as line:
            line.sendall(data)
            while line.recv(4096):
                pass

    async def scenario():
        served = Tracker(Listen("127.0.0.1:0", TOKEN))
        place = await served.start()
        try:
            await asyncio.to_thread(wait, place)
            assert (await Connection(place, settings()).call("Hello", {}))[0]["role"] == "tracker"
        finally:
            await served.close()

    asyncio.run(scenario())


def certificates(folder):
    """A self-signed certificate of 127.0.0.1 and its key, as PEM files."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "board")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    paths = folder / "board.pem", folder / "board.key"
    paths[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    paths[1].write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return paths


def test_tls(tmp_path):
    certificate, key = certificates(tmp_path)
    (tmp_path / "other").mkdir()
    other = certificates(tmp_path / "other")[0]

    async def scenario(address):
        device = await RpcDevice.connect(address, settings(ca=certificate.read_bytes()))
        tried = trial(options={"target": "vta"})
        assert (await device.run(tried, module(tried), None)).error is ErrorClass.ok
        await device.close()
        for ca in (None, other.read_bytes()):  # plain text to a server that encrypts, and a server that we do not trust
            line = Connection(address, settings(ca=ca))
            with pytest.raises(Unreachable):
                await greet(line, settings(ca=ca))
            line.close()
        with pytest.raises(PoolError, match="the token must be"):
            await RpcDevice.connect(address, settings(ca=certificate.read_bytes(), token="wrong"))

    with worker(tmp_path, "--tls-cert", str(certificate), "--tls-key", str(key), target="vta") as process:
        asyncio.run(scenario(process.address))
        host, _, port = process.address.rpartition(":")
        context = ssl.create_default_context(cafile=str(certificate))
        context.set_alpn_protocols(["h2"])
        with (
            socket.create_connection((host, int(port)), 5) as line,
            context.wrap_socket(line, server_hostname=host) as tls,
        ):
            assert tls.version() in ("TLSv1.2", "TLSv1.3")

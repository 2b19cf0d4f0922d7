"""`autotune worker` and `autotune tracker`: devices for runs elsewhere. Imports wait until a command runs."""

from __future__ import annotations

from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autotune.cli.errors import bad_input

if TYPE_CHECKING:
    from measure.rpc.service import Listen

Token = Annotated[Path, typer.Option(metavar="FILE", help="File with the token that clients must send.")]
Certificate = Annotated[
    Path | None, typer.Option(metavar="FILE", help="PEM file of the server's certificate, which encrypts.")
]
CertificateKey = Annotated[Path | None, typer.Option(metavar="FILE", help="PEM file of the certificate's key.")]


def worker(
    token_file: Token,
    target: Annotated[str, typer.Option(help="Name of the target to serve, such as cpu or cuda:sm_90.")] = "cpu",
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Address to listen on; port 0: any free port.")
    ] = "127.0.0.1:0",
    key: Annotated[
        str, typer.Option(metavar="NAME", help="Key by which runs ask for this device; none by default.")
    ] = "",
    tracker: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Tracker to register at; none by default.")
    ] = None,
    announce: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Address at which clients reach this device; by default --listen."),
    ] = None,
    tls_cert: Certificate = None,
    tls_key: CertificateKey = None,
    tls_ca: Annotated[
        Path | None, typer.Option(metavar="FILE", help="PEM file of the certificates that sign the tracker's.")
    ] = None,
    memory_mb: Annotated[
        int | None, typer.Option(min=1, help="Megabytes (2^20 bytes) of a kernel's address space; by default no limit.")
    ] = None,
    executor: Annotated[str | None, typer.Option(hidden=True)] = None,
    host_lock: Annotated[str | None, typer.Option(hidden=True)] = None,
) -> None:
    """Serve a device of this machine to runs elsewhere, until it is stopped."""
    with bad_input("", None, ValueError):
        from measure.fleet.local import LocalDevice
        from measure.rpc.serve import serve_device
        from measure.rpc.settings import RpcSettings, check_key, check_place, read_certificates
        from measure.settings import LocalSettings

        wanted = _listen(listen, token_file, tls_cert, tls_key)
        ca = None if tls_ca is None else read_certificates(tls_ca, "tls-ca")
        for place, name in ((tracker, "tracker"), (announce, "announce")):
            if place is not None:
                check_place(place, name)
        given = {"executor": executor, "host_lock": host_lock, "memory_bytes": memory_mb and memory_mb << 20}
        local = LocalSettings(**{name: value for name, value in given.items() if value is not None})  # type: ignore[arg-type]
        device = LocalDevice(target, local)
        name = check_key(key) if key else ""
        served = serve_device(device, wanted, name, tracker, announce, RpcSettings(wanted.token, ca), say=_say)
    _serve(served)


def tracker(
    token_file: Token,
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Address to listen on; port 0: any free port.")
    ] = "127.0.0.1:0",
    lease: Annotated[
        float, typer.Option(help="Seconds of silence after which workers and clients are dropped.")
    ] = 10.0,
    tls_cert: Certificate = None,
    tls_key: CertificateKey = None,
) -> None:
    """Lend the devices of workers to runs by key and priority, until it is stopped."""
    with bad_input("", None, ValueError):
        from measure.rpc.serve import serve_tracker

        if not lease > 0:
            raise ValueError(f"`lease` must be positive, but got lease={lease}")
        served = serve_tracker(_listen(listen, token_file, tls_cert, tls_key), lease, say=_say)
    _serve(served)


def _listen(address: str, token_file: Path, certificate: Path | None, key: Path | None) -> Listen:
    import logging

    from measure.rpc.service import Listen
    from measure.rpc.settings import check_place, read_certificates, read_token

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    check_place(address, "listen", any_port=True)
    token = read_token(token_file)
    if token_file.stat().st_mode & 0o044:
        _warn(f"others on this machine can read {token_file}; chmod 600 keeps the token to yourself")
    if (certificate is None) != (key is None):
        raise ValueError("`--tls-cert` and `--tls-key` must be given together, but got one of them")
    if certificate is None and address.rpartition(":")[0] not in ("127.0.0.1", "localhost", "[::1]"):
        _warn("token and code will travel unencrypted; --tls-cert and --tls-key encrypt them")
    pair = [
        None if path is None else read_certificates(path, name)
        for path, name in ((certificate, "tls-cert"), (key, "tls-key"))
    ]
    return Listen(address, token, *pair)


def _say(line: str) -> None:
    """Prints one line that a script may wait for."""
    print(line, flush=True)


def _warn(sentence: str) -> None:
    typer.echo(f"warning: {sentence}", err=True)


def _serve(coroutine: Coroutine[Any, Any, None]) -> None:
    import asyncio

    with bad_input():
        asyncio.run(coroutine)

"""Workers and trackers as processes, a wire that can be cut, and what the tests of RPC devices share."""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from measure.pool import Trial
from measure.rpc.settings import RpcSettings
from tests.measure.helpers import EXECUTOR

TOKEN = "a-token-of-these-tests"
ROOT = Path(__file__).parents[3]
QUICK = {"lease": 2.0, "patience": 1.5, "call_timeout": 1.0, "retry_pause": 0.05}


def settings(**changes: Any) -> RpcSettings:
    """Settings that lose patience soon, with the executor that misbehaves."""
    return RpcSettings(**{"token": TOKEN, "executor": EXECUTOR, **QUICK, **changes})


def module(trial: Trial) -> bytes:
    """Returns the module that the fake executor builds of a fake trial."""
    return json.dumps(trial.trace[0]).encode()


class Process:
    """`autotune COMMAND ...` that serves: started, and at the end killed by its id.

    Attributes:
        address: `HOST:PORT` that it said.
    """

    def __init__(self, folder: Path, command: str, *options: str) -> None:
        token = folder / "token"
        if not token.exists():
            token.write_text(TOKEN + "\n")
            token.chmod(0o600)
        arguments = [sys.executable, "-m", "autotune", command, "--token-file", str(token), *options]
        self.log = folder / f"{command}-{time.monotonic_ns()}.log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(arguments, cwd=ROOT, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            line = self.process.stdout.readline() if selector.select(30) else ""
        self.line = line.strip()
        self.address = self.line.rpartition(" on ")[2]
        if not self.address:
            self.end()
            raise RuntimeError(f"{command} must say where it listens, but got {line!r}: {self.log.read_text()}")

    @property
    def children(self) -> list[int]:
        """Ids of its child processes."""
        path = Path(f"/proc/{self.process.pid}/task")
        return [int(pid) for each in path.glob("*/children") for pid in each.read_text().split()]

    def terminate(self, number: int = signal.SIGTERM) -> int:
        """Asks it to end, and returns its exit code."""
        self.process.send_signal(number)
        return self.process.wait(15)

    def end(self) -> None:
        """Kills it and what it has started."""
        for pid in self.children if self.process.poll() is None else []:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


@contextmanager
def worker(folder: Path, *options: str, target: str = "cpu", fake: bool = True) -> Iterator[Process]:
    """A worker on a free port of this host."""
    given = ["--target", target, "--host-lock", str(folder / "host.lock"), *options]
    process = Process(folder, "worker", *given, *(["--executor", EXECUTOR] if fake else []))
    try:
        yield process
    finally:
        process.end()


def eventually(condition: Callable[[], Any], seconds: float = 100.0) -> None:
    """Waits until a condition holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the condition does not come true"
        time.sleep(0.02)


class Wire:
    """A TCP connection between client and server that can be cut, with or without telling the two ends.

    Attributes:
        address: `HOST:PORT` for the client.
        sent_bytes: bytes from the client to the server.
    """

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._server = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.sent_bytes = 0
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._lock = threading.Lock()
        self._refusing = self._silent = False
        threading.Thread(target=self._accept, daemon=True).start()

    def refuse(self) -> None:
        """Hangs up, and on every new connection at once."""
        self._refusing = True
        self._drop()

    def silence(self) -> None:
        """Keeps connections but carries nothing any more; what is under way is swallowed."""
        self._silent = True

    def mend(self) -> None:
        """Carries new connections again; silenced ones stay silent, as their bytes are missing."""
        self._refusing = False
        if self._silent:
            self._silent = False
            self._drop()

    def close(self) -> None:
        """Ends it."""
        self._refusing = True
        self._listener.close()
        self._drop()

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _drop(self) -> None:
        with self._lock:
            pairs, self._pairs = self._pairs, []
        for end in (end for pair in pairs for end in pair):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client = self._listener.accept()[0]
                try:
                    if self._refusing:
                        raise OSError
                    server = socket.create_connection(self._server, 5)
                except OSError:
                    client.close()
                    continue
                with self._lock:
                    self._pairs.append((client, server))
                for source, sink, counts in ((client, server, True), (server, client, False)):
                    threading.Thread(target=self._carry, args=(source, sink, counts), daemon=True).start()

    def _carry(self, source: socket.socket, sink: socket.socket, counts: bool) -> None:
        swallowing = False
        with suppress(OSError):
            while data := source.recv(1 << 16):
                swallowing = swallowing or self._silent
                if not swallowing:
                    self.sent_bytes += len(data) if counts else 0
                    sink.sendall(data)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

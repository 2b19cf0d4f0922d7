"""A worker that lies: a process of its own that speaks the protocol and answers a trial as its step `answer` says.

It calls itself by another name each time, as one would that does not want to be known again.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from measure.rpc.service import Listen, Request, Service

ROOT = Path(__file__).parents[3]
GREETING = {
    "role": "device",
    "instance": "i",
    "name": "liar",
    "target": "cpu",
    "host": "elsewhere",
    "exclusive": True,
    "description": {"cpu": "fast"},
}


@contextmanager
def liar(token: str) -> Iterator[str]:
    """A lying worker on a free port of this host: its place."""
    arguments = [sys.executable, "-m", "tests.measure.rpc.liar", token]
    with subprocess.Popen(arguments, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()


async def _serve(token: str) -> None:
    sessions = iter(range(1 << 30))
    answers: dict[str, Any] = {}

    async def hello(request: Request) -> tuple[dict[str, Any], bytes]:
        name = f"liar{next(sessions)}"
        return {**GREETING, "session": name, "key": name}, b""

    async def submit(request: Request) -> tuple[dict[str, Any], bytes]:
        answers[request.header["job"]] = request.header["trial"]["trace"][0]["answer"]
        return {}, b""

    async def poll(request: Request) -> tuple[Any, bytes]:
        return answers[request.header["job"]], b""

    async def nothing(request: Request) -> tuple[dict[str, Any], bytes]:
        return {}, b""

    handlers = {"Hello": hello, "Submit": submit, "Poll": poll, **dict.fromkeys(("Cancel", "Renew", "Close"), nothing)}
    service = Service(Listen("127.0.0.1:0", token), handlers)
    print(await service.start(), flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1]))

"""The program of a child process that does what it is asked for, however bad."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import Any

from measure.channel import Channel
from measure.child_main import answer_requests, open_parent


class Refusal(Exception):
    """An exception that is an answer."""


def main() -> None:
    """Answers requests, each with a deed."""
    options, channel = open_parent()

    def deed(request: dict[str, Any], blob: bytes) -> tuple[dict[str, Any], bytes]:
        do(request, channel)
        return {"cores": sorted(os.sched_getaffinity(0)), "options": options["note"]}, blob[::-1]

    answer_requests(channel, deed, (Refusal,))


def do(request: dict[str, Any], channel: Channel) -> None:
    """Does one deed."""
    descriptor, what = channel.fileno(), request["do"]
    if what == "refuse":
        raise Refusal("a deed must be good, but got refuse")
    if what == "raise":
        raise RuntimeError("a fault in our own code")
    if what == "print":
        print("a library prints", flush=True)
        print("and warns", file=sys.stderr, flush=True)
    if what == "exit":
        os._exit(3)
    if what == "abort":
        print("LLVM ERROR: cannot select", file=sys.stderr, flush=True)
        os.abort()
    if what == "hang":
        time.sleep(600)
    if what == "sleep":
        time.sleep(request["seconds"])
    if what == "hang_up":
        channel.close()
        time.sleep(600)
    if what == "half":
        os.write(descriptor, (100).to_bytes(8, "little") + b"half of it")
        time.sleep(600)
    if what == "rubbish":
        channel.send(b"\xff\xff no frame")
        time.sleep(600)
    if what == "no_object":
        channel.send((2).to_bytes(4, "little") + b"[]")
        time.sleep(600)
    if what == "too_much":
        os.write(descriptor, (1 << 40).to_bytes(8, "little") + bytes(64))
        time.sleep(600)
    if what == "start":  # a process that would live on
        helper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        with open(request["file"], "w") as file:
            file.write(str(helper.pid))
        if request["then"] == "hang":
            time.sleep(600)
        os._exit(3)

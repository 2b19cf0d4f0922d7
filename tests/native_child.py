"""The program of a child process that runs the kernels of random tests, one request at a time; see `tests.native`."""

from __future__ import annotations

import json
import sys
from multiprocessing.connection import Connection
from typing import Any

from measure.arrays import pack_arrays, unpack_arrays
from measure.wire import pack, unpack
from targets import registry
from targets.base import Module, RunError


def main() -> None:
    """Serves requests until the parent hangs up."""
    connection: Connection[Any, Any] = Connection(json.loads(sys.argv[1])["descriptor"])
    while True:
        try:
            request, blob = unpack(connection.recv_bytes())
        except EOFError:
            return
        connection.send_bytes(pack(*_answer(request, blob)))


def _answer(request: dict[str, Any], blob: bytes) -> tuple[dict[str, Any], bytes]:
    """The kernel's outputs and damaged fences, or what it refuses."""
    size = request["module_bytes"]
    try:
        kernel = registry.get(request["target"]).load(Module.from_bytes(blob[:size]))
        bound = kernel.bind(unpack_arrays(request["arrays"], blob[size:]), fenced=request["fenced"])
        bound.run(request["threads"])
    except RunError as error:
        return {"refused": str(error)}, b""
    described, data = pack_arrays(bound.outputs)
    return {"outputs": described, "damage": bound.damage()}, data

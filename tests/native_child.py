"""The program of a child process that runs the kernels of random tests, one request at a time; see `tests.native`."""

from __future__ import annotations

from typing import Any

from measure.arrays import pack_arrays, unpack_arrays
from measure.child_main import answer_requests, open_parent
from targets import registry
from targets.base import Module, RunError


def main() -> None:
    """Serves requests until the parent hangs up."""
    _, channel = open_parent()
    answer_requests(channel, _answer, (RunError,))


def _answer(request: dict[str, Any], blob: bytes) -> tuple[dict[str, Any], bytes]:
    """The kernel's outputs and damaged fences, or what it refuses."""
    size = request["module_bytes"]
    kernel = registry.get(request["target"]).load(Module.from_bytes(blob[:size]))
    bound = kernel.bind(unpack_arrays(request["arrays"], blob[size:]), fenced=request["fenced"])
    bound.run(request["threads"])
    described, data = pack_arrays(bound.outputs)
    return {"outputs": described, "damage": bound.damage()}, data

"""Native kernels of random tests run in a child process, so that a crash is one failed test and not the end of the run.

One child serves all tests of a process, and is replaced only where a kernel ended it.
"""

from __future__ import annotations

import atexit
from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from measure.arrays import pack_arrays, unpack_arrays
from measure.child import Child, ChildError
from search_space.ir.stmt import LoopProgram
from targets.base import Module, RunError, Target

SECONDS = 120.0
"""Most that a kernel may take: the slowest take a few."""

_children: list[Child] = []


class KernelCrash(AssertionError):
    """A kernel that ended its process, or did not end."""


def run_program(
    target: Target,
    program: LoopProgram,
    inputs: Sequence[NDArray[Any]],
    threads: int | None = None,
    fenced: bool = False,
) -> list[NDArray[Any]]:
    """Builds a program here, runs its kernel in the child process, and returns its outputs.

    Args:
        target: builds the program and loads its module.
        program: concrete.
        inputs: inputs of the kernel.
        threads: threads of the run; None: the kernel's own number.
        fenced: whether a write outside of an array fails the test.

    Raises:
        BuildError: the target has no code for the program.
        RunError: the kernel refuses its inputs.
        KernelCrash: the kernel ended the process, with the program in the message.
        AssertionError: a damaged fence.
    """
    return run_module(target, target.build(program), inputs, threads, fenced, str(program))


def run_module(
    target: Target,
    module: Module,
    inputs: Sequence[NDArray[Any]],
    threads: int | None = None,
    fenced: bool = False,
    text: str = "",
) -> list[NDArray[Any]]:
    """Runs a built module as `run_program` does; `text` is in the message of a crash."""
    code = module.to_bytes()
    described, data = pack_arrays(inputs)
    request = {
        "target": target.name,
        "module_bytes": len(code),
        "arrays": described,
        "threads": threads,
        "fenced": fenced,
    }
    if not _children:
        _children.append(Child({}, "tests.native_child"))
    try:
        header, blob = _children[0].ask(request, code + data, SECONDS)
    except ChildError as error:
        close_child()
        raise KernelCrash(f"the kernel must run, but the process {error.death.how}\n{text}") from None
    if "refused" in header:
        raise RunError(header["refused"])
    assert not header["damage"], f"{header['damage']}\n{text}"
    return unpack_arrays(header["outputs"], blob)


@atexit.register
def close_child() -> None:
    """Ends the child process; the next run has a fresh one."""
    while _children:
        _children.pop().close()

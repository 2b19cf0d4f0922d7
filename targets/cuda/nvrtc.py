"""Compilation of CUDA C++ with NVRTC, which needs no GPU and no driver, and its report on each kernel's resources."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Any

from targets.base import BuildError
from targets.cuda.driver import missing_packages

_FUNCTION = re.compile(r"Compiling entry function '([^']+)'")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED_REGISTERS = re.compile(r"Used (\d+) registers")
_NOTE = re.compile(r"ptxas.*\(C75\d\d\)")
_SHARED = re.compile(r"(\d+) bytes smem")


class MissingCompiler(BuildError):
    """NVRTC or its Python binding is not installed."""


@dataclass(frozen=True)
class Resources:
    """Resources of a thread or a block of a kernel.

    Attributes:
        registers: registers of a thread.
        shared_bytes: declared by the kernel.
        stack_bytes: bytes of a thread's stack, in local memory.
        spill_bytes: stored and loaded because registers did not suffice.
    """

    registers: int
    shared_bytes: int
    stack_bytes: int
    spill_bytes: int


@dataclass(frozen=True)
class CompiledProgram:
    """Machine code, and the resources of each kernel, by name.

    Attributes:
        notes: remarks of the assembler on products of warpgroups: it makes them wait where the text does not.
    """

    cubin: bytes
    resources: dict[str, Resources]
    notes: tuple[str, ...] = ()


@cache
def _binding() -> Any:
    try:
        from cuda.bindings import nvrtc
    except ImportError as error:
        raise MissingCompiler(missing_packages(error)) from error
    return nvrtc


def compile_cubin(text: str, arch: str) -> CompiledProgram:
    """Compiles `text` to machine code for `arch`, such as sm_90.

    Raises:
        BuildError: NVRTC does not take the text; MissingCompiler where it is not installed.
    """
    # Where there is a driver, NVRTC keeps what it made, and what comes out of its cache comes without a report.
    program, log = _compile(text, [f"--gpu-architecture={arch}", "--ptxas-options=-v", "--no-cache"])
    try:
        notes = tuple(line.strip() for line in log.splitlines() if _NOTE.search(line))
        return CompiledProgram(_result(program, "CUBIN"), read_report(log), notes)
    finally:
        _destroy(program)


def compile_ptx(text: str, arch: str) -> str:
    """Compiles `text` to PTX for `arch`.

    Raises:
        BuildError: NVRTC does not take the text.
    """
    program, _ = _compile(text, [f"--gpu-architecture={arch.replace('sm_', 'compute_')}"])
    try:
        return _result(program, "PTX").decode().rstrip("\0")
    finally:
        _destroy(program)


def version() -> str:
    """Returns the version of NVRTC."""
    major, minor = _check(_binding().nvrtcVersion())
    return f"{major}.{minor}"


def read_report(log: str) -> dict[str, Resources]:
    """Parses the assembler's report on each kernel."""
    resources: dict[str, Resources] = {}
    name, stack = "", (0, 0, 0)
    for line in log.splitlines():
        if entry := _FUNCTION.search(line):
            name, stack = entry[1], (0, 0, 0)
        elif frame := _STACK.search(line):
            stack = (int(frame[1]), int(frame[2]), int(frame[3]))
        elif name and (used := _USED_REGISTERS.search(line)):
            shared = _SHARED.search(line)
            resources[name] = Resources(int(used[1]), int(shared[1]) if shared else 0, stack[0], stack[1] + stack[2])
            name = ""
    return resources


def _compile(text: str, options: list[str]) -> tuple[Any, str]:
    """Compiles a program, to be destroyed by the caller; also returns the log."""
    nvrtc = _binding()
    try:
        (program,) = _check(nvrtc.nvrtcCreateProgram(text.encode(), b"kernel.cu", 0, [], []))
    except RuntimeError as error:
        raise MissingCompiler(f"target cuda must have nvidia-cuda-nvrtc installed, but {error}") from error
    flags = [option.encode() for option in (*options, "--std=c++17", "--no-source-include", "-default-device")]
    status = nvrtc.nvrtcCompileProgram(program, len(flags), flags)[0]
    log = _result(program, "ProgramLog").decode(errors="replace").rstrip("\0")
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        _destroy(program)
        raise BuildError(f"NVRTC must accept the emitted code, but said: {log.strip() or status.name}")
    return program, log


def _result(program: Any, what: str) -> bytes:
    nvrtc = _binding()
    (size,) = _check(getattr(nvrtc, f"nvrtcGet{what}Size")(program))
    data = bytearray(size)  # not bytes: NVRTC writes to it, and Python shares those of one character
    _check(getattr(nvrtc, f"nvrtcGet{what}")(program, data))
    return bytes(data)


def _destroy(program: Any) -> None:
    _check(_binding().nvrtcDestroyProgram(program))


def _check(answer: tuple[Any, ...]) -> tuple[Any, ...]:
    """Returns the results of a call without its status."""
    status, *results = answer
    if status != _binding().nvrtcResult.NVRTC_SUCCESS:
        raise BuildError(f"NVRTC must answer, but said {status.name}")
    return tuple(results)

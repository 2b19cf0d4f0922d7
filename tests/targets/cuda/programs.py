"""Loop programs for the CUDA target's tests, and how they are run and mutated."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from search_space.hardware import GpuLimits
from search_space.ir.expr import Expr, const, load, var
from search_space.ir.stmt import Allocate, Barrier, Buffer, For, LoopProgram, Seq, Stmt, Store, seq
from search_space.lower import cleanup, lower
from targets.cuda.kernels import device_program
from targets.cuda.program import DeviceKernel, DeviceProgram
from tests.gpu.handwritten import Tiles, matmul
from tests.targets.cuda.emulator import emulate

LIMITS = GpuLimits()
SMALL = Tiles((2, 2, 2), (2, 2, 4), 4, 2, 2)


def matmul_program(m: int, n: int, k: int, tiles: Tiles = SMALL, pipeline: int = 1) -> LoopProgram:
    """max(a b, 0) with tiles in shared memory, `pipeline` of them at a time."""
    s = matmul(m, n, k, tiles)
    if pipeline > 1:
        s["product"].pragma("r.0", "pipeline", pipeline)
    return cleanup(lower(s.state))


def buffer(name: str, *shape: int, dtype: str = "float32", scope: str = "global") -> Buffer:
    return Buffer(name, tuple(const(n) for n in shape), dtype, scope)


def loop(name: str, extent: int, kind: str, *body: Stmt) -> For:
    return For(name, const(extent), kind, seq(*body))


def at(name: str, *indices: Expr | int, dtype: str = "float32") -> Expr:
    return load(name, indices, dtype)


def make_device_program(
    body: Stmt, *params: Buffer, outputs: tuple[str, ...] = ("y",), limits: GpuLimits = LIMITS
) -> DeviceProgram:
    """The device program of loops."""
    return device_program(LoopProgram("test", params, body, outputs), limits)


def inputs(program: LoopProgram, seed: int = 0) -> dict[str, NDArray[np.float32]]:
    rng = np.random.default_rng(seed)
    shapes = {b.name: tuple(int(e.value) for e in b.shape) for b in program.inputs}
    return {name: rng.uniform(-1, 1, shape).astype(np.float32) for name, shape in shapes.items()}


def output(program: DeviceProgram, arrays: dict[str, NDArray[np.float32]]) -> NDArray[np.float32]:
    return emulate(program, arrays)[program.program.outputs[0]]


def without_each_barrier(program: DeviceProgram) -> Iterator[DeviceProgram]:
    """The program of one kernel, with one of its barriers left out."""
    (kernel,) = program.kernels
    for missing in range(kernel.barriers):
        yield with_body(program, kernel, _without(kernel.body, [missing]))


def with_body(program: DeviceProgram, kernel: DeviceKernel, body: Stmt) -> DeviceProgram:
    return replace(program, kernels=(replace(kernel, body=body),))


def _without(stmt: Stmt, left: list[int]) -> Stmt:
    """Removes one barrier; `left[0]` is the number of barriers that still come before it."""
    if isinstance(stmt, Seq):
        return Seq(tuple(_without(s, left) for s in stmt.body))
    if isinstance(stmt, (For, Allocate)):
        return replace(stmt, body=_without(stmt.body, left))
    if isinstance(stmt, Barrier):
        left[0] -= 1
        return stmt if left[0] != -1 else Seq(())
    return stmt


__all__ = [
    "LIMITS",
    "SMALL",
    "Store",
    "Tiles",
    "at",
    "buffer",
    "inputs",
    "loop",
    "make_device_program",
    "matmul_program",
    "output",
    "var",
    "with_body",
    "without_each_barrier",
]

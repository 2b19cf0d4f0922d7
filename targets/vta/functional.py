"""The functional simulator: executes a stream on simulated buffers and DRAM, exactly, and counts its work."""

from __future__ import annotations

import ctypes
import threading
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from targets.vta.functional_core import ENTRY, ORDER, functional_module
from targets.vta.hardware import VtaHardware
from targets.vta.isa import Table
from targets.vta.native import CompiledModule
from targets.vta.problems import IllegalStream, Problem, refusal
from targets.vta.semantics import Counters, counters, modules
from targets.vta.tokens import deadlock_problems, token_problems
from targets.vta.verify import index_problem, static_problems


@cache
def _compile(hardware: VtaHardware) -> tuple[CompiledModule, Any, Any]:
    """Compiles the native code for a configuration: itself, its order of instructions and its execution."""
    code = CompiledModule(functional_module(hardware))
    pointer, integer = ctypes.c_void_p, ctypes.c_int64
    order = ctypes.CFUNCTYPE(integer, integer, pointer, pointer, pointer)(code.address(ORDER))
    run = ctypes.CFUNCTYPE(integer, integer, *[pointer] * 8)(code.address(ENTRY))
    return code, order, run


class FunctionalSimulator:
    """Buffers of one accelerator, which persist from stream to stream; one thread runs a stream at a time.

    Attributes:
        hardware: its configuration.
    """

    def __init__(self, hardware: VtaHardware) -> None:
        """Creates empty buffers: all zeros."""
        h = self.hardware = hardware
        self._lock = threading.Lock()
        self._pairs = max(1, h.block_in // 2)
        self._uop = np.zeros(h.uop_depth, np.uint32)
        self._inp = np.zeros((h.inp_depth, h.batch, 2 * self._pairs), np.int16)
        self._wgt = np.zeros((h.wgt_depth, self._pairs, h.block_out, 2), np.int16)
        self._acc = np.zeros((h.acc_depth, h.batch, h.block_out), np.int32)

    def run(self, table: Table, dram: NDArray[np.uint8], verified: bool = False) -> Counters:
        """Executes a stream; DRAM is changed in place.

        Args:
            table: fields of the stream, as `isa.to_table` and `isa.decode_table` give them.
            dram: bytes of the whole memory, contiguous.
            verified: the stream is known to keep the rules of `verify.static_problems`, for DRAM of this size, and of
                `tokens.token_problems`.

        Raises:
            Deadlock: modules wait for tokens that never come.
            IllegalStream: another rule is broken. If only indices of micro-operations are wrong, earlier instructions
                have taken effect.
        """
        if dram.dtype != np.uint8 or dram.ndim != 1 or not dram.flags.c_contiguous or not dram.flags.writeable:
            raise ValueError(f"`dram` must be a contiguous array of bytes, but got {dram.dtype} {dram.shape}")
        table = np.ascontiguousarray(table, np.int64)
        if not verified:
            problems = static_problems(table, self.hardware, dram.size) or token_problems(table, self.hardware)
            if problems:
                raise refusal(problems)
        _, find_order, run = _compile(self.hardware.shape)
        order, of = np.zeros(len(table), np.int64), modules(table)
        ran = find_order(len(table), table.ctypes.data, of.ctypes.data, order.ctypes.data)
        if ran < len(table):
            raise refusal(deadlock_problems(table, order[:ran]))
        fault = np.zeros(3, np.int64)
        buffers = (order, table, self._uop, self._inp, self._wgt, self._acc, dram, fault)
        with self._lock:
            index = run(len(table), *(array.ctypes.data for array in buffers))
        if index >= 0:
            raise IllegalStream([Problem(index, index_problem(table[index], fault.tolist(), self.hardware))])
        return counters(table, self.hardware)

    def fill(self, value: int) -> None:
        """Sets every byte of the buffers, so that results of earlier streams are of no use to the next."""
        byte = np.array([value], np.uint8)
        lanes = min(2, self.hardware.block_in)  # the others stay 0
        with self._lock:
            self._uop[...] = np.repeat(byte, 4).view(np.uint32)
            self._inp[:, :, : self.hardware.block_in] = byte.view(np.int8)
            self._wgt[..., :lanes] = byte.view(np.int8)
            self._acc[...] = np.repeat(byte, 4).view(np.int32)

    @property
    def uop(self) -> NDArray[np.uint32]:
        """Micro-operations as words: (depth,)."""
        return self._uop.copy()

    @property
    def inp(self) -> NDArray[np.int8]:
        """The input buffer: (depth, BATCH, BLOCK_IN)."""
        return self._inp[:, :, : self.hardware.block_in].astype(np.int8)

    @property
    def wgt(self) -> NDArray[np.int8]:
        """The weight buffer: (depth, BLOCK_OUT, BLOCK_IN)."""
        flat = self._wgt.transpose(0, 2, 1, 3).reshape(self.hardware.wgt_depth, self.hardware.block_out, -1)
        return flat[:, :, : self.hardware.block_in].astype(np.int8)

    @property
    def acc(self) -> NDArray[np.int32]:
        """The accumulator: (depth, BATCH, BLOCK_OUT)."""
        return self._acc.copy()

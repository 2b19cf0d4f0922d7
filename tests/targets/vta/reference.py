"""An interpreter of VTA streams in plain Python, written from the specification alone: the oracle of the simulator."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from targets.vta.hardware import VtaHardware
from targets.vta.isa import Alu, Finish, Gemm, Instruction, Load, Store

MASK = 0xFFFFFFFF


def wrap(value: int) -> int:
    """A number as int32 holds it."""
    return ((value & MASK) ^ 0x80000000) - 0x80000000


def operate(operation: int, x: int, y: int) -> int:
    """One scalar operation of the ALU."""
    if operation == 0:
        return min(x, y)
    if operation == 1:
        return max(x, y)
    if operation == 2:
        return wrap(x + y)
    if operation == 3:
        return x >> (y & 31) if y >= 0 else wrap(x << (-y & 31))
    assert operation == 4
    return wrap(x * y)


class Interpreter:
    """One accelerator, element by element."""

    def __init__(self, h: VtaHardware) -> None:
        self.h = h
        self.uop: list[tuple[int, int, int]] = [(0, 0, 0)] * h.uop_depth
        self.inp = np.zeros((h.inp_depth, h.batch, h.block_in), np.int8)
        self.wgt = np.zeros((h.wgt_depth, h.block_out, h.block_in), np.int8)
        self.acc = np.zeros((h.acc_depth, h.batch, h.block_out), np.int32)
        self.counts: dict[str, int] = dict.fromkeys(("inp", "wgt", "acc", "uop", "out", "gemm", "alu"), 0)

    def run(self, stream: list[Instruction], dram: NDArray[np.uint8]) -> None:
        """Executes in the order in which each module goes as far as its tokens let it."""
        queues: list[list[Instruction]] = [[], [], []]
        for op in stream:
            module = 2 if isinstance(op, Store) else 0 if isinstance(op, Load) and op.memory in (1, 2) else 1
            queues[module].append(op)
        tokens = {(0, 1): 0, (1, 0): 0, (1, 2): 0, (2, 1): 0}
        while any(queues):
            before = sum(map(len, queues))
            for module, queue in enumerate(queues):
                while queue:
                    op = queue[0]
                    wanted = [(module - 1, module)] * op.pop_prev + [(module + 1, module)] * op.pop_next
                    if any(tokens[pair] == 0 for pair in wanted):
                        break
                    for pair in wanted:
                        tokens[pair] -= 1
                    self.execute(op, dram)
                    for pair in [(module, module - 1)] * op.push_prev + [(module, module + 1)] * op.push_next:
                        tokens[pair] += 1
                    queue.pop(0)
            assert sum(map(len, queues)) < before, "deadlock"

    def execute(self, op: Instruction, dram: NDArray[np.uint8]) -> None:
        """One instruction."""
        if isinstance(op, Load):
            self.load(op, dram)
        elif isinstance(op, Store):
            self.store(op, dram)
        elif isinstance(op, Gemm | Alu):
            self.loops(op)
        else:
            assert isinstance(op, Finish)

    def load(self, op: Load, dram: NDArray[np.uint8]) -> None:
        """Rows with zeros around them."""
        if op.x_size == 0:
            return
        h = self.h
        size = {0: 4, 1: h.block_out * h.block_in, 2: h.batch * h.block_in, 3: 4 * h.batch * h.block_out}
        size[5] = h.batch * h.block_out
        counted, counted_size = {0: "uop", 1: "wgt", 2: "inp", 3: "acc", 5: "acc"}[op.memory], dict(size)
        counted_size[5] = size[3]
        self.counts[counted] += op.x_size * op.y_size * counted_size[op.memory]
        to = op.sram_base
        for y in range(-op.y_pad_0, op.y_size + op.y_pad_1):
            for x in range(-op.x_pad_0, op.x_size + op.x_pad_1):
                inside = 0 <= y < op.y_size and 0 <= x < op.x_size
                data = bytes(size[op.memory])
                if inside:
                    address = (op.dram_base + y * op.x_stride + x) * size[op.memory]
                    data = dram[address : address + size[op.memory]].tobytes()
                self.put(op.memory, to, data)
                to += 1

    def put(self, memory: int, to: int, data: bytes) -> None:
        """One element."""
        h = self.h
        if memory == 0:
            word = int.from_bytes(data, "little")
            acc, inp, wgt = (d.bit_length() - 1 for d in (h.acc_depth, h.inp_depth, h.wgt_depth))
            src = max(acc, inp)
            self.uop[to] = (word % 2**acc, (word >> acc) % 2**src, (word >> (acc + src)) % 2**wgt)
        elif memory == 3:
            self.acc[to] = np.frombuffer(data, np.int32).reshape(h.batch, h.block_out)
        else:
            target: NDArray[Any] = {1: self.wgt, 2: self.inp, 5: self.acc}[memory]
            target[to] = np.frombuffer(data, np.int8).reshape(target.shape[1:])

    def store(self, op: Store, dram: NDArray[np.uint8]) -> None:
        """Low bytes of the accumulator, dense on the chip."""
        size = self.h.batch * self.h.block_out
        self.counts["out"] += op.x_size * op.y_size * size
        for y in range(op.y_size):
            for x in range(op.x_size):
                low = (self.acc[op.sram_base + y * op.x_size + x] & 255).astype(np.uint8).reshape(-1)
                address = (op.dram_base + y * op.x_stride + x) * size
                dram[address : address + size] = low

    def loops(self, op: Gemm | Alu) -> None:
        """Micro-operations one by one."""
        count = op.iter_out * op.iter_in * (op.uop_end - op.uop_begin)
        if isinstance(op, Alu):
            self.counts["alu"] += count
        elif not op.reset:
            self.counts["gemm"] += count
        for i in range(op.iter_out):
            for j in range(op.iter_in):
                for u in range(op.uop_begin, op.uop_end):
                    dst, src, wgt = self.uop[u]
                    dst += i * op.dst_out + j * op.dst_in
                    src += i * op.src_out + j * op.src_in
                    if isinstance(op, Alu):
                        flat = self.acc[dst].reshape(-1)
                        other = [op.imm] * flat.size if op.use_imm else self.acc[src].reshape(-1).tolist()
                        flat[:] = [operate(op.alu_op, x, y) for x, y in zip(flat.tolist(), other, strict=True)]
                    elif op.reset:
                        self.acc[dst] = 0
                    else:
                        wgt += i * op.wgt_out + j * op.wgt_in
                        product = self.inp[src].astype(np.int64) @ self.wgt[wgt].astype(np.int64).T
                        total = (self.acc[dst].astype(np.int64) + product) & MASK
                        self.acc[dst] = total.astype(np.uint32).view(np.int32)

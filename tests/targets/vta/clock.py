"""VTA's timing cycle by cycle in plain Python, written from docs/vta.md alone: the oracle of the timing simulator."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from targets.vta.hardware import VtaHardware
from targets.vta.isa import Alu, Gemm, Instruction, Load, Store


def costs(op: Instruction, h: VtaHardware) -> tuple[int, int, int]:
    """Cycles before the first row, rows, and cycles of the port for each row."""
    if isinstance(op, Gemm):
        count = op.iter_out * op.iter_in * (op.uop_end - op.uop_begin)
        return h.gemm_latency + h.gemm_interval * count, 0, 0
    if isinstance(op, Alu):
        count = op.iter_out * op.iter_in * (op.uop_end - op.uop_begin)
        return h.alu_latency + (h.alu_imm_interval if op.use_imm else h.alu_tensor_interval) * count, 0, 0
    if isinstance(op, Load | Store) and op.x_size:
        size = {0: 4, 1: h.wgt_bytes, 2: h.inp_bytes, 3: h.acc_bytes, 4: h.out_bytes, 5: h.out_bytes}[op.memory]
        rate = min(h.wgt_bytes_per_cycle, h.dma_bytes_per_cycle) if op.memory == 1 else h.dma_bytes_per_cycle
        return h.dma_latency, op.y_size, math.ceil(op.x_size * size / rate)
    return h.noop_latency, 0, 0


def instruction_module(op: Instruction) -> int:
    """Load, compute or store."""
    if isinstance(op, Store):
        return 2
    return 0 if isinstance(op, Load) and op.memory in (1, 2) else 1


@dataclass
class Module:
    """One of the three."""

    queue: list[int] = field(default_factory=list)
    running: int = -1
    until: int = 0
    rows: int = 0
    busy: int = 0


class Clock:
    """All of the machine."""

    def __init__(self, stream: list[Instruction], h: VtaHardware) -> None:
        self.stream, self.h = stream, h
        self.modules = [Module() for _ in range(3)]
        self.tokens = {(0, 1): 0, (1, 0): 0, (1, 2): 0, (2, 1): 0}
        self.port, self.fetch_count, self.fetch_time = 0, 0, h.fetch_latency
        self.start, self.end = [-1] * len(stream), [-1] * len(stream)

    def run(self, most: int = 100_000) -> None:
        """Ticks until all have ended, or for `most` cycles."""
        for now in range(most):
            while self.fetch(now) or any(self.act(m, now) for m in range(3)):
                pass
            if min(self.end) >= 0:
                return

    def fetch(self, now: int) -> bool:
        """The next instruction enters its queue."""
        if self.fetch_count == len(self.stream) or now < self.fetch_time:
            return False
        queue = self.modules[instruction_module(self.stream[self.fetch_count])].queue
        if len(queue) >= self.h.queue_depth:
            return False
        queue.append(self.fetch_count)
        self.fetch_count, self.fetch_time = self.fetch_count + 1, now + self.h.fetch_interval
        return True

    def act(self, m: int, now: int) -> bool:
        """One thing that a module does in this cycle."""
        module = self.modules[m]
        if module.running < 0:
            if not module.queue:
                return False
            op = self.stream[module.queue[0]]
            wanted = [(m - 1, m)] * op.pop_prev + [(m + 1, m)] * op.pop_next
            if any(self.tokens[pair] == 0 for pair in wanted):
                return False
            for pair in wanted:
                self.tokens[pair] -= 1
            module.running = module.queue.pop(0)
            self.start[module.running] = now
            work, module.rows, module.busy = costs(op, self.h)
            module.until = now + work + (self.h.dma_row_latency if module.rows else 0)
            return True
        if now < module.until:
            return False
        if module.rows:
            self.port = module.until = max(now, self.port) + module.busy
            module.rows -= 1
            module.until += self.h.dma_row_latency if module.rows else 0
            return True
        op = self.stream[module.running]
        for pair in [(m, m - 1)] * op.push_prev + [(m, m + 1)] * op.push_next:
            self.tokens[pair] = min(self.tokens[pair] + 1, self.h.token_limit)
        self.end[module.running], module.running = now, -1
        return True

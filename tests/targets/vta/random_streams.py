"""Random streams that keep every rule, for the tests of VTA's simulators."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from targets.vta import isa
from targets.vta.hardware import PYNQ, VtaHardware
from targets.vta.isa import Alu, Finish, Gemm, Instruction, Load, Store

SMALL = replace(PYNQ, log_uop_buffer=7, log_inp_buffer=9, log_wgt_buffer=12, log_acc_buffer=11)
"""The default blocks in buffers of a few elements, which random accesses hit often."""


def make_small(batch: int, block_in: int, block_out: int, log_depth: int = 5) -> VtaHardware:
    """Any blocks in buffers of 32 elements."""
    logs = [(size).bit_length() - 1 for size in (batch, block_in, block_out)]
    inp, wgt, acc = logs[0] + logs[1], logs[1] + logs[2], logs[0] + logs[2] + 2
    return replace(
        PYNQ,
        name=f"{batch}x{block_in}x{block_out}",
        log_batch=logs[0],
        log_block_in=logs[1],
        log_block_out=logs[2],
        log_uop_buffer=7,
        log_inp_buffer=inp + log_depth,
        log_wgt_buffer=wgt + log_depth,
        log_acc_buffer=acc + log_depth,
    )


def _loops(draw: np.random.Generator, most: dict[str, int], depths: dict[str, int]) -> dict[str, int]:
    """Loops and factors that keep indices, which are at most `most`, within the buffers."""
    loops = {"iter_out": int(draw.integers(0 if draw.random() < 0.1 else 1, 5)), "iter_in": int(draw.integers(1, 5))}
    for name, depth in depths.items():
        room = depth - 1 - most[name]
        for loop in draw.permutation(["out", "in"]).tolist():
            turns = max(loops[f"iter_{loop}"] - 1, 0)
            factor = int(draw.integers(0, (room // turns if turns else depth - 1) + 1))
            factor = min(factor, depth - 1)
            loops[f"{name}_{loop}"] = factor
            room -= turns * factor
    return loops


def random_stream(
    draw: np.random.Generator, h: VtaHardware, count: int, dram_bytes: int = 1 << 16
) -> tuple[list[Instruction], NDArray[np.uint8]]:
    """`count` instructions and an end, and the memory to run them on. Only the end has tokens."""
    dram = draw.integers(0, 256, dram_bytes, dtype=np.uint8)
    uop_count = h.uop_depth
    uops = np.stack(
        [draw.integers(0, depth, uop_count) for depth in (h.acc_depth // 2, h.inp_depth // 2, h.wgt_depth // 2)], axis=1
    )
    uops[:, 1] %= h.acc_depth // 2
    dram[: 4 * uop_count] = isa.encode_uops(uops, h).view(np.uint8)
    stream: list[Instruction] = [Load(memory=isa.UOP, x_size=uop_count)]
    start = -(-4 * uop_count // h.acc_bytes)  # data must not overwrite the micro-operations
    for _ in range(count):
        stream.append(_random_instruction(draw, h, uops, start, dram_bytes))
    return append_finish(stream), dram


def append_finish(stream: list[Instruction]) -> list[Instruction]:
    """The stream with a FINISH that waits for the other modules, and orders nothing else."""
    return [
        *stream,
        Load(memory=isa.INP, push_next=1),
        Store(memory=isa.OUT, push_prev=1),
        Finish(pop_prev=1, pop_next=1),
    ]


def _random_instruction(
    draw: np.random.Generator, h: VtaHardware, uops: NDArray[np.int64], start: int, dram_bytes: int
) -> Instruction:
    kind = draw.choice(["load", "store", "gemm", "gemm", "reset", "alu", "alu", "noop"])
    if kind in ("load", "store", "noop"):
        memory = isa.OUT if kind == "store" else int(draw.choice([isa.WGT, isa.INP, isa.ACC, isa.ACC_8BIT]))
        depth = {isa.WGT: h.wgt_depth, isa.INP: h.inp_depth}.get(memory, h.acc_depth)
        size = {isa.WGT: h.wgt_bytes, isa.INP: h.inp_bytes, isa.ACC: h.acc_bytes}.get(memory, h.out_bytes)
        pads = dict.fromkeys(("y_pad_0", "y_pad_1", "x_pad_0", "x_pad_1"), 0)
        while True:
            y, x = int(draw.integers(0, 5)), int(draw.integers(0 if kind == "noop" else 1, 6))
            if kind != "store":
                pads = {pad: int(draw.integers(0, 3)) for pad in pads}
            covered = (y + pads["y_pad_0"] + pads["y_pad_1"]) * (x + pads["x_pad_0"] + pads["x_pad_1"])
            if covered <= depth:
                break
        stride = int(draw.integers(0, 9))
        first = start * h.acc_bytes // size
        room = dram_bytes // size - 4 * stride - x
        base = int(draw.integers(first, room))
        values = {"sram_base": int(draw.integers(0, depth - covered + 1)), "dram_base": base, "x_stride": stride}
        if kind == "noop":
            x, values["sram_base"] = 0, 65535
        cls = Store if kind == "store" else Load
        return cls(memory=memory, y_size=y, x_size=x, **values, **pads)
    begin = int(draw.integers(0, h.uop_depth))
    end = int(draw.integers(begin, min(begin + 4, h.uop_depth) + 1))
    chosen = uops[begin:end]
    most = dict(zip(("dst", "src", "wgt"), chosen.max(axis=0).tolist() if len(chosen) else [0, 0, 0], strict=True))
    common = {"uop_begin": begin, "uop_end": end}
    if kind == "alu":
        loops = _loops(draw, most, {"dst": h.acc_depth, "src": h.acc_depth})
        operation = int(draw.integers(0, 5))
        imm = int(draw.integers(-40, 40)) if operation == isa.SHR else int(draw.integers(-(1 << 15), 1 << 15))
        return Alu(alu_op=operation, use_imm=int(draw.integers(0, 2)), imm=imm, **common, **loops)
    loops = _loops(draw, most, {"dst": h.acc_depth, "src": h.inp_depth, "wgt": h.wgt_depth})
    return Gemm(reset=int(kind == "reset"), **common, **loops)


def with_tokens(draw: np.random.Generator, stream: list[Instruction]) -> list[Instruction]:
    """An `append_finish` stream with a token from each change of module to the next, so that it runs in the order
    given.

    Neighbours only share tokens: from load to store and back, and before FINISH, no-operations of compute pass them on.
    """
    found: list[Instruction] = []
    last = 1
    for op in [*stream[:-3], None, Finish()]:
        module = 1 if op is None else _module(op)
        if op is None and last == 1:
            continue
        if abs(module - last) == 2:
            found.append(_noop(1))
            _pass(found, last)
            last = 1
        found.append(_noop(1) if op is None else op)
        if module != last:
            _pass(found, last)
        last = module
    return found


def _module(op: Instruction) -> int:
    if isinstance(op, Store):
        return 2
    return 0 if isinstance(op, Load) and op.memory in (isa.WGT, isa.INP) else 1


def _noop(module: int) -> Instruction:
    assert module == 1
    return Load(memory=isa.UOP, x_size=0)


def _pass(stream: list[Instruction], last: int) -> None:
    """A token from the instruction before the last to the last one."""
    giver, taker = stream[-2], stream[-1]
    forward = _module(taker) > last
    stream[-2] = replace(giver, **{"push_next" if forward else "push_prev": 1})
    stream[-1] = replace(taker, **{"pop_prev" if forward else "pop_next": 1})

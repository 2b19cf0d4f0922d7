"""Loaded streams: an image of DRAM with inputs in place, run by the functional simulator, timed by the other one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from search_space.dtypes import numpy_dtype
from targets.base import Bound, Kernel, Module, Parameter, RunError
from targets.vta.functional import FunctionalSimulator
from targets.vta.hardware import VtaHardware
from targets.vta.isa import EncodingError, Table, Words, decode_table
from targets.vta.problems import IllegalStream
from targets.vta.semantics import counters
from targets.vta.timing import Timing, simulate
from targets.vta.tokens import token_problems
from targets.vta.verify import static_problems

_UNWRITTEN = 0xA5
"""Byte that fills memory without data, so that a missing write to an output is detected."""


def instruction_words(module: Module) -> Words:
    """Returns the instructions of a module: (instructions, 2)."""
    count: int = module.metadata["instructions"]
    return np.frombuffer(module.object_code, np.uint64, 2 * count).reshape(-1, 2)


class VtaKernel(Kernel):
    """A module with a decoded stream that terminates and keeps the rules that need no execution.

    Raises:
        RunError: a stream that is cut off or breaks a rule.
    """

    def __init__(self, module: Module) -> None:
        self.module, facts = module, module.metadata
        self.hardware = VtaHardware.from_json(facts["hardware"])
        self.dram_bytes: int = facts["dram_bytes"]
        self.uops = np.frombuffer(module.object_code, np.uint8)[16 * facts["instructions"] :]
        if facts["uops"] + self.uops.size != self.dram_bytes:
            expected = self.dram_bytes - facts["uops"]
            raise RunError(f"a module must have {expected} bytes of micro-operations, but got {self.uops.size}")
        try:
            self.table: Table = decode_table(instruction_words(module), self.hardware)
        except EncodingError as error:
            raise RunError(f"a stream must be one of VTA's, but {error}") from error
        problems = static_problems(self.table, self.hardware, self.dram_bytes)
        if problems := problems or token_problems(self.table, self.hardware):
            raise RunError(f"a stream must keep VTA's rules, but {IllegalStream(problems)}")

    @cached_property
    def timing(self) -> Timing:
        """Result of the timing simulator for the stream; it does not depend on the data."""
        return simulate(self.table, self.hardware, verified=True)

    @property
    def seconds(self) -> float:
        """Seconds of one run."""
        return self.hardware.seconds(self.timing.cycles)

    def metrics(self) -> dict[str, float]:
        """Returns figures of a stream besides its time, for records; shares are of all cycles, the host's included."""
        timing = self.timing
        cycles = max(timing.cycles, 1)
        compute = timing.gemm_cycles + timing.reset_cycles + timing.alu_cycles
        return {
            "cycles": timing.cycles,
            "gemm_utilisation": timing.gemm_cycles / cycles,
            "gemm_bound": timing.gemm_cycles / max(compute, 1),
            "port_utilisation": timing.port_utilisation,
            "dram_bytes": _dram_bytes(self.table, self.hardware),
            "instructions": len(self.table),
        }

    def bind(self, inputs: Sequence[NDArray[Any]], copies: int = 1, fenced: bool = False) -> VtaBound:
        self.check(inputs)
        return VtaBound(self, inputs)


@cache
def _simulator(shape: VtaHardware) -> FunctionalSimulator:
    """Returns one simulator for all kernels of a design: every stream reads only data that it has written."""
    return FunctionalSimulator(shape)


def _dram_bytes(table: Table, hardware: VtaHardware) -> int:
    """Counts the bytes that a stream moves between DRAM and the chip, without its own instructions."""
    moved = counters(table, hardware)
    return moved.inp_bytes + moved.wgt_bytes + moved.acc_bytes + moved.uop_bytes + moved.out_bytes


class VtaBound(Bound):
    """A stream and an image of DRAM with its inputs in place.

    Attributes:
        dram: bytes of the whole memory.
        deterministic: true; one simulation tells the time of every run.
    """

    deterministic = True

    def __init__(self, kernel: VtaKernel, inputs: Sequence[NDArray[Any]]) -> None:
        self.kernel, module = kernel, kernel.module
        self._parameters = {p.name: p for p in module.parameters}
        self.dram = np.full(kernel.dram_bytes, _UNWRITTEN, np.uint8)
        self.dram[module.metadata["uops"] :] = kernel.uops
        self.outputs = [self.view(name) for name in module.outputs]
        self.feed(inputs, _UNWRITTEN)

    def view(self, name: str) -> NDArray[Any]:
        """Returns a tensor as a view of the image."""
        parameter: Parameter = self._parameters[name]
        place, size = self._byte_range(name)
        return self.dram[place : place + size].view(numpy_dtype(parameter.dtype)).reshape(parameter.shape)

    def _byte_range(self, name: str) -> tuple[int, int]:
        """Returns the first byte of a tensor in the image, and the number of its bytes."""
        parameter = self._parameters[name]
        size = int(np.prod(parameter.shape)) * numpy_dtype(parameter.dtype).itemsize
        return self.kernel.module.metadata["places"][name], size

    def run(self, threads: int | None = None) -> NDArray[Any]:
        """Runs the stream once, simulated bit for bit, and returns the output.

        Raises:
            RunError: an index that micro-operations make leaves its buffer.
        """
        kernel = self.kernel
        try:
            _simulator(kernel.hardware.shape).run(kernel.table, self.dram, verified=True)
        except IllegalStream as error:
            raise RunError(f"a stream must keep VTA's rules, but {error}") from error
        return self.outputs[0]

    def feed(self, inputs: Sequence[NDArray[Any]], fill: int) -> None:
        """Puts inputs in place, and overwrites results of earlier streams on the chip."""
        for parameter, array in zip(self.kernel.module.sources, inputs, strict=True):
            self.view(parameter.name)[...] = array
        self._expected_dram = self.dram.copy()
        _simulator(self.kernel.hardware.shape).fill(fill)

    def fetch(self) -> NDArray[Any]:
        return self.outputs[0]

    def damage(self) -> str:
        """Describes in a sentence which bytes of DRAM besides the outputs the stream has changed; empty if none."""
        changed = self.dram != self._expected_dram
        for name in self.kernel.module.outputs:
            place, size = self._byte_range(name)
            changed[place : place + size] = False
        if not changed.any():
            return ""
        first = int(np.argmax(changed))
        return f"a stream must write to its output alone, but it changed {int(changed.sum())} bytes, first byte {first}"

    def time(self, iterations: int, threads: int | None = None) -> NDArray[np.float64]:
        """Returns the seconds by the timing simulator, equal for all executions."""
        return np.full(iterations, self.kernel.seconds)

    def metrics(self) -> dict[str, float]:
        return self.kernel.metrics()

"""The VTA target: loop programs become instruction streams, which a simulator checks, runs and times."""

from __future__ import annotations

import json
import re
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from search_space import strict_json
from search_space.hardware import Hardware
from search_space.intrinsics import GEMM_TILE
from search_space.ir.stmt import LoopProgram
from search_space.ir.verify import verify
from targets.base import BuildError, Module, Target
from targets.vta.assembly import print_stream
from targets.vta.emit import emit
from targets.vta.hardware import PYNQ, ConfigurationError, VtaHardware
from targets.vta.isa import EncodingError, decode, encode_table
from targets.vta.kernel import VtaKernel, instruction_words
from targets.vta.verify import work_problems

MOST_NESTS = 4096
"""Nests of loops that a program may run: as each is an instruction or more, streams stay within some thousands."""
_BLOCKS = re.compile(r"(\d+)x(\d+)x(\d+)")


class VtaTarget(Target):
    """Code for one VTA design, run on its simulators.

    Args:
        vta: the design.
        name: name of the target in records.
    """

    simulated = True
    host = "cpu"

    def __init__(self, vta: VtaHardware = PYNQ, name: str = "vta") -> None:
        self.vta, self.name = vta, name

    @cached_property
    def hardware(self) -> Hardware:
        return make_hardware(self.vta, self.name)

    def fastest(self, threads: int) -> float:
        return 16 * self.hardware.peak_flops  # a simulator takes its cycles from the design itself

    def build(self, program: LoopProgram, name: str = "kernel") -> Module:
        verify(program)
        if program.prologues:
            raise BuildError(
                f"constants must be as the workload gives them, but {program.prologues[0].outputs} is packed"
            )
        kernel = emit(program, self.vta)
        if problems := work_problems(kernel.program.table, self.vta):
            raise BuildError(str(problems[0]))
        try:
            words = encode_table(kernel.program.table, self.vta)
        except EncodingError as error:
            raise BuildError(f"a stream must be encodable, but {error}") from error
        uops = kernel.program.dram[kernel.uops :]
        return Module.of(
            program,
            name,
            self.name,
            words.tobytes() + uops.tobytes(),
            {
                "hardware": self.vta.to_json(),
                "instructions": len(words),
                "places": kernel.addresses,
                "uops": kernel.uops,
                "dram_bytes": kernel.program.dram.size,
            },
        )

    def configuration(self) -> dict[str, Any]:
        return self.vta.to_json()

    def load(self, module: Module) -> VtaKernel:
        return VtaKernel(module)

    def assembly(self, module: Module) -> str:
        """Formats the positions of the tensors, and the instructions with their tokens, one a line."""
        facts = module.metadata
        hardware = VtaHardware.from_json(facts["hardware"])
        lines = [f"# {module.name} on {hardware.name}: {facts['instructions']} instructions"]
        lines += [f"# {p.name}: {p.dtype} {list(p.shape)} at byte {facts['places'][p.name]}" for p in module.parameters]
        lines.append(f"# micro-operations at byte {facts['uops']}")
        return "\n".join(lines) + "\n" + print_stream(decode(instruction_words(module), hardware))

    def export(self, module: Module, folder: Path, name: str) -> list[str]:
        """Writes `name`.bin, the instructions and behind them the micro-operations, and `name`.json; their names."""
        files = {f"{name}.bin": module.object_code, f"{name}.json": _description(module).encode()}
        for file, data in files.items():
            (Path(folder) / file).write_bytes(data)
        return list(files)


def _description(module: Module) -> str:
    """Describes the positions of an exported module's tensors in DRAM, and its design."""
    tensors = [{"name": p.name, "shape": p.shape, "dtype": p.dtype} for p in module.parameters]
    return json.dumps({"tensors": tensors, "outputs": module.outputs, **module.metadata}, indent=2) + "\n"


def make_hardware(vta: VtaHardware, name: str) -> Hardware:
    """Describes a design for sketch rules and the roofline."""
    buffers = (1 << vta.log_inp_buffer, 1 << vta.log_wgt_buffer, 1 << vta.log_acc_buffer)
    return Hardware(
        name=name,
        cores=1,
        vector_bytes=vta.batch * vta.block_out * 4,
        vector_registers=vta.acc_depth,
        l1_bytes=sum(buffers),
        l2_bytes=sum(buffers),
        l3_bytes=sum(buffers),
        peak_flops=2 * vta.peak_macs_per_second,
        bandwidth=vta.dma_bytes_per_cycle * vta.clock_hz,
        features=(f"{GEMM_TILE}:{vta.batch}x{vta.block_out}x{vta.block_in}",),
        memories=tuple(zip(("input", "weight", "accumulator"), buffers, strict=True)),
        clock_hz=vta.clock_hz / vta.gemm_interval,
        fill=(("weight", min(vta.wgt_bytes_per_cycle, vta.dma_bytes_per_cycle) * vta.clock_hz),),
        row_seconds=vta.seconds(vta.dma_row_latency),
        most_nests=MOST_NESTS,
    )


def design(variant: str) -> VtaHardware:
    """Returns the design that a target's name asks for.

    Args:
        variant: empty or `pynq`; `BxIxO`, the PYNQ with blocks of that batch, input and output channels;
            `FIELD=VALUE,FIELD=VALUE` of `VtaHardware`; or a JSON file of fields.

    Raises:
        ValueError: none of these, or a configuration that no VTA can have.
    """
    if variant in ("", PYNQ.name):
        return PYNQ
    if found := _BLOCKS.fullmatch(variant):
        batch, ins, outs = map(int, found.groups())
        return PYNQ.with_blocks(batch, ins, outs)
    if not variant.endswith(".json"):
        if "=" not in variant:
            wanted = "pynq, BxIxO, FIELD=VALUE or a .json file"
            raise ValueError(f"`target` vta must be followed by {wanted}, but got vta:{variant}")
        return VtaHardware.from_spec(variant)
    try:
        content = Path(variant).read_bytes()
    except OSError as error:
        raise ValueError(f"`target` must name a readable file, but got vta:{variant}: {error.strerror}") from None
    try:
        data = strict_json.loads(content)
    except ValueError as error:
        raise ValueError(f"{variant}: a design must be JSON, but {error}") from None
    try:
        return VtaHardware.from_json(data)
    except (ConfigurationError, ValueError, AttributeError, TypeError) as error:
        raise ValueError(f"{variant}: {error}") from None


@cache
def get_target(spec: str = "vta") -> VtaTarget:
    """Returns `vta` (a PYNQ), `vta:BxIxO` with other blocks, `vta:FIELD=VALUE`, or `vta:FILE.json`; see `design`."""
    _, _, variant = spec.partition(":")
    return VtaTarget(design(variant), spec)


__all__ = ["VtaTarget", "design", "get_target", "make_hardware"]

"""The rules for GPUs, in the order in which they are tried, and their limits. A new rule is a file and a line here."""

from __future__ import annotations

from search_space.hardware import Hardware
from search_space.ir.stmt import Constraint, LoopProgram
from search_space.lower.blocks import shared_limits, thread_limits
from search_space.machines.base import Machine
from search_space.machines.gpu.blocks import require_gpu
from search_space.machines.gpu.elementwise import GpuElementwise
from search_space.machines.gpu.inline import GpuInline, GpuRefusal
from search_space.machines.gpu.rowparts import GpuLongRows, GpuRowParts
from search_space.machines.gpu.rowwise import GpuRowWise
from search_space.machines.gpu.tensor_cores import GpuTensorCores
from search_space.machines.gpu.tiling import GpuTiling
from search_space.machines.gpu.transposed import GpuTransposition
from search_space.machines.gpu.warpgroups import GpuWarpgroups
from search_space.machines.shared.inline import AlwaysInline


def _limits(program: LoopProgram, hardware: Hardware) -> tuple[Constraint, ...]:
    gpu = require_gpu(hardware)
    return (*shared_limits(program, gpu), *thread_limits(program, gpu))


GPU = Machine(
    rules=[
        GpuRefusal(),
        GpuInline(),
        AlwaysInline(windows_are_copied=True),
        GpuLongRows(),
        GpuRowWise(),
        GpuWarpgroups(),
        GpuTensorCores(),
        GpuTiling(),
        GpuRowParts(),
        GpuTransposition(),
        GpuElementwise(),
    ],
    limits=_limits,
)

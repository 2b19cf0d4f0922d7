"""The rules for accelerators, in the order in which they are tried, and the limits of their memories."""

from __future__ import annotations

from search_space.hardware import Hardware
from search_space.ir.stmt import Constraint, LoopProgram
from search_space.lower.memories import memory_limits, nest_limit
from search_space.machines.accelerator.tiling import ExplicitMemory
from search_space.machines.base import Machine
from search_space.machines.shared.inline import AlwaysInline
from search_space.machines.shared.pad import PadHandling


def _limits(program: LoopProgram, hardware: Hardware) -> tuple[Constraint, ...]:
    return (*memory_limits(program, hardware.memories), *nest_limit(program, hardware.most_nests))


ACCELERATOR = Machine(rules=[AlwaysInline(), PadHandling(), ExplicitMemory()], limits=_limits)

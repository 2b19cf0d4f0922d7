"""The interface of a kind of machine: its sketch rules, and its limits on programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from search_space.hardware import Hardware
from search_space.ir.stmt import Constraint, LoopProgram
from search_space.sketch.base import Draft, SketchRule


def _only_the_plain_one(draft: Draft, hardware: Hardware) -> Sequence[Draft]:
    return ()


def _none(program: LoopProgram, hardware: Hardware) -> tuple[Constraint, ...]:
    return ()


@dataclass(frozen=True)
class Machine:
    """A kind of machine, see `Hardware.kind`.

    Attributes:
        rules: sketch rules in the order in which they are tried; the first that matches a stage decides.
        starts: function that lists the drafts to begin with besides the plain one, in which element-wise producers are
            inlined.
        limits: function that lists a program's limits on such a machine, besides the constraints that lowering finds.
    """

    rules: list[SketchRule]
    starts: Callable[[Draft, Hardware], Sequence[Draft]] = _only_the_plain_one
    limits: Callable[[LoopProgram, Hardware], tuple[Constraint, ...]] = _none

"""What a kind of machine is: the sketch rules for it, and the limits that it sets to a program."""

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
        rules: in the order in which they are tried; the first that matches a stage decides.
        starts: drafts that rules begin with besides the plain one, of which element-wise producers are inlined.
        limits: what a program takes of such a machine, as limits on its decisions, besides those that lowering finds.
    """

    rules: list[SketchRule]
    starts: Callable[[Draft, Hardware], Sequence[Draft]] = _only_the_plain_one
    limits: Callable[[LoopProgram, Hardware], tuple[Constraint, ...]] = _none

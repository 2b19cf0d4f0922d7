"""Traces found at one size, opened to ranges of it, each from the smallest size for which a form of the trace holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from autotune.tuner.open_traces import OpenTrace, open_trace
from search_space import te
from search_space.ir.stmt import LoopProgram
from search_space.lower import cleanup, lower
from search_space.schedule.errors import ScheduleError
from search_space.schedule.opened import variants
from search_space.schedule.state import State, initial_state
from search_space.schedule.trace import Trace
from targets import registry
from targets.base import Kernel, Module

Define = Callable[[Any], Sequence[te.Tensor]]
"""Function of a size, as a number or as a variable → inputs..., output."""


@dataclass(frozen=True)
class Opening:
    """Trace with the size open, and the sizes for which it holds, both ends inclusive."""

    trace: Trace
    low: int
    high: int


def state_at(define: Define, low: int, high: int, size: str) -> State:
    """Makes the unscheduled state of a definition, with the size a number if the range has only one."""
    *inputs, output = define(low if low == high else te.var(size, low, high))
    return initial_state([output], inputs=inputs)


def open_program(define: Define, trace: Trace, low: int, high: int, size: str = "n") -> LoopProgram:
    """Makes the program of a trace for a range of sizes, if it was found at another one.

    A split that must divide is peeled or guarded where the loop is open; all other conditions of a step must hold for
    all of the range.

    Raises:
        ScheduleError: the trace does not hold for the range.
    """
    return open_trace(trace, state_at(define, low, high, size)).program


def lower_opening(define: Define, opening: Opening, size: str) -> OpenTrace:
    """Lowers a trace for all sizes for which it holds.

    Raises:
        ScheduleError: the trace does not hold.
    """
    state = state_at(define, opening.low, opening.high, size)
    return OpenTrace(opening.trace, cleanup(lower(opening.trace.apply(state))))


def build_module(define: Define, opening: Opening, target: str, size: str) -> Module:
    """Builds machine code for all sizes for which a trace holds.

    Raises:
        BuildError: the target has no code for it.
        ScheduleError: the trace does not hold.
    """
    return registry.get(target).build(lower_opening(define, opening, size).program)


def load_kernel(define: Define, opening: Opening, target: str, size: str) -> Kernel:
    """Loads the kernel of all sizes for which a trace holds, see `build_module`."""
    on: Any = registry.get(target)
    kernel: Kernel = on.load(build_module(define, opening, target, size))
    return kernel


def openings(define: Define, trace: Trace, found_at: int, sizes: Sequence[int], size: str = "n") -> list[Opening]:
    """Lists the forms in which a trace holds for sizes up to the largest one, the fastest first.

    With clamped tiles it may hold from their rows on, and with guarded ones for fewer, too. If it holds for no range
    that includes the size at which it was found, it stays unchanged for that one size.

    Args:
        define: definition by its size.
        trace: trace that was found with a known size.
        found_at: size at which it was found, one of `sizes`.
        sizes: listed sizes, ascending; a range begins with one of them.
        size: name of the size.
    """
    high, forms, least = sizes[-1], list[Opening](), len(sizes)
    top = state_at(define, max(sizes[0], high - 1), high, size)
    for variant in variants(trace, top):
        first = _first(define, variant, sizes, size)
        if first is not None and first < least:
            forms.append(Opening(variant, sizes[first], high))
            least = first
    if not any(opening.low <= found_at for opening in forms) and _holds(define, trace, found_at, found_at, size):
        forms.append(Opening(trace, found_at, found_at))
    return forms


def _first(define: Define, trace: Trace, sizes: Sequence[int], size: str) -> int | None:
    """Finds the position of the first size for which a trace holds: the larger ones fit its tiles, too."""
    first, last = 0, len(sizes) - 1
    if not _holds(define, trace, max(sizes[0], sizes[-1] - 1), sizes[-1], size):  # with the size open, if it can be
        return None
    while first < last:
        middle = (first + last) // 2
        if _holds(define, trace, sizes[middle], sizes[-1], size):
            last = middle
        else:
            first = middle + 1
    return first


def _holds(define: Define, trace: Trace, low: int, high: int, size: str) -> bool:
    try:
        lower(trace.apply(state_at(define, low, high, size)))
    except ScheduleError:
        return False
    return True

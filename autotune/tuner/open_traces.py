"""Traces that were found at some sizes, opened to a range of sizes: their loops, and their estimated times."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from costmodel.features import get_extractor
from search_space.hardware import Hardware
from search_space.ir.stmt import LoopProgram
from search_space.lower import cleanup, lower
from search_space.schedule.errors import ScheduleError
from search_space.schedule.opened import variants
from search_space.schedule.state import State
from search_space.schedule.trace import Trace

LEAST_SECONDS = 1e-12
"""Shortest time of a kernel, so that shares of it are finite."""


@dataclass(frozen=True)
class OpenTrace:
    """Trace with open sizes.

    Attributes:
        trace: trace with the tails that open sizes need.
        program: its loops.
    """

    trace: Trace
    program: LoopProgram

    def seconds(
        self, columns: NDArray[np.float64], hardware: Hardware, cold: bool, threads: int
    ) -> NDArray[np.float64]:
        """Estimates the kernel by the roofline.

        Args:
            columns: values of the program's sizes: (sizes, points).
            hardware: hardware that it runs on.
            cold: whether constants come from memory.
            threads: number of threads that it runs on.

        Returns:
            Seconds, (points,).
        """
        extractor = get_extractor(self.program, tuple(self.program.sizes), hardware, cold, threads)
        return np.maximum(extractor.roofline(columns), LEAST_SECONDS)


def open_trace(trace: Trace, state: State) -> OpenTrace:
    """Opens a trace: a split that must divide is clamped, peeled or guarded where the extent of its loop is open.

    Args:
        trace: trace that was found with known sizes.
        state: unscheduled definition with open sizes.

    Raises:
        ScheduleError: no form of the trace holds for all sizes.
    """
    refused: ScheduleError | None = None
    for variant in variants(trace, state):
        try:
            return OpenTrace(variant, cleanup(lower(variant.apply(state))))
        except ScheduleError as error:
            refused = error
    if refused is None:
        trace.apply(state)  # raises the reason
        refused = ScheduleError(f"a trace must hold where sizes are open, but got {trace}")
    raise refused

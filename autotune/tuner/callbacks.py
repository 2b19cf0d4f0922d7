"""Events of a tuning run: subclass `Callback` and override the methods of interest."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from measure.record import Record
from search_space.former_names import FormerAttribute

if TYPE_CHECKING:
    from autotune.tuner.result import TuneResult
    from autotune.tuner.task_tuning import TaskTuning


@dataclass(frozen=True)
class Progress:
    """State of a run.

    Attributes:
        task: name of the task that the event is about.
        task_trials, task_total: number of that task's trials done, and wanted; None if all tasks share the trials.
        trials, total: number of all tasks' trials done, and wanted; `total` shrinks if a space has fewer candidates.
        best_seconds: latency of the task's best candidate so far, see `autotune.tuner.finals`; NaN before the first
            working trial.
        gflops: its rate in 1e9 operations per second, counted by the definition; NaN likewise.
        peak_share: rate of the algorithm's operations, as a share of the machine's peak; NaN likewise.
        seconds: time since the run began.
        rank_accuracy: share of the pairs of the last round's trials that the cost model ordered correctly before they
            were measured; NaN before it has learned, or if no pair differs.
        rate: `gflops` as text, "effective" if the best algorithm computes less than the definition; empty before the
            first working trial.
    """

    task: str
    task_trials: int
    task_total: int | None
    trials: int
    total: int
    best_seconds: float
    gflops: float
    peak_share: float
    seconds: float
    rank_accuracy: float = math.nan
    rate: str = ""


@dataclass(frozen=True)
class SizeProgress:
    """State of `autotune.tune_for_sizes` after the search, while it times the schedules found at all sizes.

    Attributes:
        timing_count, total: number of timings of a schedule at a size, done and wanted; the fastest are timed more
            often in further rounds, so that `total` grows.
        name: name of the size; size: value that a schedule was timed at.
        seconds: latency of the schedule at that size; best_seconds: latency of the fastest one there so far.
    """

    timing_count: int
    total: int
    name: str
    size: int
    seconds: float
    best_seconds: float

    done = FormerAttribute("timing_count")


class Callback:
    """Listener of a run; every method does nothing by default."""

    def on_start(self, tasks: Sequence[TaskTuning]) -> None:
        """Handles the start of a run with these tasks, which know results of an earlier run already."""

    def on_trial(self, progress: Progress, record: Record) -> None:
        """Handles a result that was recorded; results of a round come in any order."""

    def on_round(self, progress: Progress) -> None:
        """Handles the end of a round of one task, after its results were applied."""

    def on_finals(self, progress: Progress) -> None:
        """Handles the final timings of a task's fastest candidates, which decide on the best."""

    def on_size(self, progress: SizeProgress) -> None:
        """Handles the timing of a schedule at one size, new or known, after a search for many sizes."""

    def on_finish(self, results: Sequence[TuneResult]) -> None:
        """Handles the end of the run, or its interruption."""

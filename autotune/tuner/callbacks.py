"""What a tuning run tells while it goes on: subclass `Callback` and override what is of interest."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from measure.record import Record

if TYPE_CHECKING:
    from autotune.tuner.result import TuneResult
    from autotune.tuner.task_tuning import TaskTuning


@dataclass(frozen=True)
class Progress:
    """Where a run stands.

    Attributes:
        task: name of the task that the event is about.
        task_trials, task_total: trials of that task: done, and wanted; None where all tasks share the trials.
        trials, total: the same over all tasks; `total` shrinks where a space has fewer candidates.
        best_seconds: that the best candidate of the task stands with by now, see `autotune.tuner.finals`; NaN where
            nothing has worked yet.
        gflops: the same as 1e9 operations a second, as defined; NaN likewise.
        peak_share: rate of what the algorithm computes, as a share of the machine's peak; NaN likewise.
        seconds: since the run began.
        rank_accuracy: share of the pairs of the last round's trials that the cost model had ordered right before they
            were measured; NaN where it had not learned yet, or nothing tells them apart.
        rate: `gflops` as text, "effective" where the best algorithm computes less than the definition; empty where
            nothing has worked yet.
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
    """Where `autotune.tune_for_sizes` stands once it has searched, and times what it found at all sizes.

    Attributes:
        done, total: timings of a schedule at a size; the fastest are timed some more in further rounds, so that `total`
            grows.
        name: of the size; size: that a schedule was timed at.
        seconds: of the schedule at that size; best_seconds: of the fastest one there by now.
    """

    done: int
    total: int
    name: str
    size: int
    seconds: float
    best_seconds: float


class Callback:
    """Listener of a run; every method does nothing by default."""

    def on_start(self, tasks: Sequence[TaskTuning]) -> None:
        """The run begins, with these tasks; what an earlier run measured of them they know already."""

    def on_trial(self, progress: Progress, record: Record) -> None:
        """A result came in and was written down; results of a round come in any order."""

    def on_round(self, progress: Progress) -> None:
        """A round of one task was measured, and its results applied."""

    def on_finals(self, progress: Progress) -> None:
        """The fastest candidates of a task were timed again at the end, which decides what is best."""

    def on_size(self, progress: SizeProgress) -> None:
        """After a search for many sizes, a schedule was timed at one of them, or is known to have been."""

    def on_finish(self, results: Sequence[TuneResult]) -> None:
        """The run ended, or was interrupted."""

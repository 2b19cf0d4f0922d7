"""Live progress of a run on the terminal, or a line a round without a terminal."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from autotune.tuner import callbacks
from autotune.units import forecast, latency
from measure.record import Record

if TYPE_CHECKING:
    from autotune.tuner.result import TuneResult


class LiveProgress(callbacks.Callback):
    """Trials, best GFLOP/s, share of the machine's peak, time left.

    Args:
        console: console to draw on.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24 if console.width >= 120 else 8),
            TextColumn("{task.completed}/{task.total} trials"),
            TextColumn("{task.fields[best]}"),
            TextColumn("{task.fields[left]}"),
            console=console,
            transient=True,
            auto_refresh=False,  # no thread that would wake up while a kernel is timed
        )
        self._live = console.is_terminal
        self._task = self._bar.add_task("tuning", total=None, best="", left="")
        self._draw_time = 0.0

    def on_trial(self, progress: callbacks.Progress, record: Record) -> None:
        if self._live:
            self._draw(progress)

    def on_round(self, progress: callbacks.Progress) -> None:
        if self._live:
            self._draw(progress)
        else:
            seconds = _seconds_left(progress)
            left = f"about {forecast(seconds)} left" if seconds else "done"
            wanted = "" if progress.task_total is None else f"/{progress.task_total}"
            self._console.print(
                f"{progress.trials}/{progress.total} trials  {progress.task}: "
                f"{progress.task_trials}{wanted}  {_best(progress)}  {left}",
                highlight=False,
                soft_wrap=True,
            )

    def on_finals(self, progress: callbacks.Progress) -> None:
        if self._live:
            self._draw(progress)
        else:
            line = f"{progress.task}: {_best(progress)}, as the fastest were timed again"
            self._console.print(line, highlight=False, soft_wrap=True)

    def on_finish(self, results: Sequence[TuneResult]) -> None:
        self.stop()

    def stop(self) -> None:
        """Gives the terminal back; may be called twice."""
        if self._bar.live.is_started:
            self._bar.stop()

    def _draw(self, progress: callbacks.Progress) -> None:
        self._bar.update(
            self._task,
            completed=progress.trials,
            total=progress.total,
            description=progress.task,
            best=_best(progress),
            left=forecast(_seconds_left(progress)),
        )
        if not self._bar.live.is_started:  # only now, as the first drawing has all numbers then
            self._bar.start()
        if time.monotonic() - self._draw_time > 0.1:
            self._bar.refresh()
            self._draw_time = time.monotonic()


def _best(progress: callbacks.Progress) -> str:
    if not progress.rate:
        return "nothing works yet" if progress.task_trials else "nothing measured yet"
    return f"best {latency(progress.best_seconds)}, {progress.rate}, {progress.peak_share:.0%} of peak"


def _seconds_left(progress: callbacks.Progress) -> float:
    return progress.seconds / max(1, progress.trials) * (progress.total - progress.trials)

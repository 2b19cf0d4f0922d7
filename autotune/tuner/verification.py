"""Verification of database entries: correctness, and speed beside schedules chosen without them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from autotune.config import ConfigError, Measure, Search
from autotune.tuner.database.entry import Entry, schedule_lanes
from autotune.tuner.database.locations import NONE
from autotune.tuner.database.projection import project
from autotune.tuner.settings import Settings
from autotune.tuner.task import Task
from autotune.tuner.untimed import select_without_trials
from autotune.units import latency
from measure.host import allowed_cores
from measure.interleaved import InterleavedTimer, InterleavedTiming
from measure.pool import Trial
from search_space.space import generate
from targets import registry

TIMING = InterleavedTiming(rounds=30, check=True)


@dataclass(frozen=True)
class Verification:
    """Outcome of a verification.

    Attributes:
        right: number of correct entries.
        ratios: time of the schedule chosen without the entry over the entry's time, of entries where both work.
        wrong: sentences on entries that compute something wrong or cannot run.
        left_out: number of entries that are not for this machine, or that no sketch makes any more.
    """

    right: int
    ratios: Sequence[float]
    wrong: Sequence[str]
    left_out: int

    @property
    def summary(self) -> str:
        """Summary in a sentence."""
        mean = math.exp(float(np.mean(np.log(self.ratios)))) if self.ratios else math.nan
        worth = f", {mean:.2f}x as fast as without them (geometric mean)" if self.ratios else ""
        return f"{self.right} entries are right{worth}; {len(self.wrong)} are not, {self.left_out} are not for here"


def verify(entries: Sequence[Entry], minutes: float | None, say: Callable[[str], None]) -> Verification:
    """Measures entries beside the schedules chosen without them.

    Args:
        entries: entries of any machine.
        minutes: time after which no further entry is begun; None: no limit.
        say: function that is called with a sentence for each entry.
    """
    end = None if minutes is None else time.monotonic() + 60 * minutes
    ratios: list[float] = []
    right = 0
    wrong: list[str] = []
    left_out = 0
    for entry in entries:
        if end is not None and time.monotonic() >= end:
            break
        trials = _trials(entry)
        if trials is None:
            left_out += 1
            continue
        with InterleavedTimer(entry.threads, TIMING) as timer:
            own, other = timer.time(trials)
        if not own.ok:
            wrong.append(f"{entry.workload.key}: {own.error}: {own.message}")
            say(wrong[-1])
            continue
        right += 1
        beside = "nothing that works"
        if other.ok:
            ratios.append(other.min_seconds / own.min_seconds)
            beside = latency(other.min_seconds)
        say(f"{entry.workload.key}: {latency(own.min_seconds)}, without it {beside}")
    return Verification(right, ratios, wrong, left_out)


def _trials(entry: Entry) -> list[Trial] | None:
    """Makes trials of the entry's schedule and of the one chosen without it; None if it is not for this machine."""
    if entry.target not in registry.TARGETS:
        return None
    target = registry.get(entry.target)
    if schedule_lanes(target.hardware) != entry.lanes or entry.threads > len(allowed_cores()) or target.simulated:
        return None
    if entry.algorithm not in entry.workload.algorithms:
        return None
    space = generate(entry.workload, target.hardware, [entry.algorithm])
    candidate = project(entry, space)
    if candidate is None:
        return None
    alone = Search(database=NONE)
    settings = Settings(target, search=alone, measure=Measure(threads=entry.threads, cache=entry.cache))
    try:
        chosen = select_without_trials(Task(entry.workload.operator, entry.workload), settings)
    except ConfigError:  # the only alternative is a library
        return None
    own = space.sketches[candidate.sketch].trace(candidate.choices)
    how = {"target": entry.target, "threads": entry.threads, "cache": entry.cache}
    return [
        Trial.of(entry.workload, algorithm, trace, **how)
        for algorithm, trace in ((entry.algorithm, own), (chosen.algorithm, chosen.trace))
    ]

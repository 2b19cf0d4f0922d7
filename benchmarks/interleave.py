"""Interleaved comparison: peers take turns, so that disturbances of the machine affect them alike."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Protocol

FEWEST_ROUNDS = 20
"""Least number of rounds, whose faster half counts: seconds of a shared host may be 1.4 times slower."""
_LOOK = 0.03
"""Seconds at the end of a pause in which the machine must be idle: three ticks of the system's clock."""
_LONGEST = 2.0
"""Most seconds to wait for a peer that never rests."""


class SelfTimer(Protocol):
    """A peer that times itself when asked."""

    def warm(self, seconds: float) -> None:
        """Executes for so long without timing."""

    def time(self, samples: int) -> list[float]:
        """Times each of `samples` executions in seconds."""


def measure_turns(
    peers: Mapping[str, SelfTimer],
    repeat: int = FEWEST_ROUNDS,
    turn_seconds: float = 0.03,
    pause: float = 0.12,
    warm_seconds: float = 0.12,
) -> dict[str, list[float]]:
    """Times peers in turns, and returns the median seconds of each turn of each peer, in order of time.

    Args:
        peers: peers in the order of turns: A/B/A/B.
        repeat: rounds, at least 20.
        turn_seconds: time of a turn, by which the samples in it are chosen: 5 to 200.
        pause: seconds between turns, in which idle threads of the last peer stop spinning; longer if they spin on.
            TVM's threads spin a fifth of a second, on Zen 4.
        warm_seconds: execution before the samples of a turn: a processor that was idle takes a while to come back
            to its full clock.
    """
    if repeat < FEWEST_ROUNDS:
        raise ValueError(f"`repeat` must be at least {FEWEST_ROUNDS}, but got repeat={repeat}")
    samples = {name: _samples(median(peer.time(3)), turn_seconds) for name, peer in peers.items()}
    rounds: dict[str, list[float]] = {name: [] for name in peers}
    for _ in range(repeat):
        for name, peer in peers.items():
            _rest(pause)
            peer.warm(warm_seconds)
            rounds[name].append(median(peer.time(samples[name])))
    return rounds


def geometric_mean(values: Sequence[float]) -> float:
    """Computes the geometric mean of positive values; nan of none."""
    return math.exp(math.fsum(map(math.log, values)) / len(values)) if values else math.nan


def _rest(pause: float) -> None:
    """Sleeps for `pause` seconds, and on until this process and all that it started leave the cores alone."""
    if not pause:
        return
    time.sleep(max(0.0, pause - _LOOK))
    end = time.monotonic() + _LONGEST
    while True:
        before = _seconds_used()
        time.sleep(_LOOK)
        if _seconds_used() - before < _LOOK / 2 or time.monotonic() > end:
            return


def _seconds_used() -> float:
    """Reads the seconds of all cores used so far by this process and its descendants; 0 without `/proc`."""
    parents, ticks = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        process = int(path.parent.name)
        parents[process], ticks[process] = int(fields[1]), int(fields[11]) + int(fields[12])
    ours = {os.getpid()}
    while more := {process for process, parent in parents.items() if parent in ours} - ours:
        ours |= more
    return sum(ticks.get(process, 0) for process in ours) / os.sysconf("SC_CLK_TCK")


def _samples(seconds: float, turn_seconds: float) -> int:
    return max(5, min(200, round(turn_seconds / max(seconds, 1e-9))))

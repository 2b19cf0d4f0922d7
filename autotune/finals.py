"""The end of a run: the fastest candidates of each task are timed again, and that decides.

The fastest of many noisy measurements is too good to be true, more so the more there are: it was chosen for its luck as
well as for its speed. So the few fastest of every task are timed some more, in rounds over all tasks, that what slows
the machine for some seconds does not strike all timings of one candidate. The median of these timings is what a
candidate stands with, and what the run reports.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from measure.record import Record

FINALS = "finals"
"""The provenance of a record that times a known candidate again."""
ROUNDS = 3


def is_final(record: Record) -> bool:
    """Whether a record times a candidate again at the end of a run."""
    return record.provenance == FINALS


def finalists(records: Iterable[Record], count: int) -> list[Record]:
    """Records of the fastest candidates of a task, fastest first."""
    best: dict[str, Record] = {}
    for record in records:
        if record.ok and not (record.trace_key in best and best[record.trace_key].seconds <= record.seconds):
            best[record.trace_key] = record
    return sorted(best.values(), key=lambda record: record.seconds)[:count]


def standings(records: Sequence[Record]) -> list[tuple[float, Record]]:
    """Candidates of a task and the seconds they stand with, best first.

    Those timed again stand before all others, with the median of those timings; the others with their fastest one. One
    that failed when it was timed again is out.
    """
    again: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        if is_final(record):
            again.setdefault((record.algorithm, record.trace_key), []).append(record)
    decided = [
        (median(record.seconds for record in timings), timings[0])
        for timings in again.values()
        if all(record.ok for record in timings)
    ]
    rest = [
        (record.seconds, record)
        for record in records
        if record.ok and not is_final(record) and (record.algorithm, record.trace_key) not in again
    ]
    return sorted(decided, key=_seconds) + sorted(rest, key=_seconds)


def by_algorithm(records: Sequence[Record]) -> Mapping[str, tuple[float, Record]]:
    """The best candidate of each algorithm, best algorithm first."""
    found: dict[str, tuple[float, Record]] = {}
    for seconds, record in standings(records):
        found.setdefault(record.algorithm, (seconds, record))
    return found


def _seconds(standing: tuple[float, Record]) -> float:
    return standing[0]

"""Definition of "best" for the progress line, curves, tables, MLflow, reports and executables.

While a run searches, the best candidate of a task is that of the fastest trial. The fastest of many noisy measurements
is biased towards low times, more so the more there are: it was chosen for its luck as well as for its speed. So at the
end the few fastest candidates of every task are timed again, in rounds over all tasks, such that a slow phase of some
seconds does not affect all timings of one candidate. From then on these rank first, each by the median of these
timings; one that failed when it was timed again is out. A later trial, in a resumed run, ranks before them only if it
was faster than each of their own trials: it was never timed beside them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from measure.provenance import Kind
from measure.record import Record
from measure.recordlog import RecordLog
from measure.steadiness import compute_spread, half_medians

ROUNDS = 3
"""Number of final timings of each of the fastest candidates."""


@dataclass(frozen=True)
class Best:
    """Candidate with the latency that it is ranked by.

    Attributes:
        seconds: latency that it is ranked by.
        record: record of the candidate; the first of `timings`.
        timings: measurements of which `seconds` is the median, in order of time.
    """

    seconds: float
    record: Record
    timings: tuple[Record, ...]

    @property
    def retimed(self) -> bool:
        """Tells whether it was timed again at the end of a run."""
        return is_final(self.record)

    @property
    def spread(self) -> float:
        """Value (75th percentile - 25th percentile) / median of all samples of its timings; NaN without samples."""
        return compute_spread(samples) if len(samples := self._samples) > 1 else self.record.spread

    @property
    def halves(self) -> tuple[float, float]:
        """Median seconds of the first and of the second half of its samples; NaN if they are few."""
        return half_medians(self._samples)

    @property
    def _samples(self) -> list[float]:
        return [seconds for record in self.timings for seconds in record.latencies]


def is_final(record: Record) -> bool:
    """Tells whether a record times a candidate again at the end of a run."""
    return record.provenance.kind is Kind.final


def finalists(records: Iterable[Record], count: int) -> list[Record]:
    """Lists the records of the fastest candidates of a task, fastest first."""
    best: dict[str, Record] = {}
    for record in records:
        if record.ok and not (record.trace_key in best and best[record.trace_key].seconds <= record.seconds):
            best[record.trace_key] = record
    return sorted(best.values(), key=lambda record: (record.seconds, record.trace_key))[:count]


def standings(records: Iterable[Record]) -> list[Best]:
    """Ranks the candidates of a task, best first, by the definition above.

    Args:
        records: trials and timings at the end, in order of time; it suffices to pass one more of the fastest trials
            than there are candidates that were timed again.
    """
    retimed: dict[tuple[str, str], list[Record]] = {}
    trials: list[Record] = []
    for record in records:
        if is_final(record):
            retimed.setdefault((record.algorithm, record.trace_key), []).append(record)
        elif record.ok:
            trials.append(record)
    decided = {
        key: Best(median(record.seconds for record in timings), timings[0], tuple(timings))
        for key, timings in retimed.items()
        if all(record.ok for record in timings)
    }
    first = {key: best.seconds for key, best in decided.items()}  # fastest of their own trials, if known
    for record in trials:
        key = (record.algorithm, record.trace_key)
        if key in first:
            first[key] = min(first[key], record.seconds)
    limit = min(first.values(), default=0.0)
    rest = [Best(r.seconds, r, (r,)) for r in trials if (r.algorithm, r.trace_key) not in retimed]
    later = [best for best in rest if best.seconds < limit]
    others = [best for best in rest if not best.seconds < limit]
    return [best for group in (later, decided.values(), others) for best in sorted(group, key=_rank)]


def select_best(*records: Iterable[Record]) -> Best | None:
    """Returns the first of the standings; None if no candidate has worked."""
    return next(iter(standings(record for group in records for record in group)), None)


def best_of_logs(records: RecordLog, others: RecordLog, finals: Sequence[Record]) -> Best | None:
    """Returns the first of the standings of logs; reads one more trial than candidates of `finals`, which suffices."""
    few = len({record.trace_key for record in finals}) + 1
    return select_best(records.fastest(few), others.fastest(few), finals)


def _rank(best: Best) -> tuple[float, str]:
    """Returns the sort key: seconds, then the trace key, as the first of equally fast kernels is first by chance."""
    return best.seconds, best.record.trace_key

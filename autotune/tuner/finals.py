"""What "best" means, for all that say it: the progress line, curves, tables, MLflow, reports and executables.

While a run searches, the best candidate of a task is that of the fastest trial. The fastest of many noisy measurements
is too good to be true, more so the more there are: it was chosen for its luck as well as for its speed. So at the end
the few fastest of every task are timed some more, in rounds over all tasks, that what slows the machine for some
seconds does not strike all timings of one candidate. From then on those stand first, each with the median of these
timings; one that failed when it was timed again is out. A trial that comes later, in a run that goes on, stands before
them only where it was faster than each of their own trials: then it was never timed beside them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from measure.provenance import Kind
from measure.record import Record
from measure.recordlog import RecordLog
from measure.steadiness import halves_of, spread_of

ROUNDS = 3


@dataclass(frozen=True)
class Best:
    """A candidate, and what it stands with.

    Attributes:
        seconds: that it stands with.
        record: of it; the first of `timings`.
        timings: measurements of which `seconds` is the median, in order of time.
    """

    seconds: float
    record: Record
    timings: tuple[Record, ...]

    @property
    def retimed(self) -> bool:
        """Whether it was timed again at the end of a run."""
        return is_final(self.record)

    @property
    def spread(self) -> float:
        """(75th percentile - 25th percentile) / median of all samples of its timings; NaN where there are none."""
        return spread_of(samples) if len(samples := self._samples) > 1 else self.record.spread

    @property
    def halves(self) -> tuple[float, float]:
        """Median seconds of the first and of the second half of its samples; NaN where they are few."""
        return halves_of(self._samples)

    @property
    def _samples(self) -> list[float]:
        return [seconds for record in self.timings for seconds in record.latencies]


def is_final(record: Record) -> bool:
    """Whether a record times a candidate again at the end of a run."""
    return record.provenance.kind is Kind.final


def finalists(records: Iterable[Record], count: int) -> list[Record]:
    """Records of the fastest candidates of a task, fastest first."""
    best: dict[str, Record] = {}
    for record in records:
        if record.ok and not (record.trace_key in best and best[record.trace_key].seconds <= record.seconds):
            best[record.trace_key] = record
    return sorted(best.values(), key=lambda record: (record.seconds, record.trace_key))[:count]


def standings(records: Iterable[Record]) -> list[Best]:
    """Candidates of a task, best first, by the definition above.

    Args:
        records: trials and timings at the end, in order of time; the fastest trials are enough, at least one more than
            there are candidates that were timed again.
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
    first = {key: best.seconds for key, best in decided.items()}  # in their own trials, where those are known
    for record in trials:
        key = (record.algorithm, record.trace_key)
        if key in first:
            first[key] = min(first[key], record.seconds)
    limit = min(first.values(), default=0.0)
    rest = [Best(r.seconds, r, (r,)) for r in trials if (r.algorithm, r.trace_key) not in retimed]
    later = [best for best in rest if best.seconds < limit]
    others = [best for best in rest if not best.seconds < limit]
    return [best for group in (later, decided.values(), others) for best in sorted(group, key=_rank)]


def best_of(*records: Iterable[Record]) -> Best | None:
    """The first of the standings; None where nothing has worked."""
    return next(iter(standings(record for group in records for record in group)), None)


def best_of_logs(records: RecordLog, others: RecordLog, finals: Sequence[Record]) -> Best | None:
    """The same of logs of trials, of which few are read: no more can have been timed again than `finals` are of."""
    few = len({record.trace_key for record in finals}) + 1
    return best_of(records.fastest(few), others.fastest(few), finals)


def _rank(best: Best) -> tuple[float, str]:
    """Seconds; of equally fast ones, which short kernels often are, not the one that happened to be timed first."""
    return best.seconds, best.record.trace_key

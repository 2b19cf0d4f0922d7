"""The measuring interface: a trial, its result, and the pool that measures trials."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args

from measure.closing import Closing
from measure.errors import ErrorClass, PoolError
from search_space.tags import ROUNDING
from targets.threads import MOST_THREADS, check_threads

if TYPE_CHECKING:  # workers import this module, and never need outcomes
    from measure.outcome import Outcome

Cache = Literal["warm", "network"]
"""`warm`: all tensors stay in cache between iterations. `network`: constants are cold."""

TaskKey = tuple[str, int, str]
"""Workload, seed, and the algorithm if it has a tolerance of its own."""


class HasKeyAndJson(Protocol):
    """Interface of a workload or a trace, as far as a trial needs it."""

    @property
    def key(self) -> str: ...

    def to_json(self) -> Any: ...


@dataclass(frozen=True)
class Trial:
    """One candidate to build, check and time: plain data, so that it can be sent to any kind of worker.

    Attributes:
        workload: the workload's JSON form.
        algorithm: name of the equal definition of the workload that the trace schedules.
        trace: the schedule's JSON form, numbers included.
        target: a name of `targets.registry`.
        threads: threads that the kernel runs on.
        cache: state of the caches during timing, see `Cache`.
        seed: seed of the random inputs.
        build_timeout: seconds until a build is killed. This and the next two limit the measurement and do not identify
            the candidate. Equal trials may differ in them, and records do not hold them.
        run_timeout: seconds until check and timing together are killed.
        best_seconds: latency to beat; a trial that is several times slower is cut short. None: no cut.
        workload_key: stable key of the workload; computed from the JSON form if empty.
        trace_key: stable key of the trace; computed from the JSON form if empty.
    """

    workload: Mapping[str, Any]
    algorithm: str
    trace: Sequence[Mapping[str, Any]]
    target: str = "cpu"
    threads: int = 1
    cache: Cache = "warm"
    seed: int = 0
    build_timeout: float = field(default=15.0, compare=False)
    run_timeout: float = field(default=10.0, compare=False)
    best_seconds: float | None = field(default=None, compare=False)
    workload_key: str = ""
    trace_key: str = ""

    def __post_init__(self) -> None:
        check_threads(self.threads, MOST_THREADS)
        if self.cache not in get_args(Cache):
            raise ValueError(f"`cache` must be one of {', '.join(get_args(Cache))}, but got cache={self.cache!r}")
        for name in ("build_timeout", "run_timeout"):
            if not getattr(self, name) > 0:
                raise ValueError(f"`{name}` must be positive seconds, but got {name}={getattr(self, name)}")
        if self.best_seconds is not None and not self.best_seconds > 0:
            raise ValueError(f"`best_seconds` must be positive or None, but got best_seconds={self.best_seconds}")
        if not self.workload_key:
            object.__setattr__(self, "workload_key", _workload_key(self.workload))
        if not self.trace_key:
            object.__setattr__(self, "trace_key", _trace_key(self.trace))

    @classmethod
    def of(cls, workload: HasKeyAndJson, algorithm: str, trace: HasKeyAndJson, **options: Any) -> Trial:
        """Makes a trial of a `Workload` and a `Trace`; `options` are the other fields."""
        return cls(
            workload.to_json(),
            algorithm,
            trace.to_json(),
            workload_key=workload.key,
            trace_key=trace.key,
            **options,
        )

    @property
    def family(self) -> tuple[str, str, int, str]:
        """Key that is equal for trials whose latencies are comparable."""
        return (self.workload_key, self.target, self.threads, self.cache)

    @property
    def task_key(self) -> TaskKey:
        """Key that is equal for trials with the same inputs, reference and tolerance."""
        return (self.workload_key, self.seed, self.algorithm if self.algorithm in ROUNDING else "")

    def to_json(self) -> dict[str, Any]:
        """Returns the plain form; `from_json` makes an equal trial of it."""
        return {item.name: getattr(self, item.name) for item in fields(self)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Trial:
        """Makes a trial of its plain form."""
        return cls(**data)


class MeasuredTrial:
    """A trial and its outcome, with shortcuts to the attributes of either that are used most."""

    trial: Trial
    outcome: Outcome

    @property
    def workload_key(self) -> str:
        """The workload's stable key."""
        return self.trial.workload_key

    @property
    def algorithm(self) -> str:
        """The definition of the workload that was scheduled."""
        return self.trial.algorithm

    @property
    def trace_key(self) -> str:
        """The schedule's stable key."""
        return self.trial.trace_key

    @property
    def target(self) -> str:
        """Name of the target."""
        return self.trial.target

    @property
    def ok(self) -> bool:
        """Tells whether the trial was measured and its output right."""
        return self.outcome.ok

    @property
    def error(self) -> ErrorClass:
        """Class of the failure, or `ok`."""
        return self.outcome.error

    @property
    def message(self) -> str:
        """One sentence on the failure, or empty."""
        return self.outcome.message

    @property
    def latencies(self) -> tuple[float, ...]:
        """Seconds of each sample; empty on failure."""
        return self.outcome.latencies

    @property
    def seconds(self) -> float:
        """Median of `latencies`; NaN on failure."""
        return self.outcome.seconds

    @property
    def min_seconds(self) -> float:
        """Fastest sample; NaN on failure."""
        return min(self.outcome.latencies, default=math.nan)

    @property
    def spread(self) -> float:
        """(75th percentile - 25th percentile) / median of `latencies`; NaN on failure."""
        return self.outcome.spread

    @property
    def metrics(self) -> Mapping[str, int | float]:
        """Further numbers that the target reports of an execution, by name."""
        return self.outcome.metrics

    @property
    def host(self) -> Mapping[str, Any]:
        """Description of the machine that ran it."""
        return self.outcome.host


@dataclass(frozen=True)
class TrialResult(MeasuredTrial):
    """A trial that a pool has finished.

    Attributes:
        trial: the trial.
        index: position in the order of submission to the pool, from 0.
        outcome: outcome of the trial.
        build_span: start and end of the build on the host's monotonic clock in seconds.
        run_span: start and end of check and timing, likewise.
    """

    trial: Trial
    index: int
    outcome: Outcome
    build_span: tuple[float, float] | None = None
    run_span: tuple[float, float] | None = None


class MeasurePool(Closing, ABC):
    """A pool that measures trials: submit some, then take results as they complete.

    A pool never raises for a bad trial: the result's `error` is the class of its failure, and the pool goes on.
    `PoolError` is for wrong use and for workers that cannot be started at all.
    """

    @classmethod
    def of(cls, spec: str, token_file: str | None = None, tls_ca: str | None = None) -> MeasurePool:
        """Makes the pool that a specification names, see `measure.registry.make`."""
        if ":" in spec:
            raise ValueError(f"`pool` must be {spec.partition(':')[0]!r} alone, but got pool={spec!r}")
        return cls()

    def warm_up(self, threads: int) -> None:
        """Prepares workers for trials on so many threads, if they take time to start; does nothing by default."""

    @abstractmethod
    def submit(self, trials: Sequence[Trial]) -> None:
        """Accepts trials; may be called with results outstanding."""

    @abstractmethod
    def results(self, timeout: float | None = None) -> list[TrialResult]:
        """Waits for results and returns all that are ready, in the order of completion.

        Args:
            timeout: maximum seconds to wait; None waits for at least one.

        Returns:
            Results not returned before; empty at once if no trial is outstanding, or on time-out.
        """

    @abstractmethod
    def cancel(self) -> None:
        """Forgets unfinished trials; the pool can be used again."""

    @abstractmethod
    def close(self) -> None:
        """Ends the workers; results not fetched are lost. May be called twice."""

    @property
    @abstractmethod
    def outstanding(self) -> int:
        """Number of submitted trials whose results were not returned yet."""

    @property
    def capacity(self) -> int:
        """Number of trials to keep outstanding; 1: one round at a time, as a search at work would disturb timings."""
        return 1

    def run(self, trials: Sequence[Trial]) -> list[TrialResult]:
        """Measures `trials` and returns their results in the order of `trials`."""
        if self.outstanding:
            raise PoolError(f"`run` must start with no result outstanding, but got outstanding={self.outstanding}")
        self.submit(trials)
        done: list[TrialResult] = []
        while self.outstanding:
            done += self.results()
        return sorted(done, key=lambda result: result.index)


def _workload_key(workload: Mapping[str, Any]) -> str:
    from search_space.workloads import Workload

    return str(Workload.from_json(dict(workload)).key)


def _trace_key(trace: Sequence[Mapping[str, Any]]) -> str:
    from search_space.schedule.trace import Trace

    return str(Trace.from_json(list(trace)).key)  # type: ignore[arg-type,unused-ignore]

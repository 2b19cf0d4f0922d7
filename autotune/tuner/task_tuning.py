"""Tuning of one task: proposes a round of trials, processes its results, refits; resumes from records."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from autotune.tuner import search
from autotune.tuner.finals import Best, best_of_logs, finalists, is_final
from autotune.tuner.result import TuneResult, describe_failure
from autotune.tuner.scorer import ModelScorer
from autotune.tuner.search.base import Candidate, NoLegalSchedule, SearchStrategy
from autotune.tuner.settings import Settings
from autotune.tuner.task import Task
from measure.pool import Trial, TrialResult
from measure.provenance import Kind, Provenance
from measure.record import Record
from measure.recordlog import RecordLog
from search_space.space import SearchSpace


class TaskTuning:
    """State of one task in a run. Results are applied in the order in which their trials were proposed.

    Args:
        task: task to tune.
        space: its search space.
        settings: settings of the task.
        strategy: strategy that proposes candidates, made with `scorer`.
        scorer: scorer with the cost model.
        host: description of the machine, for the records.
    """

    def __init__(
        self,
        task: Task,
        space: SearchSpace,
        settings: Settings,
        strategy: SearchStrategy,
        scorer: ModelScorer,
        host: Mapping[str, Any] | None = None,
    ) -> None:
        self.task, self.space, self.settings = task, space, settings
        self.strategy, self.scorer, self.host = strategy, scorer, dict(host or {})
        self.records = RecordLog()
        self.others = RecordLog()  # records of runs with other seeds, which are no trials of this run
        self.finals: list[Record] = []  # final timings of measured candidates
        self.fastest = math.nan  # seconds of the fastest trial; much slower trials are cut short
        self.history: list[float] = []  # `fastest` after each round
        self._standing: Best | None = None
        self._is_stale = False  # whether records came since `_standing` was determined
        self.phases: dict[str, float] = {"search": 0.0, "model": 0.0, "measure": 0.0}
        self.failure: NoLegalSchedule | None = None
        self._workload = task.workload.to_json()
        self._family = (task.workload.key, settings.target.name, settings.threads, settings.measure.cache)
        self._seconds_by_trace: dict[bytes, float] = {}  # digest of a trace key -> seconds, NaN for a failure
        self.first: list[Candidate] = []  # proposed before the strategy is asked
        self.choose: Callable[[], Candidate | None] | None = None  # makes the very first candidate; called once
        self._finalists: dict[str, Record] = {}  # trace key -> record
        self._candidates_by_trace: dict[str, list[Candidate]] = {}  # trace key -> candidates with this trace
        self._scores: dict[str, float] = {}  # trace key -> score at the time of the proposal
        self._is_exhausted = False
        self._resumed_count = self._round = self._scored_count = 0
        self._next = 0  # order number of the next round's first trial
        self._scoring_seconds = 0.0

    @property
    def total(self) -> int:
        """Number of trials that this task will have."""
        return len(self.records) if self._is_exhausted else self.settings.trials

    @property
    def standing(self) -> Best | None:
        """The best candidate and its seconds, see `autotune.tuner.finals`; None before the first working trial."""
        if self._is_stale:
            self._standing = best_of_logs(self.records, self.others, self.finals)
            self._is_stale = False
        return self._standing

    @property
    def best_seconds(self) -> float:
        """Seconds of the best candidate; NaN before the first working trial."""
        return math.nan if self.standing is None else self.standing.seconds

    @property
    def done(self) -> bool:
        """Tells whether nothing is left to measure."""
        return len(self.records) >= self.total

    def replay(self, records: Sequence[Record]) -> None:
        """Adds the records of the records file, so that they are not measured again.

        Records with this run's seed are its own: they count as trials, and new ones are numbered after them. Records of
        other seeds, of runs that may be in progress at this moment, are only used as results. If the search learns from
        other tasks, its own rounds are learned one by one, so that the source is evaluated as it was then.
        """
        rounds: dict[int, list[tuple[Candidate, float]]] = {}
        chosen: list[Candidate] = []
        mine = [record for record in records if record.trial.seed == self.settings.seed]
        others = [record for record in records if record.trial.seed != self.settings.seed]
        for record in [*sorted(mine, key=lambda record: record.provenance.order), *others]:
            own = record.trial.seed == self.settings.seed
            if own and not is_final(record):
                self._next = max(self._next, record.provenance.order + 1)
            if is_final(record):
                self.finals.append(record)
                self._is_stale = True
            if is_final(record) or _digest(record.trace_key) in self._seconds_by_trace:
                continue
            self._keep(record, own)
            if own and len(self.records) % self.settings.search.batch == 0:
                self.history.append(self.fastest)
            candidate = self._recorded_candidate(record)
            number = record.provenance.round if own else -1
            self._round = max(self._round, number + 1)
            if candidate is not None:
                rounds.setdefault(number if self.scorer.transfer is not None else -1, []).append(
                    (candidate, record.seconds)
                )
                if own and record.provenance.transferred:
                    chosen.append(candidate)
        self._resumed_count = len(self.records)
        self.scorer.recall(chosen)
        for number in sorted(rounds):
            self._learn(rounds[number])

    def refuse(self, error: NoLegalSchedule) -> None:
        """Notes that no candidate is legal."""
        self._is_exhausted, self.failure = True, error

    def propose(self, limit: int | None = None) -> list[Trial]:
        """Proposes the trials of the next round; none if the task is done.

        Args:
            limit: largest number of trials of the round, besides the limits of the settings.

        Raises:
            NoLegalSchedule: the space has no legal candidate.
        """
        start, scoring = time.perf_counter(), self.scorer.seconds
        trials: dict[str, Trial] = {}
        wanted = min(self.settings.search.batch, self.settings.trials - len(self.records))
        wanted = wanted if limit is None else min(wanted, limit)
        try:
            self._sort_out(self._known_before(wanted), trials)
            while len(trials) < wanted and not self._is_exhausted:
                asked = self._ask(wanted - len(trials))
                self._is_exhausted = not asked
                self._sort_out(asked, trials)
            self._scores = dict(
                zip(trials, self.scorer.score([self._candidates_by_trace[key][0] for key in trials]), strict=True)
            )
        except NoLegalSchedule as error:
            self.refuse(error)
            raise
        finally:
            wall, inside = time.perf_counter() - start, self.scorer.seconds - scoring
            self.phases["search"] += wall - inside
            self.phases["model"] += inside
        if self._is_exhausted and trials:
            self._is_exhausted = False  # the next round checks again, after these are measured
        return list(trials.values())

    def finalists(self, number: int) -> list[Trial]:
        """Returns the fastest candidates, to be timed for the `number`th time (from 0) at the end."""
        count = self.settings.search.finalists
        chosen = finalists((*self.records.fastest(count), *self.others.fastest(count)), count)
        self._finalists = {record.trace_key: record for record in chosen}
        timed = [record.trace_key for record in self.finals]
        return [record.to_trial() for record in chosen if timed.count(record.trace_key) <= number and len(chosen) > 1]

    def final(self, result: TrialResult) -> Record:
        """Adds the final timing of a candidate, and returns its record."""
        earlier = self._finalists[result.trial.trace_key]
        record = Record.of(result, earlier.provenance.again(Kind.final, time.time()), self.host)
        self.finals.append(record)
        self._is_stale = True
        return record

    def measures(self, trial: Trial) -> bool:
        """Tells whether a trial measures a candidate of this task with the settings of this task."""
        return trial.family == self._family

    def record(self, result: TrialResult) -> Record:
        """Makes the record of a result when it arrives."""
        candidate = self._candidates_by_trace[result.trial.trace_key][0]
        provenance = Provenance(
            Kind.search,
            strategy=search.strategy_name(self.settings.search.strategy),
            round=self._round,
            score=float(f"{self._scores[result.trial.trace_key]:.9g}"),  # models compute in float32
            choices=tuple(map(int, candidate.choices)),
            transferred=self.scorer.chosen_by_source(candidate),
            sketch=self.space.sketches[candidate.sketch].name,
            order=self._order(result),
            time=time.time(),
        )
        return Record.of(result, provenance, self.host)

    def settle(self, records: Sequence[Record], measure_seconds: float) -> None:
        """Applies the records of a round, in the order of proposal, and refits the model."""
        self.phases["measure"] += measure_seconds
        measured: list[tuple[Candidate, float]] = []
        for record in sorted(records, key=lambda record: record.provenance.order):
            self._keep(record)
            measured += [(c, record.seconds) for c in self._candidates_by_trace[record.trace_key]]
            self._next = max(self._next, record.provenance.order + 1)
        self._candidates_by_trace.clear()
        self._round += 1
        self.history.append(self.fastest)
        self._learn(measured, refit=not self.done)

    def result(self, interrupted: bool = False) -> TuneResult:
        """Returns the result of the task so far."""
        interrupted = interrupted and not self.done
        outcome = TuneResult(
            name=self.task.name,
            workload=self.task.workload,
            target=self.settings.target.name,
            hardware=self.space.hardware,
            weight=self.task.weight,
            threads=self.settings.threads,
            cache=self.settings.measure.cache,
            seed=self.settings.seed,
            records=self.records.copy(),
            others=self.others.copy(),
            finals=tuple(self.finals),
            phases=dict(self.phases),
            measured_count=len(self.records) - self._resumed_count,
            scored_count=self._scored_count,
            scoring_seconds=self._scoring_seconds,
            interrupted=interrupted,
            problem="" if self.failure is None else str(self.failure),
            transfer=None if self.scorer.transfer is None else self.scorer.transfer.report(),
            exhausted=self._is_exhausted and self.failure is None and not interrupted,
        )
        if outcome.problem or interrupted or outcome.best is not None:
            return outcome
        return replace(outcome, problem=describe_failure(self.records, self.finals))

    def _known_before(self, n: int) -> list[Candidate]:
        """Returns the first candidates of a round of `n`: the choice without trials, and at most half known ones."""
        choose, self.choose = self.choose, None
        chosen = choose() if choose is not None and not self.records else None
        if chosen is not None:
            self.first = [chosen, *(candidate for candidate in self.first if candidate != chosen)]
        most = math.ceil(n / 2)
        known, self.first = self.first[:most], self.first[most:]
        return known

    def _ask(self, n: int) -> list[Candidate]:
        start, scored = time.perf_counter(), self.scorer.scored_count
        asked = self.scorer.ask(self.strategy, n)
        if self.scorer.scored_count > scored:
            self._scored_count += self.scorer.scored_count - scored
            self._scoring_seconds += time.perf_counter() - start
        return asked

    def _sort_out(self, candidates: Sequence[Candidate], trials: dict[str, Trial]) -> None:
        """Makes trials of candidates whose schedule is new; answers the others from known results at once."""
        repeated: list[tuple[Candidate, float]] = []
        for candidate in candidates:
            sketch = self.space.sketches[candidate.sketch]
            trace = sketch.trace(candidate.choices)
            key = trace.key
            if (seconds := self._seconds_by_trace.get(_digest(key))) is not None:
                repeated.append((candidate, seconds))
                continue
            self._candidates_by_trace.setdefault(key, []).append(candidate)
            if key not in trials:
                trials[key] = Trial(
                    self._workload,
                    sketch.algorithm,
                    trace.to_json(),
                    workload_key=self.task.workload.key,
                    trace_key=key,
                    target=self.settings.target.name,
                    threads=self.settings.threads,
                    cache=self.settings.measure.cache,
                    seed=self.settings.seed,
                    build_timeout=self.settings.measure.build_timeout_s,
                    run_timeout=self.settings.measure.timeout_s,
                    best_seconds=None if math.isnan(self.fastest) else self.fastest,
                )
        if repeated:
            self.strategy.tell([c for c, _ in repeated], np.array([seconds for _, seconds in repeated]))

    def _order(self, result: TrialResult) -> int:
        return self._next + list(self._candidates_by_trace).index(result.trial.trace_key)

    def _keep(self, record: Record, own: bool = True) -> None:
        (self.records if own else self.others).append(record)
        self._is_stale = True
        self._seconds_by_trace[_digest(record.trace_key)] = record.seconds
        if record.ok and not self.fastest <= record.seconds:
            self.fastest = record.seconds

    def _learn(self, measurements: Sequence[tuple[Candidate, float]], refit: bool = True) -> None:
        start, before = time.perf_counter(), self.scorer.seconds
        if measurements:
            seconds = np.array([latency for _, latency in measurements])
            self.strategy.tell([candidate for candidate, _ in measurements], seconds)
            self.scorer.observe([candidate for candidate, _ in measurements], seconds.tolist())
            if refit:
                self.scorer.refit()
        inside = self.scorer.seconds - before
        self.phases["model"] += inside
        self.phases["search"] += time.perf_counter() - start - inside

    def _recorded_candidate(self, record: Record) -> Candidate | None:
        """Returns the candidate that a record came from; None if its choices make another schedule today."""
        return self.find_candidate(record.provenance.sketch, record.provenance.choices, record.trace_key)

    def find_candidate(self, name: str | None, choices: tuple[int, ...] | None, trace_key: str) -> Candidate | None:
        """Returns the candidate of a sketch's choices; None if they do not make that schedule in this space."""
        numbers = [number for number, sketch in enumerate(self.space.sketches) if sketch.name == name]
        if choices is None or not numbers:
            return None
        groups = self.space.sketches[numbers[0]].groups
        fits = len(choices) == len(groups) and all(
            choice < len(group.table) for choice, group in zip(choices, groups, strict=True)
        )
        if not fits or self.space.sketches[numbers[0]].trace(choices).key != trace_key:
            return None
        return Candidate(numbers[0], choices)


def _digest(trace_key: str) -> bytes:
    return hashlib.blake2b(trace_key.encode(), digest_size=16).digest()

"""Runs as a report shows them: read from run folders and records files."""

from __future__ import annotations

import json
import logging
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from autotune.compiler.checking.benched import read_timings
from autotune.config import ConfigError
from autotune.naming import file_name
from autotune.report.figures import Figures, add_up, figures_in, nan_or, worst_decibels
from autotune.report.terminal import unsteady_sentence
from autotune.run_files import SCHEMA
from autotune.tuner.finals import Best, is_final, select_best
from measure.database import records_in, summarise_refusals
from measure.journal import Journal
from measure.record import Record, is_whole
from search_space.workloads import Workload

log = logging.getLogger(__name__)

PAUSE = 300.0
"""Seconds without a result after which the clock of a run stands still: it was stopped and resumed."""


MOST_TEXT = 20_000
"""Characters of a schedule or program that a page shows."""


class TaskKey(NamedTuple):
    """Identity of what was measured: latencies compare where it is equal; `conditions` is "" where nothing was."""

    workload: str
    target: str
    conditions: str


class Step(NamedTuple):
    """The best latency after a number of trials."""

    trials: int
    clock: float  # seconds since the run's first trial began
    seconds: float


class FinalTiming(NamedTuple):
    """Seconds of the best candidate as timed again at the end of the run, and the quartiles of these timings."""

    seconds: float
    low: float
    high: float


@dataclass(kw_only=True)
class TaskData(Figures):
    """One task of a run.

    Attributes:
        key: key by which the same task of other runs is identified.
        records: trials by order, without traces and without timings at the end of the run.
        finals: timings at the end of the run.
        schedule, program: text of the best schedule and of its loops; "" where the run folder has none.
        clocks: seconds since the beginning of the run at which each of `records` came in.
    """

    key: TaskKey
    records: list[Record] = field(default_factory=list)
    finals: list[Record] = field(default_factory=list)
    schedule: str = ""
    program: str = ""
    clocks: list[float] = field(default_factory=list)

    @cached_property
    def gains(self) -> list[Step]:
        """The trials that were faster than all before them."""
        steps: list[Step] = []
        for number, (record, clock) in enumerate(zip(self.records, self.clocks, strict=True), 1):
            if record.ok and not (steps and steps[-1].seconds <= record.seconds):
                steps.append(Step(number, clock, record.seconds))
        return steps

    @cached_property
    def best(self) -> Best | None:
        """The best candidate of the records; None where nothing worked."""
        return select_best(self.records, self.finals)

    @property
    def final_timing(self) -> FinalTiming | None:
        """The best candidate as timed again at the end; None where that was not done."""
        if not self.finals or not self.clocks or math.isnan(self.seconds):
            return None
        factor = 1.0 if math.isnan(self.spread) else 1 + self.spread / 2  # a spread may be twice the median
        return FinalTiming(self.seconds, self.seconds / factor, self.seconds * factor)

    def trials_to(self, seconds: float) -> int | None:
        """Counts trials until one took at most `seconds`; None where none did."""
        return next((step.trials for step in self.gains if step.seconds <= seconds), None)


@dataclass
class RunData:
    """One run.

    Attributes:
        name: shown; `page` makes it unique among the runs.
        path: run folder or records file.
        config: configuration of the run; empty if only records exist.
        hosts: descriptions of machines, and how many trials each measured.
        tasks: tasks, in the order of the run.
        network: part `network` of the summary; empty without a network.
        bench_timings: timings by `autotune bench` of its present executable.
        phases: wall seconds of the driver by phase; empty where they are not known.
        clock: seconds from the beginning of the first trial to the last result, long pauses left out.
        note: remark that the reader must see; "" for none.
        rooflines: pictures (PNG) of the kernels under the roofs of their machines.
    """

    name: str
    path: Path
    config: Mapping[str, Any] = field(default_factory=dict)
    hosts: list[tuple[Mapping[str, Any], int]] = field(default_factory=list)
    tasks: list[TaskData] = field(default_factory=list)
    network: Mapping[str, Any] = field(default_factory=dict)
    bench_timings: Sequence[Mapping[str, Any]] = ()
    phases: Mapping[str, float] = field(default_factory=dict)
    clock: float = 0.0
    note: str = ""
    rooflines: Sequence[bytes] = ()

    @property
    def records(self) -> list[Record]:
        """Trials of all tasks, in the order in which they came in."""
        return sorted((r for task in self.tasks for r in task.records), key=lambda record: record.provenance.time)

    @property
    def errors(self) -> Counter[str]:
        """Trials by error class, those that worked left out."""
        return Counter(str(r.error) for task in self.tasks for r in task.records if not r.ok)

    @cached_property
    def sum(self) -> Figures:
        """All tasks together."""
        return add_up(self.tasks)

    @property
    def network_seconds(self) -> float:
        """Latency of the network as one executable; NaN where it was not measured."""
        return nan_or(self.network.get("seconds"))

    @property
    def reference_seconds(self) -> float:
        """Latency of the whole elsewhere; NaN where it was not measured."""
        return nan_or(self.network.get("reference_seconds")) if self.network else self.sum.reference_seconds

    @property
    def ratio(self) -> float:
        """Speed-up of the whole over its reference."""
        return self.reference_seconds / (self.network_seconds if self.network else self.sum.seconds)

    @property
    def decibels(self) -> float:
        """Signal to noise of the network's worst output beside float32; NaN where nothing is rounded."""
        return nan_or(worst_decibels(self.network))

    @property
    def building(self) -> float:
        """Seconds of all builds; builds side by side are added up."""
        return self._add_seconds("build_seconds")

    @property
    def running(self) -> float:
        """Seconds of all checks and timings."""
        return self._add_seconds("run_seconds")

    def _add_seconds(self, name: str) -> float:
        outcomes = [record.outcome for task in self.tasks for record in (*task.records, *task.finals)]
        return float(sum(seconds for of in outcomes if not math.isnan(seconds := getattr(of, name))))

    def task(self, key: TaskKey) -> TaskData | None:
        """Finds the task of a key; None if the run lacks it."""
        return next((task for task in self.tasks if task.key == key), None)

    @cached_property
    def steps(self) -> list[Step]:
        """The best latencies of all tasks, added up with their weights.

        A task that no trial has worked of yet counts with the first that will, so that the line begins with the run.
        """
        events = sorted(
            (clock, index, record.seconds if record.ok else math.inf)
            for index, task in enumerate(self.tasks)
            for record, clock in zip(task.records, task.clocks, strict=True)
        )
        best = [task.gains[0].seconds if task.gains else math.inf for task in self.tasks]
        steps: list[Step] = []
        for number, (clock, index, seconds) in enumerate(events, 1):
            if seconds < best[index] or (not steps and seconds < math.inf):
                best[index] = min(best[index], seconds)
                whole = sum(task.weight * value for task, value in zip(self.tasks, best, strict=True))
                if whole < math.inf:
                    steps.append(Step(number, clock, whole))
        return steps

    @property
    def final_timing(self) -> FinalTiming | None:
        """All tasks as timed again at the end, added up with their weights; None where one was not."""
        timed = [(task.weight, task.final_timing) for task in self.tasks]
        if not timed or any(retimed is None for _, retimed in timed):
            return None
        seconds, low, high = (
            sum(weight * getattr(retimed, name) for weight, retimed in timed) for name in ("seconds", "low", "high")
        )
        return FinalTiming(seconds, low, high)

    @property
    def tasks_by_time(self) -> list[TaskData]:
        """Tasks, those first that take most of the time; those without a latency come last."""
        return sorted(self.tasks, key=lambda task: -math.inf if math.isnan(task.total) else task.total, reverse=True)

    @property
    def unsteady(self) -> str:
        """Says that the machine was busy where halves of timings disagree; "" where none do."""
        halves = {task.name: task.best.halves for task in self.tasks if task.best is not None}
        return unsteady_sentence(halves) or ""


def load(path: Path) -> list[RunData]:
    """Reads a run folder, or a records file, which is a run for each seed in it.

    Raises:
        ConfigError: neither of them, or a summary that cannot be read.
        RecordError: records that cannot be read.
    """
    if path.is_dir():
        return [_of_folder(path)]
    if not path.exists():
        raise ConfigError(f"a run must be a run folder or a records file, but {path} does not exist")
    by_seed: dict[int, list[Record]] = {}
    for record in _records(path):
        by_seed.setdefault(record.trial.seed, []).append(record)
    if not by_seed:
        raise ConfigError(f"a run must have records, but {path} holds none")
    shown = path.parent.name if path.name == "records.jsonl" and path.parent.name else path.stem
    return [
        _of_records(RunData(shown if len(by_seed) == 1 else f"{shown} seed {seed}", path), records)
        for seed, records in by_seed.items()
    ]


def _of_folder(folder: Path) -> RunData:
    summary, file = folder / "summary.json", folder / "records.jsonl"
    if not summary.exists():
        if not file.exists():
            raise ConfigError(f"a run must be a folder with summary.json or records.jsonl, but {folder} has neither")
        run = RunData(folder.absolute().name, folder, note="The run has no summary: it goes on, or was stopped hard.")
        return _of_records(run, _records(file))
    document = _summary(summary)
    config = document["config"]
    run = RunData(str(config.get("name", folder.name)), folder, config, network=document.get("network") or {})
    try:
        run.bench_timings = read_timings(folder, folder / "network")
    except ValueError as error:
        raise ConfigError(str(error)) from None
    if config.get("records"):
        file = Path(config["records"])
    try:
        summaries = [_of_summary(entry) for entry in document["tasks"]]
        phases = [Counter(dict(entry.get("phases") or {})) for entry in document["tasks"]]
    except (KeyError, TypeError, ValueError, AttributeError) as error:  # whatever JSON there is
        rule = f"`tasks` must be those of {SCHEMA}, but one is not ({type(error).__name__}: {error})"
        raise ConfigError(f"{summary}: {rule}") from None
    run.tasks = summaries
    for task in summaries:
        place = folder / "best" / file_name(task.name)
        task.schedule, task.program = (_text(place / f"{name}.txt") for name in ("schedule", "program"))
    run.rooflines = [path.read_bytes() for path in sorted(folder.glob("roofline*.png"))]
    run.phases = sum(phases, Counter())
    if not file.exists():
        run.note = f"The records are missing: {file}."
        run.hosts = [(document["host"], 0)]
        return run
    mine = {(task.key.workload, task.key.target): task for task in summaries}
    records = [r for r in _records(file) if (r.workload_key, r.target) in mine]
    return _of_records(run, [r for r in records if r.trial.seed == config.get("seed", r.trial.seed)], mine)


def _text(path: Path) -> str:
    """Reads at most `MOST_TEXT` characters of a file; "" if it does not exist."""
    if not path.is_file():
        return ""
    text = path.read_text(encoding="utf-8", errors="replace")
    return text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]}\n... ({len(text):,} characters in {path.name})"


def _summary(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_bytes())
    except (ValueError, UnicodeDecodeError):
        raise ConfigError(f"{path}: a summary must be a JSON document") from None
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        found = document.get("schema") if isinstance(document, dict) else type(document).__name__
        raise ConfigError(f"{path}: `schema` must be {SCHEMA!r}, but got schema={found!r}")
    for name, kind in (("config", dict), ("tasks", list), ("host", dict)):
        if not isinstance(document.get(name), kind):
            raise ConfigError(f"{path}: `{name}` must be a JSON {kind.__name__}, but got {document.get(name)!r:.60}")
    return document


def _of_summary(entry: Mapping[str, Any]) -> TaskData:
    workload = Workload.from_json(entry["workload"])
    return TaskData(key=TaskKey(workload.key, entry["target"], ""), **figures_in(entry, workload))


def _records(path: Path) -> list[Record]:
    """Reads the records of a file without the parts that a report does not show."""
    hosts: dict[str, Mapping[str, Any]] = {}
    records: list[Record] = []
    refused: list[str] = []
    journal = Journal(path, is_whole, readonly=True)
    try:
        for _, _, record in records_in(journal, refused):
            host = hosts.setdefault(json.dumps(record.host, sort_keys=True), record.host)
            kept = record.latencies if is_final(record) else (record.seconds,) if record.ok else ()
            trial, outcome = replace(record.trial, trace=()), replace(record.outcome, latencies=kept, host=host)
            records.append(replace(record, trial=trial, outcome=outcome))
    finally:
        journal.close()
    for sentence in summarise_refusals(refused):
        log.warning(sentence)
    return records


def _of_records(
    run: RunData, records: Sequence[Record], tasks_by_key: Mapping[tuple[str, str], TaskData] | None = None
) -> RunData:
    """Puts the records into the tasks of a run, which are made of them where no summary names them."""
    counts: dict[str, tuple[Mapping[str, Any], int]] = {}
    tasks: dict[tuple[str, str, str], TaskData] = {}
    last, clock = math.nan, 0.0
    for record in sorted(records, key=lambda record: record.provenance.time):
        trial, outcome, end = record.trial, record.outcome, record.provenance.time
        begin = end - sum(t for t in (outcome.build_seconds, outcome.run_seconds) if t == t)
        step = end - (begin if math.isnan(last) else last)
        clock, last = clock + (step if step < PAUSE else 0.0), end
        measured = f"{trial.threads} thread{'s' * (trial.threads > 1)}, {trial.cache}"
        key_fields = (record.workload_key, record.target, "" if tasks_by_key else measured)
        if key_fields not in tasks:
            key, name = TaskKey(*key_fields), _name(record)
            tasks[key_fields] = (
                tasks_by_key[key_fields[:2]] if tasks_by_key else TaskData(key=key, name=name, flops=_flops(record))
            )
            tasks[key_fields].key = TaskKey(record.workload_key, record.target, measured)
        task = tasks[key_fields]
        if is_final(record):
            task.finals.append(record)
        else:
            task.records.append(record)
            task.clocks.append(clock)
            task.trials, task.failures = task.trials + 1, task.failures + (not record.ok)
        text = json.dumps(record.host, sort_keys=True)
        counts[text] = (record.host, counts.get(text, (record.host, 0))[1] + 1)
    run.clock = clock
    run.hosts = sorted(counts.values(), key=lambda host: -host[1])
    if tasks_by_key is None:
        run.tasks = list(tasks.values())
        for task in run.tasks:
            if (best := task.best) is not None:
                task.seconds, task.spread = best.seconds, best.spread
                task.algorithm, task.metrics = best.record.algorithm, best.record.metrics
    return run


def _name(record: Record) -> str:
    given = record.trial.workload.get("args")
    args = ", ".join(f"{name}={value}" for name, value in given.items()) if isinstance(given, Mapping) else ""
    text = f"{record.trial.workload.get('operator', '')}({args})"
    return text if len(text) <= 90 else record.workload_key[:90]


def _flops(record: Record) -> float:
    """Counts the operations of a record's workload; NaN if this version cannot read it."""
    try:
        return float(Workload.from_json(dict(record.trial.workload)).flops)
    except ValueError:
        return math.nan

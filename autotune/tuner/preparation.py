"""Preparation of a task for tuning: its space, strategy, cost model, and earlier results."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from autotune.config import ConfigError, errors_at
from autotune.tuner.entry_store import EntryStore
from autotune.tuner.scorer import ModelScorer, UnguidedScorer
from autotune.tuner.search import registry as strategies
from autotune.tuner.search.base import Candidate, NoLegalSchedule
from autotune.tuner.search.population import Frame, SeenCandidates
from autotune.tuner.search.sampling import LegalSampler, require_legal
from autotune.tuner.settings import Settings, make_model
from autotune.tuner.task import Task
from autotune.tuner.task_tuning import TaskTuning
from autotune.tuner.untimed import select_without_trials
from costmodel.features import get_extractor
from costmodel.models import folder
from costmodel.models.random_model import RandomModel
from costmodel.pretrained import open_pretrained
from costmodel.transfer import Base, Options, Source, TargetTask, TransferError
from costmodel.transfer.align import NoAlignment
from measure.database import Database
from measure.host import describe_host
from measure.notices import notice_if_slow
from measure.record import Record
from search_space import template as templates
from search_space.operators.algorithms import within
from search_space.operators.base import LIBRARY
from search_space.parameters import ParameterSpace
from search_space.space import SearchSpace, algorithms_on, generate
from search_space.workloads import Workload

SAMPLE = 256
"""Number of random programs by which a new task is compared with others."""


def prepare_task(
    task: Task,
    settings: Settings,
    records: Sequence[Record] = (),
    space: SearchSpace | None = None,
    algorithms: Sequence[str] | None = None,
    source: Source | None = None,
    guided: bool = True,
) -> TaskTuning:
    """Prepares a task for tuning; sets its `failure` if no candidate is legal.

    Args:
        task: task to tune.
        settings: settings of the run, see `Settings.of`.
        records: measurements of the task in an earlier run.
        space: search space; by default that of the template that the settings name, or all that sketch rules make.
        algorithms: algorithms of the workload that sketch rules are applied to; by default those that the settings
            name.
        source: source of `settings.cost_model.transfer`; it is not used for a machine unlike all that it knows.
        guided: whether a cost model learns from the trials.

    Raises:
        ValueError: an option is out of range.
    """
    settings = settings.of(task)
    if settings.target.simulated:  # its times do not vary
        settings = settings.searching(finalists=0)
    space = space or template_space(task, settings)
    by_rules = space is None
    if space is None:
        allowed = known_algorithms(task, settings) if algorithms is None else algorithms
        space = generate(task.workload, settings.target.hardware, allowed)
    failure: NoLegalSchedule | None = None
    try:
        require_legal(space)
    except NoLegalSchedule as error:
        failure = error
    of, key = settings.cost_model, task.workload.key
    pretrained = open_pretrained(of.pretrained, settings.target.name)
    scorer = ModelScorer(
        space,
        make_model(of, settings.seed),
        settings.generator(key, "guide"),
        extractor=partial(get_extractor, cold_constants=settings.measure.cache == "network", threads=settings.threads),
        exploration=of.exploration,
        features=of.features,
        pretrained_model=pretrained,
    )
    if failure is None and source is not None and of.transfer and source.knows(space.hardware):
        target_task = describe_task(scorer, settings.generator(key, "transfer"))
        with notice_if_slow(f"learning from the tasks of {source.name}, which may take seconds for each"):
            options = Options(**dict(of.transfer))
            scorer.transfer = source.for_task(target_task, options, settings.seed, pretrained is not None)
    how = settings.search
    with errors_at("search.options"):
        strategy = strategies.get(how.strategy)(space, scorer, settings.generator(key, "search"), **how.options)
    tuning = TaskTuning(task, space, settings, strategy, scorer, describe_host())
    if failure is not None:
        tuning.refuse(failure)
    elif how.template is None and how.starts and not isinstance(space, ParameterSpace):
        with errors_at("search.database"):
            store = EntryStore(settings)
        starts = store.candidates(space, settings.target, how.starts)
        tuning.first = list(starts)
        if by_rules and not any(starts.values()):
            tuning.choose = partial(_without_trials, tuning)
    if not guided:
        tuning.scorer = UnguidedScorer(space, RandomModel(), settings.generator(key, "unguided"))
    tuning.replay(records)
    return tuning


def _without_trials(tuning: TaskTuning) -> Candidate | None:
    """Chooses a candidate without trials; None if it is not in the space of the task."""
    shown = {sketch.algorithm for sketch in tuning.space.sketches}
    named = (*(tuning.settings.search.algorithms or ()), *tuning.settings.algorithms)
    usual = within(tuning.task.workload.algorithms, explicit=named)
    allowed = [name for name in usual if name in shown and name != LIBRARY]
    if not allowed:
        return None
    try:
        found = select_without_trials(tuning.task, tuning.settings, allowed)
    except ConfigError:
        return None  # no candidate of generated code is legal
    return tuning.find_candidate(found.sketch, found.choices, found.trace.key)


def open_source(settings: Settings) -> Source | None:
    """Opens the source of other tasks that searches learn from; None if the settings name none.

    Raises:
        TransferError, DatasetError, RecordError, CostModelError: the source cannot be used.
    """
    if settings.cost_model.transfer is None:
        return None
    source, hardware = settings.cost_model.transfer.source, settings.target.hardware
    if not isinstance(source, Source):
        with notice_if_slow(f"learning from {source}"):
            source = _open_files(Path(source))
    if not source.knows(hardware):
        raise TransferError(f"`source` must hold tasks of machines like {hardware.name}, but {source.name} has none")
    return source


def _open_files(path: Path) -> Source:
    """Opens a source of any kind from files."""
    if (path / folder.KIND).is_file():
        name, model = folder.load(path)
        return Source(base=Base(name, {}, model, NoAlignment()), name=str(path))
    return Source.open(path)


def describe_task(scorer: ModelScorer, rng: np.random.Generator, count: int = SAMPLE) -> TargetTask:
    """Describes the task of a scorer for transfer, with random programs, equally many of every sketch."""
    space = scorer.space
    if isinstance(space, ParameterSpace):
        raise ValueError(f"a task to transfer to must have programs, but {space.name} is a space of parameters")
    frame = Frame(space)
    sketches = len(frame.sketches)
    drawn = LegalSampler(frame, SeenCandidates(), rng).spread(
        np.full(sketches, max(1, count // max(1, sketches)), np.int64)
    )
    sample = [
        features
        for sketch, places in drawn.by_sketch()
        for features in scorer.features(sketch, frame.choices(sketch, drawn.rows[places]))
    ]
    return TargetTask(space.workload, space.hardware, sample)


def template_space(task: Task, settings: Settings) -> SearchSpace | None:
    """Makes the search space of the template that the settings name; None if sketch rules make it.

    Raises:
        ConfigError: the template does not exist, or does not schedule this workload on this target.
    """
    how = settings.search
    if how.template is None:
        return None
    with errors_at("search.template"):
        if how.algorithms is not None:
            raise ValueError(
                f"`template` must stand without `algorithms`, as it chooses itself, but got algorithms={how.algorithms}"
            )
        return templates.get(how.template)(task.workload).space(settings.of(task).target.hardware)


def known_algorithms(task: Task, settings: Settings) -> Sequence[str] | None:
    """Returns the algorithms that the settings allow; None: all. By default those chosen by name only are excluded.

    Raises:
        ConfigError: the workload lacks a named algorithm.
    """
    wanted, names = settings.search.algorithms, task.workload.algorithms
    for name in wanted or ():
        if name not in names:
            raise ConfigError(f"`algorithms` must be among {', '.join(names)}, but got {name!r}", "search.algorithms")
    usual = within(names, explicit=settings.algorithms)
    if wanted is None and len(usual) < len(names):
        return [name for name in algorithms_on(task.workload, settings.target.hardware) if name in usual]
    return wanted


def reusable_records(database: Database | None, workload: Workload | None, settings: Settings) -> list[Record]:
    """Lists the records of a workload, or of all of them, that a run with these settings need not measure again."""
    if database is None:
        return []
    return [
        record
        for record in database.records(None if workload is None else workload.key, settings.target.name)
        if record.trial.threads == settings.threads and record.trial.cache == settings.measure.cache
    ]

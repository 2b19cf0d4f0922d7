"""`tune`: from a workload to a kernel, with everything at its default unless it is said."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from autotune.config import ConfigError, Measure, Model, Search, Transfer, errors_at
from autotune.database import open_schedules
from autotune.database.starts import starts
from autotune.lab import folder
from autotune.search import registry as strategies
from autotune.search.base import Candidate, NoLegalSchedule, SearchStrategy
from autotune.search.population import Frame, Seen
from autotune.search.sampling import LegalSampler, require_legal
from autotune.tuning.callbacks import Callback
from autotune.tuning.loop import run_rounds
from autotune.tuning.pools import make_pool
from autotune.tuning.result import AllTrialsFailed, TuneResult
from autotune.tuning.scorer import ModelScorer
from autotune.tuning.settings import Settings, make_model
from autotune.tuning.task import Task
from autotune.tuning.task_tuning import TaskTuning
from autotune.tuning.untimed import without_trials
from costmodel.features import extractor_of
from costmodel.models.base import CostModel
from costmodel.pretrained import open_pretrained
from costmodel.transfer import Base, Options, Source, TargetTask, TransferError
from costmodel.transfer.align import Unaligned
from measure.database import Database
from measure.host import describe_host
from measure.notices import notice_if_slow
from measure.pool import MeasurePool
from measure.record import Record
from search_space import template as templates
from search_space.operators.algorithms import within
from search_space.operators.base import LIBRARY
from search_space.operators.checks import integer
from search_space.parameters import ParameterSpace
from search_space.space import SearchSpace, algorithms_on, generate
from search_space.te import Tensor
from search_space.template import TuningTemplate
from search_space.workloads import Workload
from targets import registry as targets
from targets.base import Target

SAMPLE = 256
"""Random programs by which a new task is compared with others."""


def tune(
    workload: Workload | Sequence[Tensor] | TuningTemplate,
    target: str | targets.Design = "cpu",
    trials: int = 64,
    seed: int = 0,
    *,
    search: Search | str | type[SearchStrategy] = Search(),
    cost_model: Model | str | type[CostModel] | CostModel = Model(),
    measure: Measure | str | MeasurePool = Measure(),
    transfer: Transfer | Source | str | os.PathLike[str] | None = None,
    algorithms: Sequence[str] = (),
    records: str | os.PathLike[str] | None = None,
    callbacks: Sequence[Callback] = (),
) -> TuneResult:
    """Searches the schedules of a workload for the fastest one on this machine.

    Args:
        workload: what to compute: one of `search_space.workloads`, or te tensors, inputs first, the output last; or a
            template with its arguments, whose knobs are searched then (`search_space.template`). An operator that only
            this process knows goes to the workers, and into records, as plain data, see `workloads.own`.
        target: a name of `targets.registry`, or the design of an accelerator, such as `VtaHardware(log_inp_buffer=13)`.
        trials: candidates to measure.
        seed: of every random draw, and of the inputs.
        search: how candidates are proposed; or just a strategy, by its name or as a class of one's own.
        cost_model: what scores candidates before they are measured; or just its name, or a class; or an object, which
            stands for its class and options, and learns by the run's seed.
        measure: how candidates are measured; or just a pool, by its name or open, which is left open.
        transfer: what is known from other tasks, in place of `cost_model.transfer`; or just the source: a dataset's
            folder, a records file, a saved model, or a `Source` opened before, learned from once for many calls.
        algorithms: algorithms to search besides the default ones, such as `strassen`; those of `search.algorithms` are
            all that is searched.
        records: file to append records to. What it holds of this workload is not measured again.
        callbacks: listeners of the run.

    Returns:
        The result; after Ctrl-C with what was measured by then.

    Raises:
        NoLegalSchedule: no candidate keeps the target's limits.
        AllTrialsFailed: no candidate works; quotes the first failure.
        ValueError: an unknown target, strategy, model or pool, or an option out of range, or tensors that
            are no definition.
        RecordError: `records` cannot be used.
        TransferError: `transfer` cannot.
    """
    integer("trials", trials)
    integer("seed", seed, 0)
    if isinstance(workload, str) or not isinstance(workload, Workload | TuningTemplate | Sequence):
        rule = "one of search_space.workloads, a template with its arguments, or tensors"
        raise ValueError(f"`workload` must be {rule}, but got workload={workload!r:.80}")
    for callback in callbacks:
        if not isinstance(callback, Callback):
            raise ValueError(
                f"`callbacks` must be objects of autotune.tuning.callbacks.Callback, but got {callback!r:.80}"
            )
    on = targets.get(targets.name_of(target))
    space: SearchSpace | None = None
    if isinstance(workload, TuningTemplate):
        space = workload.space(on.hardware)
        workload = space.workload
    workload = workload if isinstance(workload, Workload) else Workload.of(workload)
    name, workload = workload.operator, workload.portable
    if space is not None:
        space = replace(space, workload=workload)
    settings = settings_for(on, trials, seed, search, cost_model, measure, transfer, algorithms)
    source, task = source_of(settings), Task(name, workload)
    with nullcontext() if records is None else Database(records) as database:
        tuning = prepare(task, settings, known(database, workload, settings), space, source=source)
        if tuning.failure is not None:
            raise tuning.failure
        pool = make_pool(settings.measure)
        with nullcontext() if pool is settings.measure.pool else pool:
            (result,) = run_rounds([tuning], pool, database, callbacks)
    if tuning.failure is not None:
        raise tuning.failure
    if result.problem:
        raise AllTrialsFailed(result)
    return result


def settings_for(
    target: Target,
    trials: int,
    seed: int,
    search: Search | str | type[SearchStrategy] = Search(),
    cost_model: Model | str | type[CostModel] | CostModel = Model(),
    measure: Measure | str | MeasurePool = Measure(),
    transfer: Transfer | Source | str | os.PathLike[str] | None = None,
    algorithms: Sequence[str] = (),
) -> Settings:
    """What `tune` is given, as settings."""
    model = cost_model if isinstance(cost_model, Model) else Model(name=cost_model)
    if transfer is not None:
        section = transfer if isinstance(transfer, Transfer) else Transfer(source=transfer)
        model = Model(**{**dict(model), "transfer": section})
    return Settings(
        target,
        trials,
        seed,
        search if isinstance(search, Search) else Search(strategy=search),
        model,
        measure if isinstance(measure, Measure) else Measure(pool=measure),
        tuple(algorithms),
    )


def prepare(
    task: Task,
    settings: Settings,
    records: Sequence[Record] = (),
    space: SearchSpace | None = None,
    algorithms: Sequence[str] | None = None,
    source: Source | None = None,
) -> TaskTuning:
    """A task ready to be tuned, or one with a `failure` where no candidate is legal.

    Args:
        task: what to tune.
        settings: how; of the run, see `Settings.of`.
        records: what an earlier run measured of it.
        space: where to search; by default that of the template that the settings name, or all that sketch rules make.
        algorithms: of the workload that sketch rules are applied to; by default those that the settings name.
        source: of `settings.cost_model.transfer`; a task of a machine unlike all that it knows has none.

    Raises:
        ValueError: an option out of range.
    """
    settings = settings.of(task)
    if settings.target.simulated:  # says the same every time
        settings = settings.searching(finalists=0)
    space = space or template_space(task, settings)
    whole = space is None
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
        extractor=partial(extractor_of, cold_constants=settings.measure.cache == "network", threads=settings.threads),
        exploration=of.exploration,
        features=of.features,
        pretrained=pretrained,
    )
    if failure is None and source is not None and of.transfer and source.knows(space.hardware):
        target_task = described(scorer, settings.generator(key, "transfer"))
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
            known_before = open_schedules(how.database)
        found = starts(known_before, space, settings, how.starts)
        tuning.first = [start.candidate for start in found]
        if whole and not any(start.exact for start in found):
            tuning.choose = partial(_without_trials, tuning)
    tuning.replay(records)
    return tuning


def _without_trials(tuning: TaskTuning) -> Candidate | None:
    """What a task would have without any trial, if that is in its space."""
    shown = {sketch.algorithm for sketch in tuning.space.sketches}
    named = (*(tuning.settings.search.algorithms or ()), *tuning.settings.algorithms)
    usual = within(tuning.task.workload.algorithms, named=named)
    allowed = [name for name in usual if name in shown and name != LIBRARY]
    if not allowed:
        return None
    try:
        found = without_trials(tuning.task, tuning.settings, allowed)
    except ConfigError:
        return None  # no candidate of code that is generated is legal
    return tuning.candidate_of(found.sketch, found.choices, found.trace.key)


def source_of(settings: Settings) -> Source | None:
    """What the searches learn of other tasks, opened; None where nothing.

    Raises:
        TransferError, DatasetError, RecordError, ModelError: it cannot be used.
    """
    if settings.cost_model.transfer is None:
        return None
    source, hardware = settings.cost_model.transfer.source, settings.target.hardware
    if not isinstance(source, Source):
        with notice_if_slow(f"learning from {source}"):
            source = _opened(Path(source))
    if not source.knows(hardware):
        raise TransferError(f"`source` must hold tasks of machines like {hardware.name}, but {source.name} has none")
    return source


def _opened(place: Path) -> Source:
    """A source of any kind that lies in files."""
    if (place / folder.KIND).is_file():
        name, model = folder.load(place)
        return Source(base=Base(name, {}, model, Unaligned()), name=str(place))
    return Source.open(place)


def described(scorer: ModelScorer, rng: np.random.Generator, count: int = SAMPLE) -> TargetTask:
    """The task of a scorer as transfer sees it, with random programs of every sketch equally often."""
    space = scorer.space
    if isinstance(space, ParameterSpace):
        raise ValueError(f"a task to transfer to must have programs, but {space.name} is a space of parameters")
    frame = Frame(space)
    sketches = len(frame.sketches)
    drawn = LegalSampler(frame, Seen(), rng).spread(np.full(sketches, max(1, count // max(1, sketches)), np.int64))
    sample = [
        features
        for sketch, places in drawn.by_sketch()
        for features in scorer.features(sketch, frame.choices(sketch, drawn.rows[places]))
    ]
    return TargetTask(space.workload, space.hardware, sample)


def template_space(task: Task, settings: Settings) -> SearchSpace | None:
    """The search space of the template that the settings name; None where sketch rules make it.

    Raises:
        ConfigError: no such template, or one that does not schedule this workload on this target.
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
    """The algorithms that the settings allow; None: all. By default none of those that are chosen by name alone.

    Raises:
        ConfigError: one that the workload has not.
    """
    wanted, names = settings.search.algorithms, task.workload.algorithms
    for name in wanted or ():
        if name not in names:
            raise ConfigError(f"`algorithms` must be among {', '.join(names)}, but got {name!r}", "search.algorithms")
    usual = within(names, named=settings.algorithms)
    if wanted is None and len(usual) < len(names):
        return [name for name in algorithms_on(task.workload, settings.target.hardware) if name in usual]
    return wanted


def known(database: Database | None, workload: Workload, settings: Settings) -> list[Record]:
    """Records of a workload that a run with these settings need not measure again."""
    if database is None:
        return []
    return [
        record
        for record in database.records(workload.key, settings.target.name)
        if record.trial.threads == settings.threads and record.trial.cache == settings.measure.cache
    ]

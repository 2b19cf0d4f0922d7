"""`tune`: from a workload to a kernel, with everything at its default unless it is said."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from autotune import search
from autotune.callbacks import Callback
from autotune.guide import Guide
from autotune.knob_guide import KnobGuide
from autotune.lab import folder
from autotune.loop import run_rounds
from autotune.models import make_model
from autotune.pools import make_pool
from autotune.result import AllTrialsFailed, TuneResult
from autotune.search.base import NoLegalSchedule, SearchStrategy
from autotune.search.population import Frame, Seen
from autotune.search.sampling import LegalSampler, require_legal
from autotune.task import Task
from autotune.tuning import Settings, TaskTuning
from costmodel.features import FeatureExtractor
from costmodel.models.base import CostModel
from costmodel.models.registry import name_of
from costmodel.transfer import Base, Options, Source, TargetTask, TransferError
from costmodel.transfer.align import Unaligned
from measure.database import Database
from measure.host import describe_host
from measure.notices import notice_if_slow
from measure.pool import Cache, MeasurePool
from measure.record import Record
from search_space.space import SearchSpace, generate
from search_space.te import Tensor
from search_space.template import TuningTemplate
from search_space.workloads import Workload
from targets import registry as targets

SAMPLE = 256
"""Random programs by which a new task is compared with others."""


def tune(
    workload: Workload | Sequence[Tensor] | TuningTemplate,
    target: str | targets.Design = "cpu",
    trials: int = 64,
    seed: int = 0,
    *,
    strategy: str | type[SearchStrategy] = "evolution",
    strategy_options: Mapping[str, Any] | None = None,
    cost_model: str | type[CostModel] = "lightgbm",
    cost_model_options: Mapping[str, Any] | None = None,
    features: Literal["loops", "knobs", "both"] = "loops",
    transfer: Options | Source | str | os.PathLike[str] | None = None,
    exploration: float = 0.0,
    batch: int = 32,
    finalists: int = 3,
    threads: int | None = None,
    cache: Cache = "warm",
    pool: MeasurePool | str = "local",
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
        strategy: a name of `autotune.search.STRATEGIES`, `FILE.py:Class` or a class of one's own, with its options.
        cost_model: a name of `costmodel.models.registry`, or a class of one's own, with its options.
        features: what the model sees: the program's loops, the values of decisions, or both.
        transfer: what is known from other tasks: a dataset's folder, a records file or a saved model, a `Source`
            opened before, which is learned from once for many calls, or `Options`, which say how it is used.
        exploration: of the model's standard deviations, so many are added to a candidate's score.
        batch: trials of a round.
        finalists: fastest candidates that are timed again at the end, besides the trials.
        threads: that a kernel runs on; None: one a core.
        cache: `warm`, or `network` with weights that are cold.
        pool: what measures: an open pool, which is left open, or a name as in the configuration.
        records: file to append records to. What it holds of this workload is not measured again.
        callbacks: who is told of the progress.

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
    target = targets.name_of(target)
    space: SearchSpace | None = None
    if isinstance(workload, TuningTemplate):
        space = workload.space(targets.get(target).hardware)
        workload = space.workload
    workload = workload if isinstance(workload, Workload) else Workload.of(workload)
    name, workload = workload.operator, workload.portable
    if space is not None:
        space = replace(space, workload=workload)
    settings = Settings(
        target=target,
        trials=trials,
        seed=seed,
        batch=batch,
        finalists=finalists,
        strategy=strategy if isinstance(strategy, str) else search.name_of(strategy),
        strategy_options=strategy_options or {},
        cost_model=cost_model if isinstance(cost_model, str) else name_of(cost_model),
        cost_model_options=cost_model_options or {},
        features=features,
        transfer=_options_of(transfer),
        exploration=exploration,
        threads=threads or targets.get(target).hardware.cores,
        cache=cache,
    )
    source = source_of(settings)
    with opened(records) as database:
        task = Task(name, workload)
        tuning = prepare(task, settings, known(database, workload, settings), space, source=source)
        if tuning.failure is not None:
            raise tuning.failure
        if isinstance(pool, MeasurePool):
            (result,) = run_rounds([tuning], pool, database, callbacks)
        else:
            with make_pool(pool) as own:
                (result,) = run_rounds([tuning], own, database, callbacks)
    if tuning.failure is not None:
        raise tuning.failure
    if result.problem:
        raise AllTrialsFailed(result)
    return result


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
        space: where to search; the workload's whole space by default.
        algorithms: of the workload that the default space holds; all by default.
        source: of `settings.transfer`; a task of a machine that it knows nothing like is searched without it.

    Raises:
        ValueError: an option out of range.
    """
    settings = settings.of(task)
    target = targets.get(settings.target)
    if target.simulated:  # says the same every time
        settings = replace(settings, finalists=0)
    space = space or generate(task.workload, target.hardware, algorithms)
    failure = _failure(space)
    key = task.workload.key
    model = make_model(settings.cost_model, settings.cost_model_options, settings.seed)
    extractor = partial(FeatureExtractor, cold_constants=settings.cache == "network")
    rng = settings.generator(key, "guide")
    if settings.features == "loops":
        guide = Guide(space, model, rng, extractor=extractor, exploration=settings.exploration)
    else:
        loops = settings.features == "both"
        guide = KnobGuide(space, model, rng, extractor=extractor, exploration=settings.exploration, loops=loops)
    if failure is None and source is not None and settings.transfer is not None and source.knows(space.hardware):
        rng = settings.generator(key, "transfer")
        guide.transfer = source.for_task(described(guide, rng), settings.transfer, settings.seed)
    kind = search.get(settings.strategy)
    strategy = kind(space, guide, settings.generator(key, "search"), **settings.strategy_options)
    tuning = TaskTuning(task, space, settings, strategy, guide, describe_host())
    if failure is not None:
        tuning.refuse(failure)
    tuning.replay(records)
    return tuning


def _failure(space: SearchSpace) -> NoLegalSchedule | None:
    """That no candidate of a space is legal, found out before anything is measured; None where one is."""
    try:
        require_legal(space)
    except NoLegalSchedule as error:
        return error
    return None


def source_of(settings: Settings) -> Source | None:
    """What the searches are told of other tasks, opened; None where they are told nothing.

    Raises:
        TransferError, DatasetError, RecordError, ModelError: it cannot be used.
    """
    if settings.transfer is None:
        return None
    source = settings.transfer.source
    if not isinstance(source, Source):
        with notice_if_slow(f"learning from {source}"):
            source = _opened(Path(source))
    hardware = targets.get(settings.target).hardware
    if not source.knows(hardware):
        raise TransferError(f"`source` must hold tasks of machines like {hardware.name}, but {source.name} has none")
    return source


def _opened(place: Path) -> Source:
    """A source of any kind that lies in files."""
    if (place / folder.KIND).is_file():
        name, model = folder.load(place)
        return Source(base=Base(name, {}, model, Unaligned()), name=str(place))
    return Source.open(place)


def _options_of(transfer: Options | Source | str | os.PathLike[str] | None) -> Options | None:
    """How a source is used that may be given by itself."""
    if transfer is None or isinstance(transfer, Options):
        return transfer
    return Options(transfer if isinstance(transfer, Source) else os.fspath(transfer))


def described(guide: Guide, rng: np.random.Generator, count: int = SAMPLE) -> TargetTask:
    """The task of a guide as transfer sees it, with random programs of every sketch equally often."""
    frame = Frame(guide.space)
    sketches = len(frame.sketches)
    drawn = LegalSampler(frame, Seen(), rng).spread(np.full(sketches, max(1, count // max(1, sketches)), np.int64))
    sample = [
        features
        for sketch, places in drawn.by_sketch()
        for features in guide.features(sketch, frame.choices(sketch, drawn.rows[places]))
    ]
    return TargetTask(guide.space.workload, guide.space.hardware, sample)


def known(database: Database | None, workload: Workload, settings: Settings) -> list[Record]:
    """Records of a workload that a run with these settings need not measure again."""
    if database is None:
        return []
    return [
        record
        for record in database.records(workload.key, settings.target)
        if record.trial.threads == settings.threads and record.trial.cache == settings.cache
    ]


@contextmanager
def opened(path: str | os.PathLike[str] | None) -> Iterator[Database | None]:
    """The database of a records file; None where no file is wanted."""
    if path is None:
        yield None
    else:
        with Database(path) as database:
            yield database

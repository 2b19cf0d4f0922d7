"""A run of the command line: configuration to tasks, tuning, reference timings and the run folder."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotune import run_files
from autotune.config import ConfigError, RunConfig, errors_at
from autotune.run import folder as run_folder
from autotune.run.sizes import tuned_for_sizes
from autotune.run.workloads import list_tasks, make_job, make_settings
from autotune.tracking.tracker import Tracker, make_tracker
from autotune.tuner.callbacks import Callback
from autotune.tuner.interrupt import Interrupt
from autotune.tuner.pools import check_runnable, make_pool
from autotune.tuner.preparation import open_source
from autotune.tuner.result import TuneResult, list_problems
from autotune.tuner.search.base import NoLegalSchedule
from autotune.tuner.settings import Settings
from autotune.tuner.task import Task
from autotune.tuner.tune_tasks import TaskRequest, tune_kernels, tune_tasks
from measure.database import Database
from measure.hostlock import alone
from measure.steadiness import tell_if_busy
from search_space.extras import missing
from targets import registry

if TYPE_CHECKING:
    from autotune.tuner.sizes import SizesResult


@dataclass(frozen=True)
class Outcome:
    """Outcome of a run.

    Attributes:
        results: result of each task.
        references: seconds of each task on ONNX Runtime; None where it was not timed.
        document: the content of `summary.json`.
        folder: the run folder.
        notes: remarks for the user, a sentence each.
        seconds: wall time of the run.
        wrong: fault of the executable of a network; "" if it is right.
        stopped: whether the user did so after the search.
        tracking_note: parts that the tracking store lacks, and why; "" if it has everything, or the upload goes on.
    """

    results: Sequence[TuneResult]
    references: Sequence[float | None]
    document: dict[str, Any]
    folder: Path
    notes: Sequence[str]
    seconds: float
    wrong: str = ""
    stopped: bool = False
    tracking_note: str = ""

    @property
    def interrupted(self) -> bool:
        """True where the user stopped it early."""
        return self.stopped or any(result.interrupted for result in self.results)

    @property
    def problems(self) -> list[str]:
        """Tasks that have no legal schedule or none that works, and an executable that computes something else.

        Within a network another schedule replaces that of a task whose trials all failed, unless all trials did.
        """
        replaced = "network" in self.document and any(result.best is not None for result in self.results)
        return [*list_problems(self.results, replaced), *([self.wrong] if self.wrong else [])]


def run(
    config: RunConfig,
    where: str,
    resume: bool = False,
    callbacks: Sequence[Callback] = (),
    say: Callable[[str], None] = lambda text: None,
    show: Callable[[Outcome], None] = lambda outcome: None,
) -> Outcome:
    """Runs a configuration; the upload to the tracking store may go on after it, see `tracking.wait_s`.

    Args:
        config: configuration of the run.
        where: name of its file, for who looks at the run later.
        resume: go on with the records that are there; otherwise those in the run folder are set aside.
        callbacks: listeners of the run.
        say: shows a sentence to the user.
        show: is given the outcome before the upload is waited for.

    Raises:
        ConfigError: something in the configuration cannot be done.
        MeasureError: records that cannot be used, or a pool that cannot start.
    """
    if config.collect is not None:
        raise ConfigError("a run must have `model` or `workload`, but got `collect`, see `autotune collect`", "")
    tracker = make_tracker(config, where, say)
    with tracker:
        outcome = _run(config, resume, (*callbacks, tracker), say, tracker)
        show(outcome)
        return replace(outcome, tracking_note=tracker.settle())


def _run(
    config: RunConfig,
    resume: bool,
    callbacks: Sequence[Callback],
    say: Callable[[str], None],
    tracker: Tracker,
) -> Outcome:
    start = time.perf_counter()
    settings = make_settings(config)
    if config.lock is not None and settings.trials:
        raise ConfigError(
            f"`trials` must be 0 where `lock` has the schedules, but got trials={settings.trials}, lock={config.lock}",
            "",
        )
    target = settings.target
    check_runnable(config.measure, (target, registry.get(config.target)))
    if config.measure.pool in ("local", "ray") and not target.simulated:
        tell_if_busy(say)
    network, limits, job = None, None, None
    if config.model is None:
        tasks = list_tasks(config)
    else:
        job = make_job(config)
        network, limits = job.load(again=not resume), job.limits
        tasks = [*network.tasks, *(network.alternatives if settings.trials else ())]
    with errors_at("cost_model.transfer"):
        source = open_source(settings) if settings.trials else None
    folder = run_files.make_folder(config.folder)
    notes: list[str] = []
    wrong = ""
    with errors_at("measure.pool"):
        pool = make_pool(config.measure) if settings.trials else None
    with (
        pool or nullcontext(),
        run_files.claim_folder(folder),
        _records(config, resume, say) if settings.trials else nullcontext() as database,
    ):
        tracker.begin(folder, resume)
        if network is not None and network.mixture is not None:
            run_files.write_json(network.mixture.to_json(), folder / run_files.PRECISION)
        results: list[TuneResult] = []
        sizes_result: SizesResult | None = None
        if pool is not None and database is not None and config.sizes is not None:
            sizes_result = tuned_for_sizes(config, settings, pool, database, callbacks, resume)
            results = list(sizes_result.search_results.values())
            tasks = [Task(result.name, result.workload) for result in results]
            notes += database.notes
            say(str(sizes_result))
        elif pool is not None and database is not None:
            if resume:
                database.check_compatible(*dict.fromkeys(settings.of(task).target.name for task in tasks))
            options: dict[str, Any] = {"resume": resume, "source": source, "callbacks": callbacks, "say": say}
            try:
                if limits is None:
                    requests = [TaskRequest(task, settings) for task in tasks]
                    results = tune_tasks(requests, pool, database, **options)
                else:
                    results = tune_kernels(tasks, settings, limits.list_algorithms, pool, database, **options)
            except NoLegalSchedule as error:
                raise ConfigError(f"{error.task}: {error}", "") from None
            notes += database.notes
    interrupted = any(result.interrupted for result in results)
    measured = config.measure.pool in ("local", "ray") and not interrupted  # by this host, or a cluster begun on it
    stopped = False
    if measured and network is None and target.peers:
        try:
            references, note = _references(tasks, settings, say)
        except KeyboardInterrupt:  # what was searched is kept, and written as ever
            stopped, references, note = True, [None] * len(tasks), "no reference timings: they were stopped"
        notes += [note] if note else []
    else:
        references = [None] * len(results)
    document = run_folder.summary(config, results, references)
    if sizes_result is not None:
        document["sizes"] = sizes_result.summary()
    if network is not None and job is not None and not interrupted:
        from autotune.compiler.finalize import finish_network

        network = job.reload(network) if results else network
        built, more, wrong = finish_network(network, results, job, folder, measured, say)
        document["network"] = built
        notes += more
    run_files.write_json(document, folder / "summary.json")
    run_folder.write_processor(results, folder)
    for result in results:
        note = run_folder.write_best(result, folder)
        notes += [note] if note else []
    if not results:
        pass  # nothing was measured that could be drawn
    elif why := missing("curve.png", "matplotlib"):
        notes.append(why)
    else:
        run_folder.draw_curves(results, folder / "curve.png")
        run_folder.draw_rooflines(results, folder)
    note = tracker.finish(folder, document, interrupted or stopped, time.perf_counter() - start)
    notes += [note] if note else []
    return Outcome(results, references, document, folder, notes, time.perf_counter() - start, wrong, stopped)


def _records(config: RunConfig, resume: bool, say: Callable[[str], None]) -> Database:
    """Opens the records file, and sets the files of an earlier run aside unless it is resumed."""
    if not resume and config.records is None and (aside := run_files.set_aside(config.records_path)):
        say(f"records of an earlier run are kept as {aside}; --resume would have gone on with them")
    return Database(config.records_path)


def _references(
    tasks: Sequence[Task], settings: Settings, say: Callable[[str], None]
) -> tuple[Sequence[float | None], str | None]:
    """Times each task on ONNX Runtime, while no other process of ours runs; or says why there are no times.

    Raises:
        KeyboardInterrupt: Ctrl-C, which is noted and looked at: raised anywhere, it may come where it is lost.
    """
    from autotune.graph.reference import ReferenceFailure, onnxruntime_seconds

    workloads = [task.workload for task in tasks]
    try:
        with Interrupt() as interrupt:
            say(f"timing {'the same layers' if len(tasks) > 1 else 'the same layer'} on ONNX Runtime")
            with alone(stop=interrupt.poll):
                seconds = onnxruntime_seconds(workloads, settings.threads, settings.measure.cache, stop=interrupt.poll)
                return seconds, None
    except ReferenceFailure as error:
        return [None] * len(tasks), f"no reference timings: {error}"


__all__ = ["ConfigError", "Outcome", "run"]

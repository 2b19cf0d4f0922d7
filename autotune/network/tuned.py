"""The executable of a model with trials: its tasks tuned, the fastest kernels linked, and the result checked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.config import ConfigError, errors_at
from autotune.network.build import write_network
from autotune.network.check import check_network
from autotune.network.comparison import Check
from autotune.network.job import NetworkJob
from autotune.network.load import Network
from autotune.network.lock import NAME as LOCK
from autotune.network.lock import lock_text, read_lock
from autotune.network.process import RuntimeFailure
from autotune.network.rebuilding import FOLDER, legal
from autotune.network.schedules import Schedules
from autotune.network.selection import Chosen, select
from autotune.run_files import PRECISION, claimed, set_aside, write_json
from autotune.search.base import NoLegalSchedule
from autotune.tuning.preparation import source_of
from autotune.tuning.result import TuneResult, problems_of, records_of
from autotune.tuning.settings import Settings
from autotune.tuning.tune_tasks import TaskRequest, round_size, scheduler_of, tune_tasks
from measure.database import Database
from search_space.files import replace_file

if TYPE_CHECKING:
    from autotune.network.sources import ModelSource


@dataclass(frozen=True)
class Linked:
    """An executable that was written, and what it was made of.

    Attributes:
        best: schedules of the tasks that have one.
        schedules: those, and the choices without trials for the others.
        notes: what the user should know of, a sentence each.
    """

    best: Chosen
    schedules: Schedules
    notes: Sequence[str]


def tune_network(job: NetworkJob, source: ModelSource | None = None) -> None:
    """Tunes the tasks of a model and writes records, a lock file and the executable to the folder of a job.

    Args:
        job: what to make, with trials.
        source: in place of the model that the configuration names.

    Raises:
        ConfigError: a model that cannot be compiled, a task without a legal candidate, or a folder that is in use.
        KeyboardInterrupt: Ctrl-C; the records are there.
        RuntimeError: the network computes something else, or none of its trials works.
        MeasureError: a pool that cannot start.
    """
    network = job.load(again=True, source=source)
    search = job.settings.search
    settings = job.settings.searching(batch=round_size(search.batch, job.settings.trials, len(network.tasks)))
    with errors_at("cost_model.transfer"):
        transferred = source_of(settings)
    requests = [TaskRequest(t, settings, algorithms=job.limits.allowed(t.workload)) for t in network.tasks]
    scheduler = scheduler_of(search)
    set_aside(job.records)
    with claimed(job.folder), Database(job.records) as database:
        if network.mixture is not None:
            write_json(network.mixture.to_json(), job.folder / PRECISION)
        try:
            results = tune_tasks(
                requests,
                database=database,
                resume=False,
                source=transferred,
                schedule=lambda tunings: scheduler,
                budget=settings.trials,
            )
        except NoLegalSchedule as error:
            raise ConfigError(f"{error.task}: {error}", "") from None
        if any(result.interrupted for result in results):
            raise KeyboardInterrupt
        if problems := problems_of(results, replaced=any(result.best is not None for result in results)):
            raise RuntimeError("; ".join(problems))
        linked = link_network(network, results, replace(job, settings=settings), job.folder)
        wrong = "" if settings.target.unavailable() else check_linked(network, linked, settings, job)[1]
    if wrong:
        raise RuntimeError(wrong)


def link_network(
    network: Network,
    results: Sequence[TuneResult],
    job: NetworkJob,
    folder: Path,
    say: Callable[[str], None] = lambda text: None,
) -> Linked:
    """Writes the executable of the fastest kernels, and its lock file, to a folder.

    Args:
        network: what was tuned.
        results: of its tasks; none where nothing was.
        job: with the settings of the run.
        folder: of the run.
        say: shows a sentence to the user.

    Raises:
        ConfigError: a lock file of other tasks.
    """
    config, settings = job.config, job.settings
    say(f"compiling {network.name} from {len(network.tasks)} kernels")
    if config.lock is None:
        best: Chosen = select(network.tasks, records_of(results), job.limits)
    else:
        best = read_lock(Path(config.lock), network.tasks, settings)
    schedules = Schedules(best, settings, job.limits, network.device, job.open_cache())
    with legal(config.lock):
        write_network(network, schedules, folder / FOLDER, settings)
    text = lock_text(network.tasks, schedules.of_tasks(network.tasks), settings)
    replace_file(folder / LOCK, text.encode())
    notes = []
    if schedules.untuned and results:
        first = next((f"; {result.name}: {result.problem}" for result in results if result.problem), "")
        notes.append(f"{len(schedules.untuned)} tasks have no working trial and run by what is chosen without{first}")
    return Linked(best, schedules, notes)


def check_linked(
    network: Network,
    linked: Linked,
    settings: Settings,
    job: NetworkJob,
    say: Callable[[str], None] = lambda text: None,
) -> tuple[Check | None, str, str]:
    """The check, what is wrong with the network, and why it was not checked or who was wrong; "" where nothing is."""
    tolerance = job.config.network.tolerance
    say("checking it")
    try:
        check = check_network(network, linked.schedules, settings, job.config.seed, tolerance, say)
    except RuntimeFailure as error:
        return None, "", f"the network was not checked: {error}"
    if check.max_error <= tolerance:
        return check, "", check.note
    worst = max(check.errors, key=lambda name: check.errors[name])
    wrong = (
        f"{network.name} must agree with {check.reference} within network.tolerance={tolerance:g}, "
        f"but {worst} differs by {check.max_error:.2g}"
    )
    return check, wrong, check.note

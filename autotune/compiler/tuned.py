"""The executable of a model with trials: tunes its tasks, links the fastest kernels, and checks the result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.compiler.build import write_network
from autotune.compiler.checking.check import check_network
from autotune.compiler.checking.comparison import Check
from autotune.compiler.checking.process import RuntimeFailure
from autotune.compiler.compile_from_records import FOLDER, legal
from autotune.compiler.executable.loading import load
from autotune.compiler.job import NetworkJob
from autotune.compiler.lock import NAME as LOCK
from autotune.compiler.lock import lock_text, read_lock
from autotune.compiler.prepare import Network
from autotune.compiler.schedules import Schedules
from autotune.compiler.selection import select
from autotune.config import ConfigError, errors_at
from autotune.run_files import PRECISION, claim_folder, set_aside, write_json
from autotune.tuner.preparation import open_source
from autotune.tuner.record_store import RecordStore
from autotune.tuner.result import TuneResult, collect_records, list_problems
from autotune.tuner.search.base import NoLegalSchedule
from autotune.tuner.settings import Settings
from autotune.tuner.tune_tasks import tune_kernels
from measure.database import Database
from search_space.files import replace_file
from targets.executable import Executable

if TYPE_CHECKING:
    from autotune.compiler.sources import ModelSource


def tune_network(job: NetworkJob, source: ModelSource | None = None) -> None:
    """Tunes the tasks of a model and writes records, a lock file and the executable to the folder of a job.

    Args:
        job: job with a number of trials.
        source: model in place of the one that the configuration names.

    Raises:
        ConfigError: the model cannot be compiled, a task has no legal candidate, or the folder is in use.
        KeyboardInterrupt: the user pressed Ctrl-C; the records are stored.
        RuntimeError: the network's outputs are wrong, or none of its trials works.
        MeasureError: the pool cannot start.
    """
    network = job.load(again=True, source=source)
    settings = job.settings
    with errors_at("cost_model.transfer"):
        transferred = open_source(settings)
    set_aside(job.records)
    with claim_folder(job.folder), Database(job.records) as database:
        if network.mixture is not None:
            write_json(network.mixture.to_json(), job.folder / PRECISION)
        try:
            tasks = [*network.tasks, *network.alternatives]
            results = tune_kernels(
                tasks, settings, job.limits.list_algorithms, database=database, resume=False, source=transferred
            )
        except NoLegalSchedule as error:
            raise ConfigError(f"{error.task}: {error}", "") from None
        if any(result.interrupted for result in results):
            raise KeyboardInterrupt
        if problems := list_problems(results, replaced=any(result.best is not None for result in results)):
            raise RuntimeError("; ".join(problems))
        network = job.reload(network, source)
        schedules, _ = link_network(network, results, job, job.folder)
        wrong = ""
        if not settings.target.unavailable():
            executable = load(job.folder / FOLDER, settings.threads)
            wrong = check_linked(network, schedules, executable, settings, job)[1]
    if wrong:
        raise RuntimeError(wrong)


def link_network(
    network: Network,
    results: Sequence[TuneResult],
    job: NetworkJob,
    folder: Path,
    say: Callable[[str], None] = lambda text: None,
) -> tuple[Schedules, list[str]]:
    """Writes the executable of the fastest kernels, and its lock file, to a folder.

    Args:
        network: network that was tuned.
        results: results of its tasks; empty without tuning.
        job: job with the settings of the run.
        folder: folder of the run.
        say: shows a sentence to the user.

    Returns:
        The schedules of all kernels, and notes for the user, a sentence each.

    Raises:
        ConfigError: the lock file is one of other tasks.
    """
    config, settings = job.config, job.settings
    say(f"compiling {network.name} from {len(network.tasks)} kernels")
    if config.lock is None:
        measured = RecordStore(collect_records(results), job.limits.list_algorithms)
        store = select(network.tasks, measured, settings, job.limits)
    else:
        store = read_lock(Path(config.lock), network.tasks, settings)
    schedules = Schedules(store, settings, job.limits, network.device, job.open_cache())
    with legal(config.lock):
        write_network(network, schedules, folder / FOLDER, settings)
    replace_file(folder / LOCK, lock_text(schedules.of_tasks(network.tasks)).encode())
    notes = []
    if schedules.untuned_keys and results:
        first = next((f"; {result.name}: {result.problem}" for result in results if result.problem), "")
        notes.append(
            f"{len(schedules.untuned_keys)} tasks have no working trial and run by what is chosen without{first}"
        )
    return schedules, notes


def check_linked(
    network: Network,
    schedules: Schedules,
    executable: Executable,
    settings: Settings,
    job: NetworkJob,
    say: Callable[[str], None] = lambda text: None,
) -> tuple[Check | None, str, str]:
    """Checks the executable that was written.

    Args:
        network: network that was compiled.
        schedules: schedules of its kernels.
        executable: executable from the folder of the run.
        settings: target and threads.
        job: job with the tolerance and the seed of the inputs.
        say: shows a sentence to the user.

    Returns:
        The check, the fault of the executable, and why it was not checked or who was wrong; "" if there is no fault or
        note.
    """
    keys, seed = job.config.network, job.config.seed
    tolerance = keys.tolerance
    say("checking it")
    try:
        check = check_network(network, schedules, settings, seed, tolerance, say, executable, keys.check_layers)
    except RuntimeFailure as error:
        return None, "", f"the network was not checked: {error}"
    if check.max_error <= tolerance:
        return check, "", check.note
    name, apart = next((name, each) for name, each in check.all_errors.items() if not each <= tolerance)
    wrong = (
        f"{network.name} must agree with {check.reference} within network.tolerance={tolerance:g}, "
        f"but {name} differs by {apart:.2g}"
    )
    if name in check.errors and check.layers:
        wrong += "; values in between agree, as outputs of an executable of the same kernels"
    return check, wrong, check.note

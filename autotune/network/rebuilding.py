"""The executable of a model without trials: from records, from a lock file, or by what is chosen without trials.

What only records need is imported where there are any, as most that compile so have none and wait for the import; what
reads models is imported when processes that choose schedules have been started.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.config import ConfigError
from autotune.graph.precision import MIXED
from autotune.network.crew import Crew
from autotune.network.job import NetworkJob
from autotune.network.schedules import Schedules, helpers
from autotune.network.whole import FOLDER as FOLDER
from autotune.network.whole import Whole
from autotune.tuning.settings import Settings
from measure.host import allowed_cores
from measure.notices import notice_if_slow
from search_space.schedule.errors import ScheduleError
from targets.executable import Executable

if TYPE_CHECKING:
    from autotune.network.load import Network
    from autotune.network.selection import Chosen, Limits
    from autotune.network.sources import ModelSource

LEAST_BYTES = 1 << 20
"""Of a model that takes long to read; most that are smaller have few kernels."""


@contextmanager
def legal(lock: str | None) -> Iterator[None]:
    """Turns the refusal of a schedule that a lock file has into one of the file."""
    try:
        yield
    except ScheduleError as error:
        if lock is None:
            raise
        raise ConfigError(f"`lock` must have schedules that its tasks can have, but {lock} has not: {error}") from error


def rebuild(
    job: NetworkJob,
    records: Path | None = None,
    output: Path | None = None,
    source: ModelSource | None = None,
) -> tuple[Path, list[str]]:
    """The executable of a model from records alone; what has none, be it everything, runs by what is chosen without.

    Args:
        job: what to make.
        records: file of the records; by default that of the run folder, where it is there.
        output: folder to write; `network` in the run folder by default.
        source: in place of the model that the configuration names.

    Returns:
        The folder of the executable, and what the user should know of.

    Raises:
        ConfigError: a model that cannot be compiled, `records` that are not there or have none of its tasks, or a lock
            file of other tasks.
        MeasureError: records that cannot be read.
    """
    folder = output or job.folder / FOLDER
    if job.config.network.sizes:
        if records is not None:
            raise ConfigError(f"`records` must be left out where `sizes` are open, but got {records}")
        from autotune.network.sized_model import write_sized_model

        write_sized_model(job, source, folder)
        return folder, ["without records, chosen without trials: all"]
    network, schedules = _recorded(job, records, source)
    from autotune.network.build import write_network

    with notice_if_slow(f"compiling {network.name} from {len(network.tasks)} kernels"), legal(job.config.lock):
        write_network(network, schedules, folder, job.settings)
    missing = [task.name for task in network.tasks if task.workload.key in schedules.untuned]
    shown = ", ".join(missing) if len(missing) < len(network.tasks) else "all"
    return folder, [f"without records, chosen without trials: {shown}"] if missing else []


def rebuilt(job: NetworkJob, source: ModelSource | None = None, whole: Whole | None = None) -> Executable:
    """The same, loaded: its weights are in the folder only once it is saved or pickled.

    Args:
        whole: where it is kept for the next time; None: nowhere.
    """
    if job.config.network.sizes:
        return _rebuilt_sized(job, source, whole)
    network, schedules = _recorded(job, None, source, whole)
    from autotune.network.build import in_memory

    folder, kept = job.folder / FOLDER, whole if network.source.is_of_one_file else None
    keep = None if kept is None else partial(kept.keep_weights, folder)
    with notice_if_slow(f"compiling {network.name} from {len(network.tasks)} kernels"), legal(job.config.lock):
        found = in_memory(network, schedules, folder, job.settings, keep)
    if kept is not None:
        kept.keep(found)
    return found


def _rebuilt_sized(job: NetworkJob, source: ModelSource | None, whole: Whole | None) -> Executable:
    """The same of a model of open sizes."""
    from autotune.network.sized_model import load_sized_model

    folder = job.folder / FOLDER
    found, in_one_file = load_sized_model(
        job, source, folder, None if whole is None else partial(whole.keep_weights, folder)
    )
    if whole is not None and in_one_file:
        whole.keep(found)
    return found


def _recorded(
    job: NetworkJob, records: Path | None, source: ModelSource | None, whole: Whole | None = None
) -> tuple[Network, Schedules]:
    """A network, and the schedules that records or a lock file have for it."""
    config, settings, path = job.config, job.settings, records or job.records
    if records is not None and config.lock is not None:
        raise ConfigError(f"`records` must not stand beside `lock`, but got {records} and {config.lock}")
    if records is not None and not path.exists():
        raise ConfigError(f"`records` must be an existing file, but got {path}")
    limits, cache = job.limits, job.open_cache()
    crew = None if whole is None else _ahead(whole, settings, limits)
    try:
        network = job.load(source=source, weights=config.network.precision == MIXED)
    except BaseException:
        if crew is not None:
            crew.close()
        raise
    best: Chosen = {}
    if config.lock is not None:
        from autotune.network.lock import read_lock

        best = read_lock(Path(config.lock), network.tasks, settings)
    elif path.exists():
        from autotune.network.selection import select
        from measure.database import Database
        from measure.recordlog import RecordLog

        with Database(path, readonly=True) as database:
            found = RecordLog(
                r for t in network.tasks for r in database.records(t.workload.key, settings.of(t).target.name)
            )
        best = select(network.tasks, found, limits)
        if not best:
            raise ConfigError(
                f"`records` must hold working trials of {network.name} on {config.target}, but {path} holds none"
            )
    return network, Schedules(best, settings, limits, network.device, cache, crew)


def _ahead(whole: Whole, settings: Settings, limits: Limits) -> Crew | None:
    """Processes that choose schedules, each of which takes a while to be there, for a large model that is a new one."""
    cores = len(allowed_cores())
    if whole.known or whole.nbytes < LEAST_BYTES or cores < 2:
        return None
    return helpers(settings, limits, [settings.target], cores)

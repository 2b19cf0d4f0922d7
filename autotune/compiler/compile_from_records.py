"""The executable of a model without trials: from records, from a lock file, or by choices without trials.

Modules for records are imported only where there are any, as most compilations have none and need not wait for the
import. Modules that read models are imported after processes that choose schedules have started.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.compiler.bundle_cache import FOLDER as FOLDER
from autotune.compiler.bundle_cache import BundleEntry
from autotune.compiler.compile_workers import CompileWorkers
from autotune.compiler.job import NetworkJob
from autotune.compiler.schedules import Schedules, helpers
from autotune.config import ConfigError, errors_at
from autotune.modes import CHOOSING
from autotune.tuner.settings import Settings
from measure.host import allowed_cores
from measure.notices import notice_if_slow
from search_space.schedule.errors import ScheduleError
from targets.executable import Executable

if TYPE_CHECKING:
    from autotune.compiler.open_model import OpenModel
    from autotune.compiler.prepare import Network
    from autotune.compiler.selection import Limits
    from autotune.compiler.sources import ModelSource
    from autotune.graph.ir import Array
    from autotune.schedule_store import ScheduleStore

LEAST_BYTES = 1 << 20
"""Bytes from which on a model takes long to read; most smaller ones have few kernels."""


@contextmanager
def legal(lock: str | None) -> Iterator[None]:
    """Turns the refusal of a schedule from a lock file into an error of the file."""
    try:
        yield
    except ScheduleError as error:
        if lock is None:
            raise
        raise ConfigError(f"`lock` must have schedules that its tasks can have, but {lock} has not: {error}") from error


def compile_model(
    job: NetworkJob,
    records: Path | None = None,
    output: Path | None = None,
    source: ModelSource | None = None,
) -> tuple[Path, list[str]]:
    """Compiles a model from records; kernels without records, even all of them, get schedules without trials.

    Args:
        job: model, settings and folder of the executable.
        records: file of the records; by default that of the run folder, if it exists.
        output: folder to write; `network` in the run folder by default.
        source: model in place of the one that the configuration names.

    Returns:
        The folder of the executable, and notes for the user.

    Raises:
        ConfigError: the model cannot be compiled, `records` are missing or have none of its tasks, or the lock file is
            one of other tasks.
        MeasureError: records that cannot be read.
    """
    folder = output or job.folder / FOLDER
    network, schedules = _prepare(job, records, source)
    from autotune.compiler.build import write_network

    with _compiling(job, network):
        write_network(network, schedules, folder, job.settings)
    missing = [task.name for task in network.tasks if task.workload.key in schedules.untuned_keys]
    if network.tasks and not missing:
        return folder, []
    shown = ", ".join(missing) if len(missing) < len(network.tasks) else "all"
    return folder, [f"without records, chosen without trials: {shown}"]


def compile_model_in_memory(
    job: NetworkJob, source: ModelSource | None = None, entry: BundleEntry | None = None
) -> Executable:
    """Compiles a model whose weights are written to the folder only when it is saved; see `compile_model`.

    Args:
        entry: entry of the executable in the cache, to be filled; None: it is not cached.
    """
    network, schedules = _prepare(job, None, source, entry)
    from autotune.compiler.build import compile_in_memory, compile_network

    folder = job.folder / FOLDER

    def keep(weights: Sequence[Array]) -> None:
        if entry is not None and network.in_one_file:
            entry.keep_weights(folder, weights)

    with _compiling(job, network):
        if network.device is None:
            executable = compile_in_memory(network.graph, schedules, folder, job.settings, network.shapes, keep)
        else:
            executable = compile_network(network, schedules, folder, job.settings)
    if entry is not None and network.in_one_file:
        entry.keep(executable)
    return executable


@contextmanager
def _compiling(job: NetworkJob, network: Network | OpenModel) -> Iterator[None]:
    """Notifies the user of a long compilation, and adds the configuration's key to a refusal."""
    sizes = job.config.network.sizes
    kernels = "for all sizes" if sizes else f"from {len(network.tasks)} kernels"
    refusals = errors_at("network.sizes") if sizes else legal(job.config.lock)
    with notice_if_slow(f"compiling {network.name} {kernels}"), refusals:
        yield


def _prepare(
    job: NetworkJob, records: Path | None, source: ModelSource | None, entry: BundleEntry | None = None
) -> tuple[Network | OpenModel, Schedules]:
    """Loads a network, and makes the schedules of its kernels; kernels of open sizes get schedules without trials."""
    if not job.config.network.sizes:
        return _prepare_from_records(job, records, source, entry)
    if records is not None:
        raise ConfigError(f"`records` must be left out where `sizes` are open, but got {records}")
    from autotune.compiler.open_model import OpenModel

    network = OpenModel(job, source)
    return network, Schedules(None, job.settings, job.limits.for_open_sizes(), None, job.open_cache())


def _prepare_from_records(
    job: NetworkJob, records: Path | None, source: ModelSource | None, entry: BundleEntry | None = None
) -> tuple[Network, Schedules]:
    """Loads a network, and the schedules that records or a lock file have for it."""
    config, settings, path = job.config, job.settings, records or job.records
    if records is not None and config.lock is not None:
        raise ConfigError(f"`records` must not stand beside `lock`, but got {records} and {config.lock}")
    if records is not None and not path.exists():
        raise ConfigError(f"`records` must be an existing file, but got {path}")
    limits, cache = job.limits, job.open_cache()
    crew = None if entry is None else _ahead(entry, settings, limits)
    try:
        network = job.load(source=source, weights=config.network.precision in CHOOSING)
    except BaseException:
        if crew is not None:
            crew.close()
        raise
    store: ScheduleStore | None = None
    if config.lock is not None:
        from autotune.compiler.lock import read_lock

        store = read_lock(Path(config.lock), network.tasks, settings)
    elif path.exists():
        from autotune.compiler.selection import select
        from autotune.tuner.record_store import RecordStore
        from measure.database import Database

        with Database(path, readonly=True) as database:
            measured = RecordStore(
                (r for t in network.tasks for r in database.records(t.workload.key, settings.of(t).target.name)),
                limits.list_algorithms,
            )
        store = selected = select(network.tasks, measured, settings, limits)
        if not len(selected):
            raise ConfigError(
                f"`records` must hold working trials of {network.name} on {config.target}, but {path} holds none"
            )
    return network, Schedules(store, settings, limits, network.device, cache, crew)


def _ahead(entry: BundleEntry, settings: Settings, limits: Limits) -> CompileWorkers | None:
    """Starts processes that choose schedules, which takes a while, before a large uncached model is read."""
    cores = len(allowed_cores())
    if entry.was_compiled or entry.nbytes < LEAST_BYTES or cores < 2:
        return None
    return helpers(settings, limits, [settings.target], cores)

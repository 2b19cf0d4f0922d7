"""The executable of a model without trials: from records, from a lock file, or by the roofline's choice.

What only records need is imported where there are any, as most that compile so have none and wait for the import.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.config import ConfigError, RunConfig
from autotune.graph.precision import MIXED
from autotune.network.build import in_memory, write_network
from autotune.network.load import Network
from autotune.network.lock import read_lock
from autotune.network.schedules import Schedules
from autotune.network.sized import rebuilt_sized
from autotune.run.resolve import settings_of
from autotune.run.workloads import cache_of, limits_of, network_of
from autotune.tuning.settings import Settings
from measure.notices import notice_if_slow
from search_space.schedule.errors import ScheduleError
from targets.executable import Executable

if TYPE_CHECKING:
    from onnx import ModelProto

    from autotune.network.selection import Chosen

FOLDER = "network"
"""Where in a run folder the executable lies."""


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
    config: RunConfig,
    records: Path | None = None,
    output: Path | None = None,
    model: ModelProto | None = None,
) -> tuple[Path, list[str]]:
    """The executable of a model from records alone; what has none, be it everything, runs by the roofline's choice.

    Args:
        config: of the run.
        records: file of the records; by default that of the run folder, where it is there.
        output: folder to write; `network` in the run folder by default.
        model: in place of the one that the configuration names.

    Returns:
        The folder of the executable, and what the user should know of.

    Raises:
        ConfigError: a model that cannot be compiled, `records` that are not there or have none of its tasks, or a lock
            file of other tasks.
        MeasureError: records that cannot be read.
    """
    folder = output or config.folder / FOLDER
    if config.network.sizes:
        if records is not None:
            raise ConfigError(f"`records` must be left out where `sizes` are open, but got {records}")
        rebuilt_sized(config, model, folder, in_memory=False)
        return folder, ["without records, by the roofline's choice: all"]
    network, schedules, settings = _recorded(config, records, model)
    with notice_if_slow(f"compiling {network.name} from {len(network.tasks)} kernels"), legal(config.lock):
        write_network(network, schedules, folder, settings)
    missing = [task.name for task in network.tasks if task.workload.key in schedules.untuned]
    shown = ", ".join(missing) if len(missing) < len(network.tasks) else "all"
    return folder, [f"without records, by the roofline's choice: {shown}"] if missing else []


def rebuilt(config: RunConfig, model: ModelProto | None = None) -> Executable:
    """The same, loaded: its weights are in the folder only once it is saved or pickled."""
    if config.network.sizes:
        found = rebuilt_sized(config, model, config.folder / FOLDER, in_memory=True)
        assert found is not None
        return found
    network, schedules, settings = _recorded(config, None, model)
    with notice_if_slow(f"compiling {network.name} from {len(network.tasks)} kernels"), legal(config.lock):
        return in_memory(network, schedules, config.folder / FOLDER, settings)


def _recorded(config: RunConfig, records: Path | None, model: ModelProto | None) -> tuple[Network, Schedules, Settings]:
    """A network, and the schedules that records or a lock file have for it."""
    settings = settings_of(config)
    path = records or config.records_path
    if records is not None and config.lock is not None:
        raise ConfigError(f"`records` must not stand beside `lock`, but got {records} and {config.lock}")
    if records is not None and not path.exists():
        raise ConfigError(f"`records` must be an existing file, but got {path}")
    network = network_of(config, model=model, weights=config.network.precision == MIXED)
    best: Chosen = {}
    if config.lock is not None:
        best = read_lock(Path(config.lock), network.tasks, settings)
    elif path.exists():
        from autotune.network.selection import select
        from measure.database import Database
        from measure.recordlog import RecordLog

        with Database(path, readonly=True) as database:
            found = RecordLog(
                r for t in network.tasks for r in database.records(t.workload.key, settings.of(t).target.name)
            )
        best = select(network.tasks, found, limits_of(config))
        if not best:
            raise ConfigError(
                f"`records` must hold working trials of {network.name} on {config.target}, but {path} holds none"
            )
    return network, Schedules(best, settings, limits_of(config), network.device, cache_of(config)), settings

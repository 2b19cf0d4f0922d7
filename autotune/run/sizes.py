"""A run of the command line whose workload has one size open."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.config import ConfigError, RunConfig, errors_at
from autotune.run.workloads import make_family
from autotune.tuner.callbacks import Callback
from autotune.tuner.result import AllTrialsFailed
from autotune.tuner.search.base import NoLegalSchedule
from autotune.tuner.settings import Settings
from autotune.tuner.sizes import SizesResult
from autotune.tuner.sizes.tune import Plan, tuned_together
from measure.database import Database
from measure.pool import MeasurePool
from search_space.schedule.errors import ScheduleError


def tuned_for_sizes(
    config: RunConfig,
    settings: Settings,
    pool: MeasurePool,
    database: Database,
    callbacks: Sequence[Callback],
    resume: bool,
) -> SizesResult:
    """Tunes the workload of a configuration for its `sizes` together.

    Raises:
        ConfigError: sizes that do not go together, or for which there is no schedule.
        KeyboardInterrupt: it was ended before there was a schedule for all sizes.
    """
    sizes = config.sizes
    assert sizes is not None
    weights = dict(zip(sizes.at, sizes.weights or [1.0] * len(sizes.at), strict=True))
    family = make_family(config)
    with errors_at("sizes"):
        plan = Plan.of(
            weights,
            sizes.search_at,
            objective=sizes.objective,
            schedules=sizes.schedules,
            finals=sizes.finals,
            carried=sizes.carried,
            size=sizes.argument,
        )
    try:
        return tuned_together(family, plan, settings, pool, database, callbacks, resume)
    except (NoLegalSchedule, AllTrialsFailed, ScheduleError) as error:
        raise ConfigError(str(error), "sizes") from None

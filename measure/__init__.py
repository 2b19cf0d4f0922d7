"""Measuring: isolated, checked and repeated timing of candidates, and the records that outlive a run.

The names are resolved on first use, so that a worker, which needs a few of these modules, starts fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from measure.database import Database as Database
    from measure.errors import ErrorClass as ErrorClass
    from measure.errors import MeasureError as MeasureError
    from measure.errors import PoolError as PoolError
    from measure.errors import RecordError as RecordError
    from measure.fleet.pool import FleetPool as FleetPool
    from measure.local import LocalPool as LocalPool
    from measure.noise import NoisyPool as NoisyPool
    from measure.outcome import Outcome as Outcome
    from measure.pool import MeasurePool as MeasurePool
    from measure.pool import Trial as Trial
    from measure.pool import TrialResult as TrialResult
    from measure.provenance import Provenance as Provenance
    from measure.record import Record as Record
    from measure.replay import ReplayPool as ReplayPool

_HOMES = {
    "Database": "measure.database",
    "ErrorClass": "measure.errors",
    "FleetPool": "measure.fleet.pool",
    "LocalPool": "measure.local",
    "MeasureError": "measure.errors",
    "MeasurePool": "measure.pool",
    "NoisyPool": "measure.noise",
    "Outcome": "measure.outcome",
    "PoolError": "measure.errors",
    "Provenance": "measure.provenance",
    "Record": "measure.record",
    "RecordError": "measure.errors",
    "ReplayPool": "measure.replay",
    "Trial": "measure.pool",
    "TrialResult": "measure.pool",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'measure' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)

"""Database of schedules found before, shipped or the user's, by workload and processor: searches begin with them.

The modules imported here import no search spaces, so that a process with a full cache starts quickly.
"""

from autotune.tuner.database.entry import Entry
from autotune.tuner.database.locations import SHIPPED, compute_digest, open_schedules
from autotune.tuner.database.store import ScheduleDatabase

__all__ = ["SHIPPED", "Entry", "ScheduleDatabase", "compute_digest", "open_schedules"]

"""Database of schedules found before, shipped or the user's, by workload and processor: searches begin with them.

The modules imported here import no search spaces, so that a process with a full cache starts quickly.
"""

from autotune.tuner.database.entry import Entry
from autotune.tuner.database.place import SHIPPED, digest_of, open_schedules
from autotune.tuner.database.store import ScheduleDatabase

__all__ = ["SHIPPED", "Entry", "ScheduleDatabase", "digest_of", "open_schedules"]

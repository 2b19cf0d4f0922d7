"""Schedules that were found before, shipped or one's own, by workload and processor: where searches begin.

What is imported here knows no spaces: who has all choices in a cache waits for none.
"""

from autotune.tuner.database.entry import Entry
from autotune.tuner.database.place import SHIPPED, digest_of, open_schedules
from autotune.tuner.database.store import ScheduleDatabase

__all__ = ["SHIPPED", "Entry", "ScheduleDatabase", "digest_of", "open_schedules"]

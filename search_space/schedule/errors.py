"""The one exception an illegal schedule raises."""

from __future__ import annotations


class ScheduleError(ValueError):
    """A step whose precondition does not hold; search catches this and nothing else."""

"""Compilation of many trials at once, one process per core."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence

from measure.closing import Closing
from measure.errors import PoolError
from measure.host import allowed_cores
from measure.pool import Trial
from measure.settings import LocalSettings
from measure.supervisor import Answer, Supervisor


class ParallelBuild(Closing):
    """A builder that compiles trials on all cores; only the owner of the host's lock may use it.

    Args:
        settings: executor, builders, limits of time and memory.
    """

    def __init__(self, settings: LocalSettings) -> None:
        count = settings.builders or len(allowed_cores())
        self._workers = [Supervisor("build", settings, os.getpid()) for _ in range(count)]
        self._loop = asyncio.new_event_loop()

    def build(self, trials: Sequence[Trial]) -> list[Answer]:
        """Compiles trials; returns the module or the failure of each, in order.

        Raises:
            PoolError: a process cannot start.
        """
        return self._loop.run_until_complete(self._build(trials))

    def close(self) -> None:
        """Ends the processes; may be called twice."""
        for worker in self._workers:
            worker.retire()
        if not self._loop.is_closed():
            self._loop.close()

    async def _build(self, trials: Sequence[Trial]) -> list[Answer]:
        left = iter(range(len(trials)))
        answers: dict[int, Answer] = {}

        async def work(worker: Supervisor) -> None:
            for index in left:
                answers[index] = await worker.build(trials[index])

        try:
            async with asyncio.TaskGroup() as group:
                for worker in self._workers:
                    group.create_task(work(worker))
        except* PoolError as errors:  # several have the same reason: one is enough
            raise errors.exceptions[0] from None
        return [answers[index] for index in range(len(trials))]

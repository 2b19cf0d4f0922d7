"""Timing what is known once more, task by task, in an order drawn at random.

A collection takes long enough for its machine to change its speed meanwhile: clock rates, and others who share the
machine. The rounds of a task are spread over all that time, so its programs are compared across these changes. A pass
times all programs of a task within a short while, with the same repeats for the slow ones as for the fast ones, and the
next pass does so some time later: whoever was slow by bad luck has another chance.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from autotune.tuning import TaskTuning
from measure.pool import Trial, TrialResult
from measure.record import Record

AGAIN = "again"
"""How the provenance of a record begins that times a known program again."""


def is_again(record: Record) -> bool:
    """Whether a record is of a pass."""
    return record.provenance.startswith(f"{AGAIN} ")


class Pass(TaskTuning):
    """One pass over the programs of a task that were measured right: a single round, as long as the task has programs.

    Args:
        of: the search whose task it is; settings, space and guide are shared, and the guide learns nothing.
        number: of the pass, from 1.
        records: of the task, those of passes included.
    """

    def __init__(self, of: TaskTuning, number: int, records: Sequence[Record]) -> None:
        self._tag = f"{AGAIN} pass={number}"
        programs = {r.trace_key: r for r in reversed(records) if r.ok and not is_again(r)}  # the first of each stays
        done = [record for record in records if record.provenance == self._tag]
        settings = replace(of.settings, trials=max(1, len(programs)))
        super().__init__(of.task, of.space, settings, of.strategy, of.guide, of.host)
        for record in done:
            self._keep(record)
        self._resumed = len(done)
        missing = sorted(programs.keys() - {record.trace_key for record in done})
        order = settings.generator(of.task.workload.key, self._tag).permutation(len(missing))
        self._again = {missing[place]: programs[missing[place]] for place in order.tolist()}

    @property
    def done(self) -> bool:
        """Whether every program was timed."""
        return not self._again

    @property
    def total(self) -> int:
        """Programs of the pass."""
        return len(self.records) + len(self._again)

    def propose(self, limit: int | None = None) -> list[Trial]:
        """The programs that are left; see `TaskTuning.propose`."""
        return [record.to_trial() for record in list(self._again.values())[:limit]]

    def record(self, result: TrialResult) -> Record:
        """See `TaskTuning.record`."""
        known = self._again[result.trial.trace_key]
        now = time.time()
        return Record.of(result, time=now, sketch=known.sketch, order=known.order, provenance=self._tag, host=self.host)

    def settle(self, records: Sequence[Record], measure_seconds: float) -> None:
        """Takes in what was timed; see `TaskTuning.settle`."""
        self.phases["measure"] += measure_seconds
        for record in sorted(records, key=lambda record: record.order):
            self._keep(record)
            del self._again[record.trace_key]
        self.history.append(self.best_seconds)

"""Memory that a run uses for each trial: next to nothing, whatever the size of its record."""

from __future__ import annotations

import gc
import tracemalloc
from dataclasses import dataclass

from autotune.tuner.callbacks import Callback
from autotune.tuner.loop import run_rounds
from measure.database import Database
from tests.autotune import fakes


@dataclass(frozen=True)
class LongTrace(fakes.FakeTrace):
    """A trace with as many steps as a real one."""

    def to_json(self):
        padding = [{"step": "annotate", "axis": f"i{place}", "kind": "unroll"} for place in range(40)]
        return [*super().to_json(), *padding]


@dataclass(frozen=True, eq=False)
class LongSketch(fakes.FakeSketch):
    def trace(self, choice):
        return LongTrace(super().trace(choice).steps)


class Forgetful(fakes.FakePool):
    """A pool that forgets each trial once it is measured."""

    def results(self, timeout=None):
        found = super().results(timeout)
        self.trials.clear()
        return found

    def answer(self, trial):
        return 1e-3 + 1e-9 * int(trial.trace_key[:6], 16)


class Weigh(Callback):
    """A callback that notes the bytes in use after some rounds."""

    def __init__(self, *trials: int) -> None:
        self.trials, self.bytes = trials, {}

    def on_round(self, progress):
        if progress.trials in self.trials:
            gc.collect()
            self.bytes[progress.trials] = tracemalloc.get_traced_memory()[0]


def test_a_trial_leaves_little_behind(tmp_path):
    lengths = (40, 30, 20, 10, 6)
    of = fakes.FakeSpace((LongSketch("good", lengths, (31, 7, 12, 4, 2)),))
    weigh = Weigh(128, 512)
    task = fakes.tuning(of, trials=512, batch=64, strategy="random")
    with Database(tmp_path / "records.jsonl") as database:
        tracemalloc.start()
        try:
            (result,) = run_rounds([task], Forgetful(of), database, [weigh])
        finally:
            tracemalloc.stop()
    record = result.records[300]
    assert len(record.to_line()) > 2000
    grown = (weigh.bytes[512] - weigh.bytes[128]) / 384
    assert grown < 700, f"{grown:.0f} bytes a record"
    assert result.best.seconds == min(one.seconds for one in result.records)

"""Tuning and peers made up, for tests of comparisons that tune by themselves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import pytest

from benchmarks.interleave import measure_turns
from benchmarks.tuning import TuningOutcome
from search_space.workloads import Workload


@dataclass
class Fakes:
    """A comparison's substitutes for its tuner and its peers, with a log of their calls.

    Attributes:
        latency: seconds of what tuning finds, by workload and seed.
        tunings: (workload key, trials, seed, threads) of every tuning.
        preparations: (workload key, threads) of every peer.
    """

    latency: Callable[[Workload, int], float]
    tunings: list[tuple[str, int, int, int]] = field(default_factory=list)
    preparations: list[tuple[str, int]] = field(default_factory=list)
    close_count: int = 0

    def tune(self, workload: Workload, trials: int, seed: int, threads: int) -> TuningOutcome:
        self.tunings.append((workload.key, trials, seed, threads))
        return TuningOutcome({"latency": self.latency(workload, seed)}, None, {"seed": seed, "trials": trials})

    def install(self, module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        """Puts the fakes into a module of `benchmarks`."""
        fakes = self

        class Process:
            def __init__(self, program: str) -> None:
                assert program == "benchmarks.peers.ours"

            def prepare(self, workload: Workload, threads: int, **options: Any) -> None:
                fakes.preparations.append((workload.key, threads))
                self.latency = options["latency"]

            def warm(self, seconds: float) -> None:
                pass

            def time(self, samples: int) -> list[float]:
                return [self.latency] * samples

            def __enter__(self) -> Process:
                return self

            def __exit__(
                self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
            ) -> None:
                fakes.close_count += 1

        monkeypatch.setattr(module, "tune_workload", self.tune)
        monkeypatch.setattr(module, "PeerProcess", Process)
        monkeypatch.setattr(module, "measure_turns", lambda peers, repeat, **_: measure_turns(peers, repeat, pause=0.0))

"""Policies of the bench: who is timed when, what counts, and how one that fails is told from the others."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from measure.bench import Bench, Interleaved, Sequential, Timeable
from measure.errors import ErrorClass, TrialFailure
from measure.timing import Timing, TimingPolicy


class ScriptedKernel(Timeable):
    """Takes `seconds` each time, the last for ever, and logs what it does."""

    def __init__(self, name: str, log: list[str], seconds: Sequence[float] = (1.0,), fails: str = "") -> None:
        self.name, self.log, self.seconds, self.fails = name, log, list(seconds), fails

    def prepare(self) -> float:
        self._do("prepare")
        return self.seconds[0]

    def time(self, iterations: int) -> list[float]:
        self.log.append(f"{self.name}{iterations}")
        return [self.seconds.pop(0) if len(self.seconds) > 1 else self.seconds[0] for _ in range(iterations)]

    def check(self, last: bool) -> None:
        self._do("check" if last else "glance")

    def _do(self, what: str) -> None:
        self.log.append(f"{self.name} {what}")
        if self.fails == what:
            raise TrialFailure(ErrorClass.wrong_output, f"{self.name} fails")


POLICY = TimingPolicy(budget_seconds=0.0, min_samples=3, max_samples=3)


def test_one_after_the_other_is_timed_to_its_end() -> None:
    log: list[str] = []
    first, second = Bench(Sequential(POLICY)).time(
        [ScriptedKernel("a", log, (4.0, 2.0, 3.0)), ScriptedKernel("b", log)]
    )
    assert log == ["a prepare", "a1", "a2", "a check", "b prepare", "b1", "b2", "b check"]
    assert isinstance(first, Timing) and first.latencies == (4.0, 2.0, 3.0) and first.seconds == 3.0
    assert first.steady == 2.0 and first.spread == pytest.approx(1 / 3)
    assert isinstance(second, Timing) and second.spread == 0.0


def test_a_clear_loser_is_cut_short_and_looked_at_less() -> None:
    log: list[str] = []
    (timing,) = Bench(Sequential(POLICY, best_seconds=0.1)).time([ScriptedKernel("a", log)])
    assert isinstance(timing, Timing) and timing.cut and log == ["a prepare", "a1", "a glance"]


def test_what_says_the_same_each_time_is_executed_once() -> None:
    log: list[str] = []
    simulated = ScriptedKernel("a", log)
    simulated.deterministic = True
    (timing,) = Bench(Sequential(POLICY, best_seconds=0.1)).time([simulated])
    assert isinstance(timing, Timing) and not timing.cut and log == ["a prepare", "a1", "a check"]


def test_turns_go_round_and_their_first_half_does_not_count() -> None:
    log: list[str] = []
    subjects = [
        ScriptedKernel("a", log, [0.5] * 4 + [9.0, 9.0, 1.0, 1.0, 9.0, 9.0, 2.0]),
        ScriptedKernel("b", log, (0.25,)),
    ]
    first, second = Bench(Interleaved(2, 1.0, warm=True)).time(subjects)
    assert log == [
        *("a prepare", "b prepare", "a1", "a3", "b1", "b3"),
        *("a4", "b8", "a4", "b8"),
        *("a check", "b check"),
    ]
    assert isinstance(first, Timing) and first.latencies == (1.0, 2.0) and first.seconds == 1.5
    assert isinstance(second, Timing) and second.latencies == (0.25, 0.25)


def test_what_takes_longer_than_a_turn_is_executed_so_often_at_least() -> None:
    for least in (1, 3):
        log: list[str] = []
        Bench(Interleaved(1, 0.5, least)).time([ScriptedKernel("a", log)])
        assert log == ["a prepare", "a1", f"a{least}", "a check"]


def test_orders_differ_from_round_to_round_and_not_from_run_to_run() -> None:
    def order() -> list[str]:
        log: list[str] = []
        Bench(Interleaved(6, 1.0, seed=3)).time([ScriptedKernel(name, log) for name in "abcd"])
        return [entry[0] for entry in log if " " not in entry][4:]

    rounds = np.array(order()).reshape(6, 4)
    assert order() == rounds.ravel().tolist()
    assert {tuple(sorted(each)) for each in rounds} == {tuple("abcd")} and len({tuple(each) for each in rounds}) > 2


@pytest.mark.parametrize("policy", [Sequential(POLICY), Interleaved(2, 1.0)])
@pytest.mark.parametrize("fails", ["prepare", "check"])
def test_one_that_fails_is_alone_with_its_failure(policy: Sequential | Interleaved, fails: str) -> None:
    log: list[str] = []
    found = Bench(policy).time(
        [ScriptedKernel("a", log), ScriptedKernel("b", log, fails=fails), ScriptedKernel("c", log)]
    )
    assert [isinstance(each, Timing) for each in found] == [True, False, True]
    assert isinstance(found[1], TrialFailure) and found[1].message == "b fails"
    assert ("b1" in log) == (fails == "check")


@pytest.mark.parametrize("policy", [Sequential(POLICY), Interleaved(100, 1.0)])
def test_a_tick_that_raises_ends_the_timing(policy: Sequential | Interleaved) -> None:
    ticks: list[int] = []

    def tick() -> None:
        ticks.append(len(ticks))
        if len(ticks) == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Bench(policy, tick).time([ScriptedKernel(name, []) for name in "abcdefgh"])
    assert len(ticks) == 5

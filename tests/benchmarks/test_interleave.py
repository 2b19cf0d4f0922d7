"""Turns, medians and means of comparisons."""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import dataclass, field

import pytest

from benchmarks import interleave
from benchmarks.interleave import geometric_mean, measure_turns
from benchmarks.rows import ROWS, select
from measure.steadiness import steady_seconds


@dataclass
class ScriptedPeer:
    """Answers from a list, the last for ever, and logs its turns."""

    name: str
    answers: list[float]
    log: list[str]
    sample_counts: list[int] = field(default_factory=list)

    def warm(self, seconds: float) -> None:
        self.log.append(f"{self.name} warms up for {seconds:g} s")

    def time(self, samples: int) -> list[float]:
        self.log.append(self.name)
        self.sample_counts.append(samples)
        return [self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]] * samples


def test_peers_alternate_and_an_outlying_turn_does_not_count() -> None:
    log: list[str] = []
    slow, fast = ScriptedPeer("a", [1.0, 9.0, 1.0], log), ScriptedPeer("b", [2.0], log)
    found = measure_turns({"a": slow, "b": fast}, repeat=20, pause=0.0, warm_seconds=0.2)
    assert found == {"a": [9.0] + [1.0] * 19, "b": [2.0] * 20}
    assert steady_seconds(found["a"]) == 1.0
    assert log == ["a", "b"] + ["a warms up for 0.2 s", "a", "b warms up for 0.2 s", "b"] * 20


@pytest.mark.parametrize(("seconds", "samples"), [(1.0, 5), (1e-3, 30), (1e-7, 200)])
def test_samples_fill_a_turn_within_limits(seconds: float, samples: int) -> None:
    peer = ScriptedPeer("a", [seconds], [])
    measure_turns({"a": peer}, turn_seconds=0.03, pause=0.0)
    assert set(peer.sample_counts[1:]) == {samples}


def test_fewer_than_ten_rounds_are_refused() -> None:
    with pytest.raises(ValueError, match="`repeat` must be at least 20, but got repeat=3"):
        measure_turns({}, repeat=3)


def test_geometric_mean() -> None:
    assert geometric_mean([0.5, 2.0]) == pytest.approx(1.0)
    assert geometric_mean([1.0, 10.0, 100.0]) == pytest.approx(10.0)
    assert math.isnan(geometric_mean([]))


def test_rows_have_distinct_names_and_four_classes() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS) == 35
    counts = {kind: sum(row.kind == kind for row in ROWS) for kind in {row.kind for row in ROWS}}
    assert counts == {"convolution": 15, "depthwise": 4, "matmul": 7, "row-wise": 4, "transposed convolution": 5}
    flops = {row.name: row.make().flops for row in ROWS}
    assert flops["conv3x3_56_64_64"] == 2 * 56 * 56 * 64 * 64 * 9
    assert flops["conv7x7_224_3_64"] == 2 * 112 * 112 * 64 * 3 * 49
    assert flops["depthwise3x3_112_96"] == 2 * 56 * 56 * 96 * 9
    assert flops["transposed4x4_32_256_128"] == 2 * 32 * 32 * 256 * 128 * 16
    assert flops["matmul_1000_777_513"] == 2 * 1000 * 777 * 513
    assert flops["conv3x3_14_512_512_g32"] == 2 * 14 * 14 * 512 * 16 * 9
    assert flops["depthwise7x7_28_192"] == 2 * 28 * 28 * 192 * 49


def test_selection_keeps_order_and_names_what_there_is() -> None:
    assert [row.name for row in select("matmul_512_512_512,conv3x3_7_512_512")] == [
        "matmul_512_512_512",
        "conv3x3_7_512_512",
    ]
    with pytest.raises(ValueError, match="must be of conv3x3_56_64_64, .*got rows='conv9'"):
        select("conv9")


def test_slow_turns_count_for_nobody() -> None:
    peer = ScriptedPeer("a", [1.0, *(1.4 if turn % 2 else 1.0 for turn in range(5 * 20)), 1.0], [])
    assert steady_seconds(measure_turns({"a": peer}, pause=0.0)["a"]) == 1.0


# Four processes, so that together they are seen at work however busy the machine is with other tests.
SPINNING = """
import os, select, sys
os.fork(), os.fork()
print(flush=True)
while not select.select([sys.stdin], [], [], 0)[0]:
    pass
"""


def test_a_turn_waits_for_threads_that_still_spin(monkeypatch: pytest.MonkeyPatch) -> None:
    """The turn would share a core with them otherwise: TVM's spin for longer than the usual pause."""
    looks, read = [], interleave._seconds_used
    with subprocess.Popen([sys.executable, "-c", SPINNING], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as spinning:
        assert spinning.stdin is not None and spinning.stdout is not None

        def look() -> float:
            looks.append(read())
            if len(looks) == 12:
                spinning.stdin.close()
            return looks[-1]

        monkeypatch.setattr(interleave, "_seconds_used", look)
        monkeypatch.setattr(interleave, "_LONGEST", 600.0)
        spinning.stdout.readline()
        interleave._rest(0.06)  # two looks for each decision; it goes on until nobody spins
    assert len(looks) >= 12


def test_nobody_is_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interleave, "_LONGEST", 0.1)
    used = iter(range(1000))
    monkeypatch.setattr(interleave, "_seconds_used", lambda: next(used))
    interleave._rest(0.06)
    assert 2 < next(used) < 100

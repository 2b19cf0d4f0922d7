"""The line-JSON protocol between a comparison and its peers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks.interleave import measure_turns
from benchmarks.peers.base import PeerError, PeerProcess
from search_space import workloads

PROGRAM = "tests.benchmarks.fake_peer"
WORKLOAD = workloads.matmul(4, 5, 6)


@pytest.fixture
def peer(monkeypatch: pytest.MonkeyPatch) -> Iterator[PeerProcess]:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    with PeerProcess(PROGRAM) as process:
        yield process


def test_prepare_hands_over_workload_threads_and_arrays(peer: PeerProcess) -> None:
    said = peer.prepare(WORKLOAD, 2)
    assert said == {"key": WORKLOAD.key, "shapes": [[4, 6], [6, 5]], "threads": 2, "leaked": []}


def test_time_gives_as_many_samples_as_asked_for(peer: PeerProcess) -> None:
    peer.prepare(WORKLOAD, 1, seconds=0.25)
    assert peer.time(3) == [0.25] * 3


def test_refusal_leaves_the_peer_usable(peer: PeerProcess) -> None:
    with pytest.raises(PeerError, match="`workload` must be another"):
        peer.prepare(WORKLOAD, 1, fail="refuse")
    assert peer.prepare(WORKLOAD, 1)["threads"] == 1


def test_bug_in_a_peer_comes_with_its_traceback(peer: PeerProcess) -> None:
    with pytest.raises(PeerError, match=r"(?s)fake_peer: Traceback.*ZeroDivisionError: a bug"):
        peer.prepare(WORKLOAD, 1, fail="raise")


def test_dead_peer_is_noticed_every_time(peer: PeerProcess) -> None:
    for _ in range(2):
        with pytest.raises(PeerError, match="fake_peer ended with code 3"):
            peer.prepare(WORKLOAD, 1, fail="die")


def test_close_ends_the_process() -> None:
    process = PeerProcess(PROGRAM)
    process.prepare(WORKLOAD, 1)
    process.close()
    assert process._process.returncode == 0


def test_peers_in_processes_take_turns() -> None:
    with PeerProcess(PROGRAM) as first, PeerProcess(PROGRAM) as second:
        first.prepare(WORKLOAD, 1, seconds=1e-3)
        second.prepare(WORKLOAD, 1, seconds=2e-3)
        found = measure_turns({"first": first, "second": second}, turn_seconds=0.0, pause=0.0, warm_seconds=0.0)
    assert found == {"first": [1e-3] * 20, "second": [2e-3] * 20}

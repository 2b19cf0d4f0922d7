"""Waits say what they wait for, once they have lasted."""

from __future__ import annotations

import threading

import pytest

from measure import notices
from measure.hostlock import HostLock, alone
from measure.notices import WaitNotice, notice_if_slow


def test_a_wait_is_told_once_and_only_if_it_lasts(monkeypatch):
    now, said = [0.0], []
    monkeypatch.setattr(notices.time, "monotonic", lambda: now[0])
    wait = WaitNotice(said.append)
    for second in (0.0, 1.0, 1.9):
        now[0] = second
        wait.still("a device")
    assert said == []
    for second in (2.0, 9.0):
        now[0] = second
        wait.still("a device")
    assert said == ["waiting for a device"]
    wait.over()
    wait.still("another")
    now[0] = 10.9
    wait.still("another")
    assert len(said) == 1
    now[0] = 11.0
    wait.still("another")
    assert said[1:] == ["waiting for another"]


def test_a_block_is_told_only_if_it_lasts(monkeypatch):
    said, told = [], threading.Event()
    with notice_if_slow("reading", said.append):
        pass
    monkeypatch.setattr(notices, "NOTICE_SECONDS", 0.01)
    with notice_if_slow("reading", lambda what: (said.append(what), told.set())):
        assert told.wait(10.0)
    assert said == ["reading"]


def other_may_build():
    mine = HostLock()
    try:
        return mine.acquire("build", 0.0)
    finally:
        mine.close()


def test_another_program_that_times_is_waited_for_with_a_word(monkeypatch, caplog):
    monkeypatch.setattr(notices, "NOTICE_SECONDS", 0.05)
    other = HostLock()
    assert other.acquire("time", 5.0)
    with alone(timeout=0.2):
        pass
    other.close()
    first, second = (record.getMessage() for record in caplog.records)
    assert first == "waiting for other programs that build or time kernels on this host"
    assert second == "other programs build or time on this host for 0.2 s already: timings are disturbed"
    with alone(timeout=5.0):
        assert not other_may_build()
    assert len(caplog.records) == 2


def test_a_wait_for_the_machine_ends_when_it_is_asked_to():
    other = HostLock()
    assert other.acquire("time", 5.0)
    try:
        with pytest.raises(KeyboardInterrupt), alone(stop=lambda: True):
            raise AssertionError("the machine is another's")
    finally:
        other.close()
    with alone(stop=lambda: True):
        pass

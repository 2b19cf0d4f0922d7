"""Benchmarks are tested as though nothing was changed since a commit: what is measured makes tables then."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from benchmarks import collected


@pytest.fixture(autouse=True)
def state(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Returns the state that `describe_state` finds, which a test may change."""
    now: dict[str, Any] = {"commit": "0123456789ab", "cpu": "a processor", "cores": 2, "versions": {"numpy": "2.0"}}

    def describe_state(settings: Mapping[str, Any]) -> dict[str, Any]:
        return {**now, "settings": dict(settings)}

    monkeypatch.setattr(collected, "describe_state", describe_state)
    monkeypatch.setattr(collected, "read_commit", lambda measured_paths: now["commit"])
    return now


@pytest.fixture(autouse=True)
def cores() -> Iterator[None]:
    """Gives the cores back that a benchmark has put this process on, for the tests that come after it."""
    before = os.sched_getaffinity(0)
    yield
    os.sched_setaffinity(0, before)

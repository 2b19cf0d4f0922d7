"""Benchmarks are tested as though nothing was changed since a commit: what is measured makes tables then."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from benchmarks import collected


@pytest.fixture(autouse=True)
def state(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What `state_of` finds; a test may change it."""
    now: dict[str, Any] = {"commit": "0123456789ab", "cpu": "a processor", "cores": 2, "versions": {"numpy": "2.0"}}

    def state_of(settings: Mapping[str, Any]) -> dict[str, Any]:
        return {**now, "settings": dict(settings)}

    monkeypatch.setattr(collected, "state_of", state_of)
    return now

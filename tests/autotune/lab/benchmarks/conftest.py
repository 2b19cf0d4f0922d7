"""Benchmarks of the laboratory are tested as all others are."""

from __future__ import annotations

from tests.benchmarks.conftest import cores, state

__all__ = ["cores", "state"]

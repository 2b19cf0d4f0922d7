"""A pytest plugin for continuous integration: a skip whose reason is not expected there is a failure.

`PYTEST_PLUGINS=tests.ci_skips make test` turns it on.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import TypeVar

import pytest

Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)
EXPECTED = re.compile(r"\bno (gpu|warpgroups)\b|avx|vnni|bf16|bfloat16|aarch64|x86|\bcores\b", re.IGNORECASE)
"""Reasons that no installation can cure: what the processor has not, and that there is no GPU.

The extras `all` and `test` have every package that a test needs, and `.ci/run` every program.
"""


def refused(report: pytest.TestReport | pytest.CollectReport) -> str | None:
    """Why a skipped report must count as a failure; None if it need not."""
    if not report.skipped or getattr(report, "wasxfail", None) is not None:
        return None
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    if EXPECTED.search(reason):
        return None
    return f"a skip must have an expected reason where continuous integration is on, but got {reason!r}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turns unexpected skips of tests into failures."""
    return _judged((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Turns unexpected skips of whole modules into errors."""
    return _judged((yield))


def _judged(report: Report) -> Report:
    message = refused(report)
    if message is not None:
        report.outcome, report.longrepr = "failed", message
    return report

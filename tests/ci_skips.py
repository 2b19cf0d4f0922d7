"""A pytest plugin for continuous integration: a skip whose reason is not expected there is a failure.

`PYTEST_PLUGINS=tests.ci_skips make test` turns it on.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Generator
from typing import TypeVar

import pytest

Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)
EXPECTED = re.compile(r"\bno (gpu|warpgroups)\b|avx|vnni|bf16|bfloat16|aarch64|x86|\bcores\b", re.IGNORECASE)
"""Reasons that no installation can cure: what the processor has not, and that there is no GPU.

The extras `all` and `test` have every package that a test needs, and `.ci/run` every program.
"""


def skip_reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Returns the reason that a skipped report states."""
    return report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)


def explain_refusal(report: pytest.TestReport | pytest.CollectReport) -> str | None:
    """Returns why a skipped report must count as a failure; None if it need not."""
    if not report.skipped or getattr(report, "wasxfail", None) is not None:
        return None
    reason = skip_reason(report)
    if EXPECTED.search(reason):
        return None
    return f"a skip must have an expected reason where continuous integration is on, but got {reason!r}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turns unexpected skips of tests into failures."""
    return _judge((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Turns unexpected skips of whole modules into errors."""
    return _judge((yield))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Lists what this machine could not test, by reason, so that a skip never passes in silence."""
    reasons = Counter(
        skip_reason(report).removeprefix("Skipped: ")
        for report in terminalreporter.stats.get("skipped", [])
        if getattr(report, "wasxfail", None) is None
    )
    if reasons:
        terminalreporter.section("not tested on this machine")
    for reason, count in sorted(reasons.items()):
        terminalreporter.line(f"{count} {'test' if count == 1 else 'tests'}: {reason}")


def _judge(report: Report) -> Report:
    message = explain_refusal(report)
    if message is not None:
        report.outcome, report.longrepr = "failed", message
    return report

"""A plugin of pytest for a GPU: a process whose device is lost ends, and another takes the remaining tests.

A hang is ended by pytest-timeout's thread, which ends the process, too: what waits in the driver hears no signal.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import Any

import pytest

LOST_DEVICE = 70
"""Exit code of a process whose device is lost."""
_STATE = {"lost": False}


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[Any]) -> Generator[None, None, None]:
    """Notes an exception after which this process can do nothing on the device."""
    error = call.excinfo.value if call.excinfo else None
    while error is not None:
        if getattr(error, "fatal", False):
            _STATE["lost"] = True
        error = error.__cause__ or error.__context__
    yield


def pytest_runtest_logfinish(nodeid: str) -> None:
    """Ends one of several processes; the report of its test has been sent."""
    if _STATE["lost"] and "PYTEST_XDIST_WORKER" in os.environ:
        os._exit(LOST_DEVICE)

"""The program of a child process that answers nothing."""

from __future__ import annotations

import time


def main() -> None:
    """Sleeps."""
    time.sleep(600)

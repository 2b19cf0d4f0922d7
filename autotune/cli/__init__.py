"""The command line: `autotune`, and its commands by family."""

from __future__ import annotations

from autotune.cli.app import main

__all__ = ["main"]

"""`autotune report`: one or more runs as a page of HTML that needs nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from autotune.report.html.data import load
from autotune.report.html.page import page


def write_report(paths: Sequence[Path], output: Path | None = None) -> Path:
    """Writes the report of runs.

    Args:
        paths: run folders and records files; the first is what others are compared with.
        output: the file; None: `report.html` in the first run's folder.

    Returns:
        Path of the page.

    Raises:
        ConfigError: a path that is no run, or an output that cannot be written.
        RecordError: records that cannot be read.
    """
    from autotune.config import ConfigError
    from autotune.run_files import write_text

    runs = [run for path in paths for run in load(path)]
    if output is None:
        output = (paths[0] if paths[0].is_dir() else paths[0].parent) / "report.html"
    if output.is_dir() or not output.absolute().parent.is_dir():
        raise ConfigError(f"`--output` must be a file in an existing folder, but got {output}")
    write_text(page(runs), output)
    return output


__all__ = ["write_report"]

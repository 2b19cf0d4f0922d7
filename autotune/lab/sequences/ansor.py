"""Records of TVM's auto_scheduler (Ansor), as TenSet keeps them: a line of JSON for each measured program.

`{"i": [[workload key, target, ...], [[], [step, ...]]], "r": [[seconds, ...], error, all seconds, time], "v": "v0.6"}`;
a step is a list that begins with its code, such as `["SP", stage, axis, extent, [factors], inner to outer]`. No other
part of a record is needed, and nothing in one is run.
"""

from __future__ import annotations

import gzip
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from costmodel.dataset.errors import DatasetError
from search_space import strict_json

CODES = ("AN", "FU", "PR", "RE", "SP", "FSP", "FFSP", "SA", "CA", "CI", "CR", "CHR", "CHW", "RF")
"""Codes of the steps.

They are annotation, fuse, pragma, reorder, split, follow split, follow fused split, storage align, compute at, compute
inline, compute root, cache read, cache write, rfactor.
"""
_NO_ERROR = 0


@dataclass(frozen=True)
class LogEntry:
    """A measured program.

    Attributes:
        workload: the workload's key.
        target: target of the measurement.
        steps: steps of its schedule, each a code and its arguments.
        seconds: mean of the measured seconds; NaN for a failure.
    """

    workload: str
    target: str
    steps: tuple[tuple[Any, ...], ...]
    seconds: float


def read_log(path: Path) -> Iterator[LogEntry]:
    """Reads the programs of a records file, plain or `.gz`, one after the other; skips comments.

    Raises:
        DatasetError: an unreadable file, or a line that is not a record; says which.
    """
    try:
        with gzip.open(path, "rt") if path.suffix == ".gz" else path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip() and line[0] not in "# ":
                    yield _parse_entry(line, path, number)
    except (OSError, UnicodeDecodeError, EOFError) as error:
        raise DatasetError(f"{path}: records must be a readable file, but: {error}") from None


def _parse_entry(line: str, path: Path, number: int) -> LogEntry:
    try:
        record = strict_json.loads(line, finite=False)
        (task, (_, steps)), (costs, error, *_) = record["i"], record["r"]
        workload, target, *_ = task
        if not isinstance(workload, str) or not isinstance(target, str):
            raise ValueError("a task must begin with its key and its target")
        for step in steps:
            if not isinstance(step, list) or not step or step[0] not in CODES:
                raise ValueError(f"a step must begin with one of {', '.join(CODES)}, but got {step!r:.60}")
        seconds = math.fsum(costs) / len(costs) if error == _NO_ERROR and costs else math.nan
        if not seconds > 0 and error == _NO_ERROR:
            raise ValueError(f"seconds must be positive, but got {seconds}")
    except (ValueError, TypeError, KeyError, IndexError) as wrong:
        raise DatasetError(f"{path}: line {number} must be a record of auto_scheduler, but {wrong}") from None
    return LogEntry(workload, target, tuple(map(tuple, steps)), seconds)

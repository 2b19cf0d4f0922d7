"""Times of an executable's steps: an array, a table, and a trace for Chrome's viewer or Perfetto."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import NDArray

from search_space.files import replace_file
from targets.manifest import ExecutableError

_MAX_ROWS = 30
"""Rows of a table; the rest is one row."""
_WIDEST = 60
"""Characters of a text in a table."""


@dataclass(frozen=True)
class Row:
    """A step of a network.

    Attributes:
        step: its number in the order of calls.
        name: name of the computation.
        workload: key of the workload.
        seconds: median seconds of an inference; of a step in a loop, the sum over its trips.
        share: share of the sum of all steps' seconds, 0 to 1.
        gflops: 1e9 operations a second, as the workload defines them; None if unknown.
    """

    step: int
    name: str
    workload: str
    seconds: float
    share: float
    gflops: float | None


class Profile(NDArrayOperatorsMixin):
    """Seconds of each step in each of some inferences.

    Functions and operators of NumPy take it as the array `seconds`; indices and slices are that array's.

    Args:
        name: name of the network.
        steps: steps of its manifest, in the order of calls.
        seconds: (inferences, steps).
    """

    def __init__(self, name: str, steps: Sequence[Mapping[str, Any]], seconds: NDArray[np.float64]) -> None:
        self.name, self.steps, self.seconds = name, tuple(steps), seconds

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.seconds, dtype=dtype, copy=copy)

    def __array_ufunc__(self, function: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        given = [value.seconds if isinstance(value, Profile) else value for value in inputs]
        return getattr(function, method)(*given, **options)

    def __getitem__(self, index: Any) -> Any:
        return self.seconds[index]

    def __len__(self) -> int:
        return len(self.seconds)

    @property
    def shape(self) -> tuple[int, ...]:
        """Inferences, steps."""
        return self.seconds.shape

    @property
    def rows(self) -> list[Row]:
        """Steps in the order of their shares, the greatest first; empty if no inference was timed."""
        if not len(self):
            return []
        median = np.median(self.seconds, axis=0)
        total = float(median.sum()) or 1.0
        order = np.argsort(-median, kind="stable").tolist()
        return [self._row(number, float(median[number]), total) for number in order]

    def _row(self, number: int, seconds: float, total: float) -> Row:
        step = self.steps[number]
        rate = _rate(step, seconds)
        return Row(number, step["title"], step["workload"], seconds, seconds / total, rate)

    def to_chrome_trace(self, path: str | os.PathLike[str]) -> Path:
        """Writes the inferences as a trace, one after the other, in JSON of the Trace Event Format; its path.

        `chrome://tracing` and Perfetto show it. Pauses between steps are not shown: each begins where the one before it
        ends. Steps that took no time, such as those of other sizes, are left out.

        Raises:
            ExecutableError: the file cannot be written.
        """
        events: list[dict[str, Any]] = [
            {"name": "process_name", "ph": "M", "pid": 0, "tid": 0, "args": {"name": self.name}}
        ]
        start = 0.0
        for inference, row in enumerate(self.seconds.tolist()):
            for number, (step, seconds) in enumerate(zip(self.steps, row, strict=True)):
                if seconds <= 0:
                    continue
                rate = _rate(step, seconds)
                facts = {"step": number, "workload": step["workload"], "inference": inference}
                facts |= {} if rate is None else {"gflops": round(rate, 3)}
                events.append(
                    {
                        "name": step["title"],
                        "cat": "kernel",
                        "ph": "X",
                        "ts": start * 1e6,
                        "dur": seconds * 1e6,
                        "pid": 0,
                        "tid": 0,
                        "args": facts,
                    }
                )
                start += seconds
        file = Path(path)
        try:
            replace_file(file, json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}).encode())
        except OSError as error:
            raise ExecutableError(
                f"`path` must be a file that can be written, but got {file}: {error.strerror}"
            ) from None
        return file

    def __repr__(self) -> str:
        head, body = self._table()
        columns = list(zip(head, *body, strict=True))
        widths = [max(map(len, column)) for column in columns]
        lines = [self._title]
        for cells in (head, *body):
            texts = [
                cell.ljust(width) if place < 2 else cell.rjust(width)
                for place, (cell, width) in enumerate(zip(cells, widths, strict=True))
            ]
            lines.append("  ".join(texts).rstrip())
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """Formats the table as HTML for notebooks."""
        head, body = self._table()
        titles = "".join(f"<th>{escape(title)}</th>" for title in head)
        rows = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>" for cells in body)
        return (
            f"<div><strong>{escape(self._title)}</strong>"
            f"<table><thead><tr>{titles}</tr></thead><tbody>{rows}</tbody></table></div>"
        )

    @property
    def _title(self) -> str:
        total = sum(row.seconds for row in self.rows)
        return (
            f"Profile of {self.name}: {len(self.steps)} steps, {total * 1e3:.{self._digits}f} ms, median of {len(self)}"
        )

    @property
    def _digits(self) -> int:
        """Decimals of milliseconds: microseconds, or nanoseconds where all steps together take few microseconds."""
        return 3 if not len(self) or np.median(self.seconds, axis=0).sum() >= 1e-4 else 6

    def _table(self) -> tuple[list[str], list[list[str]]]:
        """Returns the titles of the columns, and the rows of texts."""
        rows, digits = self.rows, self._digits
        body = [
            [
                _cut(row.name),
                _cut(row.workload),
                f"{row.seconds * 1e3:.{digits}f}",
                f"{row.share:.1%}",
                "-" if row.gflops is None else f"{row.gflops:.1f}",
            ]
            for row in rows[:_MAX_ROWS]
        ]
        if rest := rows[_MAX_ROWS:]:
            seconds, share = sum(row.seconds for row in rest), sum(row.share for row in rest)
            body.append([f"{len(rest)} more", "", f"{seconds * 1e3:.{digits}f}", f"{share:.1%}", ""])
        return ["name", "workload", "ms", "share", "GFLOP/s"], body


def _rate(step: Mapping[str, Any], seconds: float) -> float | None:
    """Returns a step's 1e9 operations a second; None if its operations are unknown, or it took no time."""
    flops = step.get("flops")
    known = isinstance(flops, int) and flops > 0 and seconds > 0
    return flops * step.get("trips", 1) / seconds * 1e-9 if known else None


def _cut(text: str) -> str:
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 1]}…"

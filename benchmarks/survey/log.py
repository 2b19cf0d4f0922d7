"""Rows of the survey, a JSON object a line, from which an interrupted survey resumes."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.survey.models import Model
from benchmarks.survey.process import ProcessEnd

Row = dict[str, Any]

STATUSES = ("right", "wrong", "unjudged", "refused", "failed", "not exported")
"""Results of a model.

`refused`: the importer says why; `failed`: it crashed, or took too long or too much memory; `unjudged`: nothing can say
whether it is right.
"""


class Log:
    """The rows of a file.

    Args:
        path: path of the file; an incomplete last line is removed.

    Raises:
        ValueError: another line that is not a row.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.rows: list[Row] = []
        text = path.read_bytes() if path.exists() else b""
        complete = text[: text.rfind(b"\n") + 1]
        for number, line in enumerate(complete.splitlines(), 1):
            try:
                self.rows.append(dict(json.loads(line)))
            except ValueError:
                raise ValueError(f"a line must be a JSON object, but {path}:{number} is not") from None
        if complete != text:
            os.truncate(path, len(complete))

    def append(self, row: Row) -> None:
        """Takes in a row, and writes it out at once."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a") as file:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self.rows.append(row)

    def latest(self) -> dict[str, Row]:
        """Returns the last row of each key, see `row_key`."""
        return {row_key(row): row for row in self.rows}


def row_key(row: Mapping[str, Any]) -> str:
    """Returns the key of a row: model, processor, threads and trials."""
    return f"{row['name']}, {row['cpu']}, {row['threads']} threads, {budget_text(row)}"


def budget_text(row: Mapping[str, Any]) -> str:
    """Formats the trials of a row's model: of all its tasks together, or of each."""
    return f"{row['trials']} trials{' a task' if row.get('each_task') else ''}"


def make_row(model: Model, common: Mapping[str, Any], facts: Mapping[str, Any], process_end: ProcessEnd) -> Row:
    """Makes the row of a model.

    Args:
        model: model of the list.
        common: common part of all rows of this survey.
        facts: facts that its processes noted.
        process_end: end of the last process.
    """
    status, reason = outcome(facts, process_end)
    kept = {name: value for name, value in facts.items() if name not in ("failure", "refused", "right")}
    return {**model.to_json(), **common, "status": status, "reason": reason, **kept}


def outcome(facts: Mapping[str, Any], process_end: ProcessEnd) -> tuple[str, str]:
    """Returns a status, and the sentence that explains it; "" for a right model."""
    stage = facts.get("stage", "start")
    if "refused" in facts:
        return "refused", facts["refused"]
    if process_end.why:
        status = "not exported" if stage == "export" and not process_end.timed_out else "failed"
        why = process_end.why if process_end.timed_out else facts.get("failure", process_end.why)
        return status, f"{stage}: {why}"
    if facts["right"] is None:
        return "unjudged", facts["note"]
    if not facts["right"]:
        return "wrong", f"outputs differ from {facts['reference']} by {facts['error']:.2g}"
    return "right", ""

"""Tables under measurement: all rows of a table share one state of the code, one machine and the same settings.

Hours may lie between the first row and the last, so rows wait in `results/unfinished/NAME.json` until the table is
complete. Then they replace the previous table. Rows of another state are not mixed in: they are measured anew. Rows of
changed files make no table: they are in `unfinished/NAME+.json`, for inspection. Rows of another processor are kept:
tables of a second one have a folder of their own. Tables of `OF_ANY_PROCESSOR` take rows of several.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import results
from benchmarks.interleave import FEWEST_ROUNDS
from benchmarks.provenance import MEASURED_PATHS, MEASURING, describe_state, is_whole, moment, read_commit
from benchmarks.rows import pick
from search_space.files import replace_file

OF_ANY_PROCESSOR = (
    "language_1",
    "networks_10_2",
    "networks_1000_2",
    "tvm",
    "tvm_long",
    "tvm_threads",
    "pytorch",
    "training",
)
"""Tables that take longer than a machine may be available for.

Their rows may be of several processors, and name theirs. A ratio compares times of one row, and so of one processor.
"""
MACHINE = ("cpu", "cores")


def _common(name: str) -> tuple[str, ...]:
    """Lists parts of the origin that all rows of a table, which may be of a second processor's folder, must share."""
    return ("commit",) if name.rpartition("/")[2] in OF_ANY_PROCESSOR else ("commit", *MACHINE)


class MixedTable(ValueError):
    """Rows that must not be in one table."""


class RowCollection:
    """Rows of a table that are measured in the current state of code, machine and settings.

    Args:
        name: name of the result file.
        settings: settings common to all rows: trials, turns, threads, seed; plain data.
        rows: names of all rows of the table, in its order.
        folder: folder of the result files.

    Raises:
        MixedTable: waiting rows of another processor, or of other settings alone, would be lost.
    """

    def __init__(
        self, name: str, settings: Mapping[str, Any], rows: Sequence[str], folder: Path = results.FOLDER
    ) -> None:
        self.name, self.row_names, self._folder = name, tuple(rows), folder
        self.state = self._shared(describe_state(json.loads(json.dumps(dict(settings)))))
        self._is_committed = is_whole(self.state["commit"])
        self._file = folder / results.UNFINISHED_FOLDER / (f"{name}.json" if self._is_committed else f"{name}+.json")
        self.rows: dict[str, Any] = {}
        for path in (folder / f"{name}.json", self._file) if self._is_committed else ():
            stored = json.loads(path.read_text()) if path.exists() else {}
            if self._shared(stored.get("state", {})) == self.state:
                self.rows |= {name: row for name, row in stored["rows"].items() if name in self.row_names}
            elif path == self._file and stored:
                self._refuse_to_lose(stored)
                sys.stderr.write(f"{len(stored['rows'])} rows in {path.name} are of another state: measured anew\n")

    def _shared(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the parts of a state that all rows must share."""
        return {key: value for key, value in state.items() if key not in MACHINE or key in _common(self.name)}

    def _refuse_to_lose(self, table: Mapping[str, Any]) -> None:
        other = self._shared(table["state"])
        if any(other.get(key) != self.state.get(key) for key in MACHINE):
            here, there = (f"{state['cpu']}, {state['cores']} cores" for state in (self.state, other))
            raise MixedTable(
                f"`results` of {self.name} must be a folder for {here}, but {len(table['rows'])} rows of {there} wait "
                f"in {self._file}: take another folder, or remove the file"
            )
        if all(other[key] == self.state[key] for key in self.state if key != "settings"):
            raise MixedTable(
                f"`settings` of {self.name} must be {other['settings']}, as of {len(table['rows'])} rows that wait in "
                f"{self._file}, but are {self.state['settings']}: take other results, or remove the file"
            )

    @property
    def missing(self) -> list[str]:
        """Names of rows that are still to be measured, in the table's order."""
        return [name for name in self.row_names if name not in self.rows]

    def add(self, name: str, row: Mapping[str, Any]) -> None:
        """Takes in a row, and writes it out at once; the table, once it is whole.

        Raises:
            MixedTable: a row that the table does not have, or the code changed since the first one was measured.
        """
        if name not in self.row_names:
            raise MixedTable(f"`row` must be one of {', '.join(self.row_names)}, but got row={name!r}")
        now = describe_state(self.state["settings"])
        if self._shared(now) != self.state:
            raise MixedTable(
                f"rows must be of one state, but {self.name} began at {self.state['commit']} and is at {now['commit']}"
            )
        made = {key: now[key] for key in ("commit", *MACHINE)}
        self.rows[name] = {**row, "made": {**made, **moment()}}
        self._write(self._file)
        if self._is_committed and not self.missing:
            self.publish()

    def fill(
        self,
        names: Collection[str],
        measure: Callable[[str], Mapping[str, Any]],
        summarise: Callable[[Mapping[str, Any]], str],
        minutes: float = math.inf,
    ) -> None:
        """Measures rows that are missing, one after the other, and says each on standard error.

        Args:
            names: names of those to measure; others stay missing.
            measure: gives the row of a name.
            summarise: a row, briefly.
            minutes: after which none is begun.
        """
        end = time.monotonic() + 60 * minutes
        for name in [name for name in self.missing if name in names]:
            if time.monotonic() >= end:
                return
            start = time.perf_counter()
            row = measure(name)
            self.add(name, row)
            sys.stderr.write(f"{name}: {summarise(row)} ({time.perf_counter() - start:.0f} s)\n")

    def publish(self) -> None:
        """Writes the table from its rows; nothing waits any more."""
        self.rows = {name: self.rows[name] for name in self.row_names}
        self._write(self._folder / f"{self.name}.json")
        self._file.unlink(missing_ok=True)

    def document(self) -> dict[str, Any]:
        """Returns state, rows so far, and `at`: the commit at which the table's command gives these rows."""
        return {"state": self.state, "at": read_commit(measured_paths=(*MEASURED_PATHS, *MEASURING)), "rows": self.rows}

    def _write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, (json.dumps(self.document(), indent=1, ensure_ascii=False) + "\n").encode())


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of every table: which rows, for how long, and the folder of results."""
    parser.add_argument("--rows", help="comma-separated names; default: all")
    parser.add_argument("--minutes", type=float, default=math.inf, help="after which no row is begun")
    parser.add_argument("--results", type=Path, default=results.FOLDER, help="folder of the result files")


def add_picture(parser: argparse.ArgumentParser, page: str) -> None:
    """Adds the option of the picture that a table has on a page, `docs/PAGE`."""
    parser.add_argument("--picture", type=Path, help=f"PNG to draw; default: docs/{page}, of the pages' own results")
    parser.set_defaults(picture_of_page=results.DOCS / page)


def find_picture(options: argparse.Namespace) -> Path | None:
    """Returns the PNG to draw; None: the results are those of another processor, which a page's picture leaves out."""
    picture: Path | None = options.picture
    return options.picture_of_page if picture is None and options.results == results.FOLDER else picture


def add_timing_options(
    parser: argparse.ArgumentParser,
    trials: int | None = None,
    counts: str = "measured candidates a row",
    threads: int = 2,
    repeat: int = FEWEST_ROUNDS,
) -> None:
    """Adds the options of tables whose kernels or networks take turns.

    Args:
        parser: parser of the table's command.
        trials: default of `--trials`; None: the command has no such option.
        counts: help of `--trials`.
        threads, repeat: defaults of the options of these names.
    """
    if trials is not None:
        parser.add_argument("--trials", type=int, default=trials, help=counts)
    parser.add_argument("--repeat", type=int, default=repeat, help="rounds of turns")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=threads)


def collect(
    options: argparse.Namespace,
    name: str,
    settings: Mapping[str, Any],
    rows: Sequence[str],
    measure: Callable[[str], Mapping[str, Any]],
    summarise: Callable[[Mapping[str, Any]], str],
    table: Callable[[Mapping[str, Any]], str],
) -> int:
    """Runs the command of a table: measures rows that are chosen and missing, and prints all rows.

    Args:
        options: options, with the ones of `add_options`.
        name, settings, rows: arguments of `RowCollection`.
        measure, summarise: arguments of `RowCollection.fill`.
        table: document → its table in Markdown.

    Returns:
        The exit status: 2 where an option is wrong, said in a sentence.
    """
    try:
        chosen = pick(options.rows, rows)
        collected = RowCollection(name, settings, rows, options.results)
    except ValueError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    collected.fill(chosen, measure, summarise, options.minutes)
    sys.stdout.write((table(collected.document()) if collected.rows else "no row is measured yet") + "\n")
    return 0


def check(name: str, document: Mapping[str, Any]) -> None:
    """Refuses a document whose rows must not be in one table; a document without a state is older than states are.

    Raises:
        MixedTable: rows of several commits, processors or settings, or of files that were changed.
    """
    if "state" not in document:
        return
    state = document["state"]
    if not is_whole(state["commit"]):
        raise MixedTable(f"rows of {name} must be of a commit, but are of changed files: {state['commit'] or 'none'}")
    for row, found in document["rows"].items():
        for key in _common(name):
            if found.get("made", {}).get(key) != state[key]:
                got = found.get("made", {}).get(key)
                raise MixedTable(f"`{key}` of rows of {name} must be {state[key]}, but that of {row} is {got}")


def _format_value(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):  # whole in the file: what has a name is known by it
        return (
            str(value["name"]) if "name" in value else ", ".join(f"{key} {_format_value(value[key])}" for key in value)
        )
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def describe_source(document: Mapping[str, Any]) -> str:
    """Formats the line above a table that says where its rows come from."""
    state, days = document["state"], sorted({row["made"]["date"] for row in document["rows"].values()})
    busiest = max(row["made"]["load"] for row in document["rows"].values())
    settings = ", ".join(f"`{key}={_format_value(value)}`" for key, value in state["settings"].items())
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    versions = ", ".join(f"{key} {value}" for key, value in state["versions"].items())
    counts = Counter(f"{row['made']['cpu']}, {row['made']['cores']} cores" for row in document["rows"].values())
    machines = " and ".join(
        f"{machine}{f' ({count} rows)' if len(counts) > 1 else ''}" for machine, count in counts.items()
    )
    said = f"{machines}; commit {document.get('at') or state['commit']}, {when}, load up to {busiest:.1f}."
    return f"{said} Settings: {settings}.{_noise(document)} With {versions}.\n\n"


def summarise_state(document: Mapping[str, Any]) -> str:
    """Returns processor, threads, commit, dates and measurement noise of a table of one state, as sentences."""
    state, days = document["state"], sorted({row["made"]["date"] for row in document["rows"].values()})
    machines = " and ".join(dict.fromkeys(row["made"]["cpu"] for row in document["rows"].values()))
    threads = f", {count} thread{'s' * (count > 1)}" if (count := state["settings"].get("threads")) else ""
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    return f"{machines}{threads}; commit {document.get('at') or state['commit']}, {when}.{_noise(document)}"


def _noise(document: Mapping[str, Any]) -> str:
    """Says by how much the halves of the turns differ, if something took turns."""
    found = [row["unsteady"] for row in document["rows"].values() if "unsteady" in row]
    if not found:
        return ""
    return f" Measurement noise: {median(found):.0%} in the median row, {max(found):.0%} at most."

"""Puts tables of `benchmarks/results` into docs/benchmarks.md, between `<!-- table:NAME -->` and `<!-- /table -->`.

`python -m benchmarks.table [FILE] [--check]`: `--check` writes nothing; code 1 where one is stale.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks import results
from benchmarks.collected import check, said_of
from benchmarks.tables import TABLES

PAGE = Path(__file__).resolve().parents[1] / "docs" / "benchmarks.md"
_MARKED = re.compile(r"(<!-- table:(?P<name>[\w-]+) -->\n).*?(<!-- /table -->)", re.DOTALL)


def regenerate(text: str, folder: Path = results.FOLDER) -> str:
    """`text` with every marked table made anew; a table without results says so.

    Raises:
        ValueError: a name there is no table of.
        MixedTable: rows that must not stand in one.
    """

    def filled(match: re.Match[str]) -> str:
        name = match["name"]
        if name not in TABLES:
            raise ValueError(f"`table` must be one of {', '.join(TABLES)}, but got table:{name}")
        document = results.load(name, folder)
        if document is not None:
            check(name, document)
        body = (
            f"Not measured yet: `{command_of(name)}`." if document is None else _said(document) + TABLES[name](document)
        )
        return f"{match[1]}{body}\n{match[3]}"

    return _MARKED.sub(filled, text)


def command_of(name: str) -> str:
    """The command that measures a table: that of its name, of a module in a folder, or with the options behind it."""
    if (results.FOLDER.parent / f"{name}.py").exists():
        return f"python -m benchmarks.{name}"
    if found := re.fullmatch(r"networks_(\d+)_(\d+)", name):
        return f"python -m benchmarks.networks --budget {found[1]} --threads {found[2]}"
    return f"python -m benchmarks.{name.replace('_', '.')}"


def _said(document: dict[str, object]) -> str:
    if "state" in document:
        return said_of(document)
    rows = document["rows"]
    assert isinstance(rows, dict)
    if any("cpu" in row for row in rows.values()):
        return ""  # the table names the processor of each
    host = document["host"]
    assert isinstance(host, dict)
    return f"Measured on {host['cpu']}, {host['cores']} cores.\n\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Rewrites the file."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.table", description=__doc__)
    parser.add_argument("file", nargs="?", type=Path, default=PAGE)
    parser.add_argument("--check", action="store_true", help="write nothing; code 1 where a table is stale")
    options = parser.parse_args(arguments)
    before = options.file.read_text()
    after = regenerate(before)
    if options.check:
        return int(before != after)
    options.file.write_text(after)
    return 0


if __name__ == "__main__":
    sys.exit(main())

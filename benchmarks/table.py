"""Generator of tables in README and docs, between `<!-- table:NAME -->` and `<!-- /table -->`.

`<!-- summary:NAME -->` to `<!-- /summary -->` is replaced by the summary of a table. Tables of a second processor are
in a folder: `<!-- table:FOLDER/NAME -->`. All result files are covered by `table:headline`, by `table:readme`, and by
`table:subjects`, which is the same for a page of docs.

`python -m benchmarks.table [FILE...] [--check]`: `--check` writes nothing; code 1 where a table is stale.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from benchmarks import results
from benchmarks.collected import check, describe_source, summarise_state
from benchmarks.headline import headline
from benchmarks.readme_table import readme
from benchmarks.stages import STAGES
from benchmarks.summaries import SUMMARIES
from benchmarks.tables import TABLES
from benchmarks.worst import worst

ROOT = Path(__file__).resolve().parents[1]
OF_MANY_STATES = ("survey", "sealed")
"""Tables whose rows say themselves where they come from."""
OF_ALL = {"headline": headline, "readme": readme, "subjects": partial(readme, pages=""), "worst": worst}
"""Table of all result files → its text, of their folder."""
_MARKERS = re.compile(
    r"(<!-- (?P<sort>table|summary):(?P<name>(?:[\w-]+/)?(?P<kind>[\w-]+)) -->\n).*?(?P<end><!-- /(?P=sort) -->)",
    re.DOTALL,
)


def regenerate(text: str, folder: Path = results.FOLDER) -> str:
    """Replaces every marked table of `text`; a table without results says so.

    Raises:
        ValueError: a name without a table.
        MixedTable: rows that must not be in one table.
    """

    def fill(match: re.Match[str]) -> str:
        name, kind = match["name"], match["kind"]
        if match["sort"] == "table" and name in OF_ALL:
            return f"{match[1]}{OF_ALL[name](folder)}\n{match['end']}"
        if kind not in (texts := SORTS[match["sort"]]):
            raise ValueError(f"`{match['sort']}` must be one of {', '.join(texts)}, but got {match['sort']}:{name}")
        document = results.load(name, folder)
        if document is not None:
            check(name, document)
        if document is None:
            body = f"Not measured yet: `{measuring_command(kind)}`."
        elif match["sort"] == "summary":
            body = f"{texts[kind](document)}\n\n{_brief(kind, document)}"
        else:
            body = _describe_provenance(kind, document) + texts[kind](document)
        return f"{match[1]}{body}\n{match['end']}"

    return _MARKERS.sub(fill, text)


SORTS = {"table": TABLES, "summary": SUMMARIES}


def _brief(kind: str, document: dict[str, object]) -> str:
    """Returns where a summary comes from: machine, commit and command."""
    said = summarise_state(document) if "state" in document else _describe_provenance(kind, document).strip()
    device = f"{document['device']}." if "device" in document else ""
    return " ".join(part for part in (device, said, f"`{measuring_command(kind)}`.") if part)


def measuring_command(name: str) -> str:
    """Returns the command that measures a table: of its stage, or of the module of its name."""
    stages = {stage.table: stage for stage in STAGES}
    if name in stages:
        return stages[name].command_line
    module = name if (results.FOLDER.parent / f"{name}.py").exists() else name.replace("_", ".")
    return f"python -m benchmarks.{module}"


def _describe_provenance(name: str, document: dict[str, object]) -> str:
    if "state" in document:
        return describe_source(document)
    if name in OF_MANY_STATES:
        return ""
    rows, host = document["rows"], document["host"]
    assert isinstance(rows, dict) and isinstance(host, dict)
    made = [row.get("made", row) for row in rows.values()]
    of = {key: dict.fromkeys(each[key] for each in made if key in each) for key in ("cpu", "commit")}
    commits = f", commit {', '.join(of['commit'])}" if of["commit"] else ""
    return f"Measured on {', '.join(of['cpu'] or [host['cpu']])}, {host['cores']} cores{commits}.\n\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Rewrites the pages that have tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.table", description=__doc__)
    parser.add_argument("files", nargs="*", type=Path, help="by default README and all pages of docs")
    parser.add_argument("--check", action="store_true", help="write nothing; code 1 where a table is stale")
    options = parser.parse_args(arguments)
    stale = []
    for page in options.files or [ROOT / "README.md", *sorted(results.DOCS.rglob("*.md"))]:
        before = page.read_text()
        after = regenerate(before)
        if after != before:
            stale.append(page)
            if not options.check:
                page.write_text(after)
    if options.check and stale:
        sys.stderr.write(f"tables are stale in {', '.join(page.name for page in stale)}\n")
    return int(options.check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())

"""The offences of the repository."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from tests.architecture.prose.commands import offences_of_commands
from tests.architecture.prose.docstrings import offences_of_docstrings
from tests.architecture.prose.names import offences_of_names
from tests.architecture.prose.offence import Offence
from tests.architecture.prose.sentences import offences_of_page

ROOT = Path(__file__).parents[3]
CODE = ("search_space", "targets", "measure", "costmodel", "autotune", "benchmarks", "examples", "notebooks", "tests")


def offences(paths: Sequence[str] = ()) -> list[Offence]:
    """Lists the offences of code and pages in order of their places.

    Args:
        paths: files and folders from the repository's root; none for all.
    """
    wanted = [Path(path).resolve() for path in paths]
    listed: list[Offence] = []
    for path in files():
        if not wanted or _is_below(path, wanted):
            listed += offences_in(path)
    listed += [offence for offence in offences_of_commands() if not wanted or _is_below(ROOT / offence.path, wanted)]
    return sorted(listed, key=lambda offence: (offence.path, offence.line, offence.rule))


def _is_below(path: Path, parents: Sequence[Path]) -> bool:
    return any(path.is_relative_to(parent) for parent in parents)


def files() -> list[Path]:
    """Lists the modules and pages that the rules cover."""
    modules = [path for folder in CODE for path in sorted((ROOT / folder).rglob("*.py"))]
    folders = (ROOT.glob("*.md"), (ROOT / "docs").rglob("*.md"), (ROOT / "findings").glob("*.md"))
    pages = [page for folder in folders for page in sorted(folder)]
    return [*modules, *pages]


def offences_in(path: Path) -> list[Offence]:
    """Lists the offences of one file; of tests, names and forbidden first words of docstrings alone.

    Of the Python of a page, docstrings count.
    """
    name, text = path.relative_to(ROOT).as_posix(), path.read_text()
    if path.suffix == ".md":
        return [*offences_of_page(name, text), *_offences_of_examples(name, text)]
    tree, is_test = ast.parse(text), name.startswith("tests/")
    return [*offences_of_docstrings(name, tree, is_test), *offences_of_names(name, tree, not is_test)]


def _offences_of_examples(path: str, page: str) -> Iterator[Offence]:
    """Lists the offences of docstrings in the Python of a page, which readers copy."""
    for block in re.finditer(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE):
        line = page.count("\n", 0, block.start(1))
        for offence in offences_of_docstrings(path, ast.parse(block[1])):
            yield replace(offence, line=line + offence.line)

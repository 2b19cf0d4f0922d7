"""The offences of the repository, and the lists of those that are older than the rules."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tests.architecture.prose.commands import offences_of_commands
from tests.architecture.prose.docstrings import offences_of_docstrings
from tests.architecture.prose.names import offences_of_names
from tests.architecture.prose.offence import Offence, area
from tests.architecture.prose.sentences import offences_of_page

ROOT = Path(__file__).parents[3]
LISTS = Path(__file__).parent
TABLES = ROOT / "docs" / "benchmarks"
"""Pages that are not covered: the lines under their tables list settings and versions."""
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
    pages = [path for path in sorted((ROOT / "docs").rglob("*.md")) if path.parent != TABLES]
    return [*modules, *sorted(ROOT.glob("*.md")), *pages]


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


def entries(offences: Iterable[Offence]) -> dict[str, Counter[str]]:
    """Groups the entries of offences by area, each with how often it occurs."""
    grouped: dict[str, Counter[str]] = defaultdict(Counter)
    for offence in offences:
        grouped[area(offence.path)][offence.entry] += 1
    return grouped


def read_lists() -> dict[str, Counter[str]]:
    """Reads the lists of old offences, by area."""
    return {path.stem: Counter(path.read_text().splitlines()) for path in LISTS.glob("*.txt")}


def difference(
    current: Mapping[str, Counter[str]], area_lists: Mapping[str, Counter[str]]
) -> tuple[list[str], list[str]]:
    """Compares the entries of today's offences with the lists.

    Returns:
        New entries, which are in no list, and stale ones, whose offences are mended.
    """
    now, before = _join(current), _join(area_lists)
    return sorted((now - before).elements()), sorted((before - now).elements())


def shrink(area_lists: Mapping[str, Counter[str]], current: Mapping[str, Counter[str]]) -> dict[str, Counter[str]]:
    """Takes stale entries out of the lists, and renames those whose text is now in another place.

    Returns:
        The lists without stale entries, no longer than before.
    """
    new, stale = difference(current, area_lists)
    waiting = Counter(_entry_text(entry) for entry in stale)
    shorter = _join(area_lists) - Counter(stale)
    for entry in new:
        if waiting[_entry_text(entry)] > 0:
            waiting[_entry_text(entry)] -= 1
            shorter[entry] += 1
    grouped: dict[str, Counter[str]] = defaultdict(Counter)
    for entry, count in shorter.items():
        grouped[area(entry.partition("::")[0])][entry] += count
    return grouped


def write(area_lists: Mapping[str, Counter[str]]) -> None:
    """Writes the lists of old offences; an area without any has no file."""
    for name in read_lists().keys() - area_lists.keys():
        (LISTS / f"{name}.txt").unlink()
    for name, counts in area_lists.items():
        (LISTS / f"{name}.txt").write_text("".join(f"{entry}\n" for entry in sorted(counts.elements())))


def _join(groups: Mapping[str, Counter[str]]) -> Counter[str]:
    joined: Counter[str] = Counter()
    for counts in groups.values():
        joined.update(counts)
    return joined


def _entry_text(entry: str) -> str:
    """Returns the rule and the digest of an entry."""
    return entry.partition(" ")[2]

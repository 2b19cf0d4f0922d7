"""Rules of sentences, and of pages, which are made of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePath

from tests.architecture.prose import words
from tests.architecture.prose.offence import Offence

LONGEST = 25
"""Words that a sentence of a page has at most."""

END = re.compile(r"(?<=[.!?])(?<!\be\.g\.)(?<!\bi\.e\.)(?<!\bet al\.)[)\"*_]*\s+(?=[\W_]*[A-Z0-9`])")
ITEM = re.compile(r"^\s*(?:[-*+]|\d+\.) +")
FENCE = re.compile(r"^\s*(```|~~~)")


def sentences(text: str) -> list[str]:
    """Splits a paragraph into its sentences; what is in backticks splits none."""
    codes = re.findall(r"`[^`]*`", text)
    parts = END.split(re.sub(r"`[^`]*`", "`\x00`", " ".join(text.split())))
    remaining = iter(codes)
    return [re.sub(r"`\x00`", lambda _: next(remaining), part) for part in parts if part]


def length(sentence: str) -> int:
    """Counts the words of a sentence; code in backticks is one, and targets of links are none."""
    plain = re.sub(r"`[^`]*`", "code", re.sub(r"\]\([^)]*\)", "]", sentence))
    return sum(bool(re.search(r"\w", word)) for word in plain.split())


def subject(sentence: str) -> bool:
    """Tells whether a statement begins with one of `words.SUBJECTS`."""
    first = (re.findall(r"[\w`']+", sentence) or [""])[0]
    return first.lower() in words.SUBJECTS and not sentence.rstrip(')*_"').endswith("?")


def dialect(sentence: str) -> bool:
    """Tells whether a sentence has one of the turns of `words.DIALECT`."""
    return re.search(words.DIALECT, re.sub(r"`[^`]*`", "", sentence)) is not None


def paragraphs(page: str) -> Iterator[tuple[int, str]]:
    """Lists (line, text) of the paragraphs and items of a page, without code, tables, headings and HTML."""
    start, lines, fenced = 0, list[str](), False
    for number, line in enumerate([*page.split("\n"), ""], 1):
        if FENCE.match(line):
            fenced = not fenced
            line = ""
        elif fenced or line.lstrip().startswith(("|", "#", "<", "[!")) or (line.startswith("    ") and not lines):
            line = ""
        if (not line.strip() or ITEM.match(line)) and lines:
            yield start, " ".join(lines)
            lines = []
        if line.strip():
            start = start if lines else number
            lines.append(ITEM.sub("", line).strip())


def offences_of_page(path: str, text: str) -> Iterator[Offence]:
    """Lists the offences of a page; of a change log only those of its section "Unreleased"."""
    if PurePath(path).name == "CHANGELOG.md":
        before, _, rest = text.partition("## Unreleased")
        text = "\n" * before.count("\n") + re.split(r"^## ", rest, maxsplit=1, flags=re.MULTILINE)[0]
    for line, paragraph in paragraphs(text):
        for sentence in sentences(paragraph):
            if length(sentence) > LONGEST:
                yield Offence("long-sentence", path, "-", sentence, line)
            if subject(sentence):
                yield Offence("subject", path, "-", sentence, line)
            if dialect(sentence):
                yield Offence("dialect", path, "-", sentence, line)

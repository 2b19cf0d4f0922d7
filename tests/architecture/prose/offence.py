"""An offence against a rule, and its entry in the lists of old ones."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass


@dataclass(frozen=True)
class Offence:
    """One place that a rule forbids.

    Attributes:
        rule: name of the rule.
        path: path of the file from the repository's root.
        name: qualified name within a module, "-" for a page.
        text: what offends: a sentence, a first line or a name.
        line: line in the file; not part of the entry, so that entries survive moves within a file.
    """

    rule: str
    path: str
    name: str
    text: str
    line: int

    @property
    def digest(self) -> str:
        """Eight digits of the text's hash, so that another text under the same name is a new offence."""
        return hashlib.sha256(" ".join(self.text.split()).encode()).hexdigest()[:8]

    @property
    def entry(self) -> str:
        """Line of an allow-list: path, qualified name, rule and digest."""
        return f"{self.path}::{self.name or '-'} {self.rule} {self.digest}"

    def __str__(self) -> str:
        """Formats the offence as compilers do: file:line: rule: text."""
        return f"{self.path}:{self.line}: {self.rule}: {self.text}"


def area(path: str) -> str:
    """Returns the name of a file's allow-list: a folder of `autotune`, another package, or "docs"."""
    parts = path.split("/")
    if parts[-1].endswith(".md"):
        return "docs"
    return "-".join(parts[:2]) if parts[0] == "autotune" and len(parts) > 2 else parts[0]

"""An offence against a rule."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Offence:
    """One place that a rule forbids.

    Attributes:
        rule: name of the rule.
        path: path of the file from the repository's root.
        name: qualified name within a module, "-" for a page.
        text: what offends: a sentence, a first line or a name.
        line: line in the file.
    """

    rule: str
    path: str
    name: str
    text: str
    line: int

    def __str__(self) -> str:
        """Formats the offence as compilers do: file:line: rule: text."""
        return f"{self.path}:{self.line}: {self.rule}: {self.text}"

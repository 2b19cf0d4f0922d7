"""Golden files: text as it was when somebody last looked at it."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path

UPDATE = 'make test ARGS="tests/golden --update-golden"'


@dataclass(frozen=True)
class Golden:
    """Holds text against the files of a folder.

    Attributes:
        folder: folder of the files.
        update: whether they are rewritten instead.
    """

    folder: Path
    update: bool = False

    def check(self, name: str, text: str) -> None:
        """Compares `text` with the file `name`; lines must not end in blanks, nor the text in several line ends.

        Raises:
            AssertionError: they differ; the message is a unified diff and how to update.
        """
        text = "\n".join(line.rstrip() for line in text.splitlines()).rstrip("\n") + "\n"
        path = self.folder / name
        if self.update:
            self.folder.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            return
        before = path.read_text() if path.exists() else ""
        if text != before:
            diff = difflib.unified_diff(
                before.splitlines(), text.splitlines(), f"golden/{name}", "now", lineterm="", n=2
            )
            raise AssertionError("\n".join([f"{name} has changed; where that is meant: {UPDATE}", *diff]))

"""Rules of commit messages that gitlint does not bring; `.gitlint` loads them."""

from __future__ import annotations

from typing import Any, ClassVar

from gitlint.options import IntOption
from gitlint.rules import CommitRule, RuleViolation


class BodyOfLargeChanges(CommitRule):  # type: ignore[misc]  # gitlint lives in pre-commit's own environment
    """A commit that changes many lines says why in a body."""

    name = "body-of-large-changes"
    id = "UC1"
    options_spec: ClassVar[list[IntOption]] = [IntOption("lines", 20, "Most changed lines of a commit without a body")]

    def validate(self, commit: Any) -> list[RuleViolation]:
        """Compares the lines that were added and deleted with the option."""
        changed = sum((of.additions or 0) + (of.deletions or 0) for of in commit.changed_files_stats.values())
        most = self.options["lines"].value
        if changed <= most or any(line.strip() for line in commit.message.body):
            return []
        return [RuleViolation(self.id, f"A commit of more than {most} lines must have a body, but changes {changed}")]

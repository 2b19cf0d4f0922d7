"""Prints the offences of files and folders, of all of the repository by default, and counts each rule."""

from __future__ import annotations

import sys
from collections import Counter

from tests.architecture.prose import repository


def main(paths: list[str]) -> None:
    """Prints the offences below some paths."""
    offences = repository.offences(paths)
    for offence in offences:
        print(offence)
    for rule, count in Counter(offence.rule for offence in offences).most_common():
        print(f"{count:6} {rule}")


if __name__ == "__main__":
    main(sys.argv[1:])

"""Prints the offences of files and folders, of all of the repository by default, and counts each rule."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping

from tests.architecture.prose import lists


def main(arguments: list[str]) -> None:
    """Prints the offences below the paths among the arguments; `--shrink` takes mended ones out of the lists."""
    if "--shrink" in arguments:
        listed = lists.read_lists()
        lists.write(lists.shrink(listed, lists.entries(lists.offences())))
        print(f"{_total(listed) - _total(lists.read_lists())} entries taken out, {_total(lists.read_lists())} left")
        return
    offences = lists.offences(arguments)
    for offence in offences:
        print(offence)
    for rule, count in Counter(offence.rule for offence in offences).most_common():
        print(f"{count:6} {rule}")


def _total(area_lists: Mapping[str, Counter[str]]) -> int:
    return sum(counts.total() for counts in area_lists.values())


if __name__ == "__main__":
    main(sys.argv[1:])

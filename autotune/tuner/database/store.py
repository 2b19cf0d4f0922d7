"""Entries of several files: looked up, merged, and written as lines that a person can review."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from autotune.tuner.database.entry import DatabaseError, Entry, Place, kind_of, place_of
from autotune.tuner.database.likeness import distance, signature
from search_space import strict_json
from search_space.files import replacing
from search_space.workloads import Workload


class ScheduleDatabase:
    """Entries, of each place and machine the fastest.

    Args:
        entries: in any order.
    """

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self._places: dict[Place, dict[str, Entry]] = {}  # of each place an entry a machine
        self._like: dict[tuple[object, ...], list[Entry]] | None = None
        for entry in entries:
            self._add(entry)

    def __len__(self) -> int:
        return sum(map(len, self._places.values()))

    def __iter__(self) -> Iterator[Entry]:
        """By the workload's key, then the rest of the place, then the machine: files of equal entries are equal."""
        return (
            self._places[place][machine] for place in sorted(self._places) for machine in sorted(self._places[place])
        )

    @staticmethod
    def read(path: Path, check: bool = True) -> ScheduleDatabase:
        """The entries of a file, a line each.

        Args:
            path: of the file.
            check: whether every workload is made, a millisecond each, to see that it can be; otherwise that is seen
                when it is asked for.

        Raises:
            DatabaseError: a file that cannot be read, or a line that is no entry; says which.
        """
        found = []
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise DatabaseError(f"{path}: a database of schedules must be a readable file, but: {error}") from None
        for number, line in enumerate(lines, 1):
            if line.strip():
                try:
                    entry = Entry.from_json(_object(line))
                    if check:
                        entry.check_workload()
                    found.append(entry)
                except ValueError as error:
                    raise DatabaseError(f"{path}: line {number}: {error}") from None
        return ScheduleDatabase(found)

    def write(self, path: Path) -> None:
        """Writes all entries, or leaves the file as it was."""
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as partial, partial.open("w") as file:
            file.writelines(f"{entry.to_line()}\n" for entry in self)

    def merged(self, others: Iterable[ScheduleDatabase]) -> ScheduleDatabase:
        """The entries of all: of each place and machine the fastest."""
        return ScheduleDatabase(entry for one in (self, *others) for entry in one)

    def exact(self, place: Place, machine: str = "") -> list[Entry]:
        """Entries of a place, those of `machine` first, then by their seconds."""
        return sorted(self._places.get(place, {}).values(), key=lambda e: (e.machine != machine, e.seconds))

    def nearest(self, workload: Workload, target: str, lanes: int, threads: int, cache: str, most: int) -> list[Entry]:
        """At most so many entries of other places, of workloads of the same kind, the most alike first.

        Those of the same number of threads come before others that are as alike; the same workload on other threads or
        with other caches before all.
        """
        here, described = place_of(workload, target, lanes, threads, cache), workload.to_json()
        if self._like is None:
            self._like = {}
            for entry in self:
                self._like.setdefault((kind_of(entry.target), entry.lanes, *signature(entry.described)), []).append(
                    entry
                )
        others = self._like.get((kind_of(target), lanes, *signature(described)), [])
        ranked = sorted(
            (distance(described, entry.described), abs(entry.threads - threads), place)
            for place, entry in enumerate(others)
            if entry.place != here
        )
        return [others[place] for _, _, place in ranked[:most]]

    def _add(self, entry: Entry) -> None:
        of_place = self._places.setdefault(entry.place, {})
        known = of_place.get(entry.machine)
        if known is None or entry.seconds < known.seconds:
            of_place[entry.machine] = entry


def _object(line: str) -> object:
    """Reads a line of a database's file.

    Raises:
        DatabaseError: it is no JSON.
    """
    try:
        return strict_json.loads(line)
    except ValueError as error:
        raise DatabaseError(f"an entry must be a JSON object, but {error}") from None

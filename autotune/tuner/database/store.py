"""Databases of entries: lookup, merging, and files of lines that a person can review."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from autotune.tuner.database.entry import DatabaseError, Entry, EntryKey, make_entry_key, target_kind
from autotune.tuner.database.similarity import distance, signature
from search_space import strict_json
from search_space.files import replacing
from search_space.workloads import Workload


class ScheduleDatabase:
    """Entries, the fastest of each place and machine.

    Args:
        entries: entries in any order.
    """

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self._entries: dict[EntryKey, dict[str, Entry]] = {}  # place -> machine -> entry
        self._like: dict[tuple[object, ...], list[Entry]] | None = None
        for entry in entries:
            self._add(entry)

    def __len__(self) -> int:
        return sum(map(len, self._entries.values()))

    def __iter__(self) -> Iterator[Entry]:
        """Iterates by workload key, rest of the place, then machine: files of equal entries are equal."""
        return (
            self._entries[place][machine] for place in sorted(self._entries) for machine in sorted(self._entries[place])
        )

    @staticmethod
    def read(path: Path, check: bool = True) -> ScheduleDatabase:
        """Reads the entries of a file, one per line.

        Args:
            path: path of the file.
            check: whether to make every workload, which takes a millisecond each, to validate it; otherwise it is
                validated on first use.

        Raises:
            DatabaseError: the file cannot be read, or a line is no entry; the message names it.
        """
        entries = []
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
                    entries.append(entry)
                except ValueError as error:
                    raise DatabaseError(f"{path}: line {number}: {error}") from None
        return ScheduleDatabase(entries)

    def write(self, path: Path) -> None:
        """Writes all entries atomically."""
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as partial, partial.open("w") as file:
            file.writelines(f"{entry.to_line()}\n" for entry in self)

    def merge(self, others: Iterable[ScheduleDatabase]) -> ScheduleDatabase:
        """Merges databases: keeps the fastest entry of each place and machine."""
        return ScheduleDatabase(entry for one in (self, *others) for entry in one)

    def exact(self, key: EntryKey, machine: str = "") -> list[Entry]:
        """Lists the entries of a place, those of `machine` first, then by their seconds."""
        return sorted(self._entries.get(key, {}).values(), key=lambda e: (e.machine != machine, e.seconds))

    def nearest(self, workload: Workload, target: str, lanes: int, threads: int, cache: str, most: int) -> list[Entry]:
        """Lists at most so many entries of other places, of workloads of the same kind, the nearest first.

        At equal distance, entries of the nearest number of threads come first; the same workload on other threads or
        with other caches comes before all others.
        """
        here, described = make_entry_key(workload, target, lanes, threads, cache), workload.to_json()
        if self._like is None:
            self._like = {}
            for entry in self:
                self._like.setdefault(
                    (target_kind(entry.target), entry.lanes, *signature(entry.workload_json)), []
                ).append(entry)
        others = self._like.get((target_kind(target), lanes, *signature(described)), [])
        ranked = sorted(
            (distance(described, entry.workload_json), abs(entry.threads - threads), number)
            for number, entry in enumerate(others)
            if entry.lookup_key != here
        )
        return [others[number] for _, _, number in ranked[:most]]

    def _add(self, entry: Entry) -> None:
        of_place = self._entries.setdefault(entry.lookup_key, {})
        known = of_place.get(entry.machine)
        if known is None or entry.seconds < known.seconds:
            of_place[entry.machine] = entry


def _object(line: str) -> object:
    """Reads a line of a database's file.

    Raises:
        DatabaseError: the line is no JSON.
    """
    try:
        return strict_json.loads(line)
    except ValueError as error:
        raise DatabaseError(f"an entry must be a JSON object, but {error}") from None

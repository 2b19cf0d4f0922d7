"""Database over a records file: best-of and history for a workload and target, append, merge.

The index in memory holds keys, latencies and file offsets; the records themselves stay on disk.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Iterable, Iterator
from sys import intern
from types import TracebackType
from typing import NamedTuple, Self

from measure.errors import RecordError
from measure.journal import Journal
from measure.record import Record

log = logging.getLogger(__name__)


class _Entry(NamedTuple):
    offset: int  # bytes
    line: int  # from 1
    workload_key: str
    target: str
    threads: int
    cache: str
    seconds: float  # NaN for a failure


class Database:
    """Records of one file, which other files can be merged into and other processes may append to at the same time.

    What is asked for is answered from the records that were there on opening, and those appended here since.

    Args:
        path: the JSON-lines file; made empty where it does not exist, unless `readonly`.
        readonly: read only, and leave a torn last line as it is.

    Attributes:
        repaired: what was done about a torn last line, one sentence, the latest; None where there was none.

    Raises:
        RecordError: the file cannot be opened, or a whole line of it is not a record of this schema.
    """

    def __init__(self, path: str | os.PathLike[str], readonly: bool = False) -> None:
        self._journal = Journal(path, _is_record, readonly)
        self.path = self._journal.path
        self.repaired: str | None = None
        self._report()
        self._entries: list[_Entry] = []
        self._measured: set[tuple[str, str, str, str, int]] = set()
        self._targets: dict[str, int] = {}
        try:
            for number, offset, line in self._journal.lines():
                self._index(Record.from_line(line, f"{self.path}:{number}"), offset, number)
        except RecordError:
            self.close()
            raise

    def append(self, record: Record) -> None:
        """Writes one record through to the disk.

        Raises:
            FullError: there is no room for it; the file is as it was.
        """
        number, offset = self._journal.append(record.to_line())
        self._report()
        self._index(record, offset, number)

    def best(
        self, workload_key: str, target: str, *, threads: int | None = None, cache: str | None = None
    ) -> Record | None:
        """Fastest measured record of a workload on a target; None where there is none.

        Latencies of unlike `threads` or `cache` do not compare: give both where the file holds several.
        """
        entries = [
            entry for entry in self._matching(workload_key, target, threads, cache) if entry.seconds == entry.seconds
        ]
        return self._load(min(entries, key=lambda entry: entry.seconds)) if entries else None

    def records(self, workload_key: str | None = None, target: str | None = None) -> Iterator[Record]:
        """Yields the records, failures included, in the order of the file; None matches all."""
        for entry in list(self._matching(workload_key, target, None, None)):
            yield self._load(entry)

    def has(self, workload_key: str, target: str, trace_key: str, cache: str, threads: int | None = None) -> bool:
        """Whether this candidate was tried in this cache state, failures included; None: with any threads."""
        return (workload_key, target, trace_key, cache, threads or 0) in self._measured

    def check_compatible(self, *targets: str) -> None:
        """Refuses a file that holds records of another target than those to go on with.

        Raises:
            RecordError: names the first such record.
        """
        for other, line in self._targets.items():
            if other not in targets:
                raise RecordError(
                    f"{self.path}:{line}: `target` must be the one that the run is resumed with, "
                    f"{' or '.join(map(repr, targets))}, but got target={other!r}"
                )

    @property
    def targets(self) -> tuple[str, ...]:
        """Names of the targets that the file holds records of."""
        return tuple(self._targets)

    def close(self) -> None:
        """Closes the file."""
        self._journal.close()

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Record]:
        return self.records()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _report(self) -> None:
        if self._journal.repaired != self.repaired:
            self.repaired = self._journal.repaired
            log.warning(self.repaired)

    def _matching(
        self, workload_key: str | None, target: str | None, threads: int | None, cache: str | None
    ) -> Iterator[_Entry]:
        for entry in self._entries:
            if (
                (workload_key is None or entry.workload_key == workload_key)
                and (target is None or entry.target == target)
                and (threads is None or entry.threads == threads)
                and (cache is None or entry.cache == cache)
            ):
                yield entry

    def _load(self, entry: _Entry) -> Record:
        return Record.from_line(self._journal.line_at(entry.offset), f"{self.path}:{entry.line}")

    def _index(self, record: Record, offset: int, number: int) -> None:
        workload_key, target, cache = intern(record.workload_key), intern(record.target), intern(record.cache)
        seconds = record.seconds if record.ok else float("nan")
        self._entries.append(_Entry(offset, number, workload_key, target, record.threads, cache, seconds))
        self._targets.setdefault(target, number)
        for threads in (0, record.threads):  # 0: asked for with any number of threads
            self._measured.add((workload_key, target, record.trace_key, cache, threads))


def merge(paths: Iterable[str | os.PathLike[str]], into: str | os.PathLike[str]) -> int:
    """Appends the records of `paths` to the file `into`, each measurement once.

    Two measurements of one candidate are both kept; the same measurement found twice is not.

    Returns:
        How many records were added.

    Raises:
        RecordError: a file that cannot be read; nothing of any file has been added then.
    """
    sources = [Database(path, readonly=True) for path in paths]
    with Database(into) as merged:
        seen = {_fingerprint(record) for record in merged}
        added = 0
        for source in sources:
            with source:
                for record in source:
                    if (mark := _fingerprint(record)) not in seen:
                        seen.add(mark)
                        merged.append(record)
                        added += 1
    return added


def _fingerprint(record: Record) -> bytes:
    return hashlib.blake2b(record.to_line(), digest_size=16).digest()


def _is_record(line: bytes) -> bool:
    try:
        Record.from_line(line)
    except RecordError:
        return False
    return True

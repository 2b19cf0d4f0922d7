"""Database over a records file: history for a workload and target, append, merge.

The index in memory holds keys and file offsets; the records themselves stay on disk.
"""

from __future__ import annotations

import hashlib
import logging
import os
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from measure.closing import Closing
from measure.errors import BadRecordError, FullError, OutcomeError, RecordError
from measure.journal import Journal
from measure.record import Place, Record, is_whole

_SHOWN = 3
"""Refused lines that are reported one by one."""

log = logging.getLogger(__name__)


class Database(Closing):
    """Records of one file, which other files can be merged into and other processes may append to at the same time.

    What is asked for is answered from the records that were there on opening, and those appended here since. A record
    that is damaged or cannot be true is left out, and its line as it is.

    Args:
        path: the JSON-lines file; made empty where it does not exist, unless `readonly`.
        readonly: read only, and leave a torn last line as it is.

    Attributes:
        repaired: what was done about a torn last line, one sentence, the latest; None where there was none.
        refused: a sentence for each record of the file that is left out, with its line number.

    Raises:
        RecordError: the file cannot be opened, or a line of it is not meant to be a record of this schema; nothing has
            been written to it then.
    """

    def __init__(self, path: str | os.PathLike[str], readonly: bool = False) -> None:
        self._journal = Journal(path, is_whole, readonly)
        self.path = self._journal.path
        self.repaired: str | None = None
        self.refused: list[str] = []
        self._reader = self._journal.reader()
        self._families: dict[tuple[str, str], int] = {}  # workload key, target -> number
        self._offsets = array("q")  # of each record its offset in bytes,
        self._lines = array("q")  # the number of its line,
        self._kinds = array("i")  # and the number of its family
        self._targets: dict[str, int] = {}
        try:
            for number, offset, record in records_in(self._journal, self.refused):
                self._index(record, offset, number)
            self._journal.heal()
        except RecordError:
            self.close()
            raise
        self._report()
        for sentence in summarised(self.refused):
            log.warning(sentence)

    def append(self, record: Record) -> Record:
        """Writes one record through to the disk.

        Returns:
            The record, which knows where it stands now.

        Raises:
            FullError: there is no room for it; the file is as it was.
            RecordError: it cannot be true, see `Record.check`; the file is as it was.
        """
        (placed,) = self.extend([record])
        return placed

    def extend(self, records: Sequence[Record]) -> list[Record]:
        """Writes records through to the disk at once: the disk takes as long for many as for one.

        Returns:
            The records, which know where they stand now.

        Raises:
            FullError: there is no room for one of them; those before it are in the file.
            RecordError: one of them cannot be true, see `Record.check`; the file is as it was.
        """
        if not records:
            return []
        try:
            for record in records:
                record.check()
        except OutcomeError as error:
            raise RecordError(f"`records` must be true to be kept in {self.path}, but {error}") from error
        try:
            places = self._journal.append([record.to_line() for record in records])
        except FullError:
            if len(records) == 1:
                raise
            return [self.append(record) for record in records]
        self._report()
        for record, (number, offset) in zip(records, places, strict=True):
            self._index(record, offset, number)
        return [
            replace(record, place=Place(self._reader, offset, number))
            for record, (number, offset) in zip(records, places, strict=True)
        ]

    def records(self, workload_key: str | None = None, target: str | None = None) -> Iterator[Record]:
        """Yields the records, failures included, in the order of the file; None matches all."""
        wanted = {
            number
            for (key, name), number in self._families.items()
            if workload_key in (None, key) and target in (None, name)
        }
        for place in [place for place, number in enumerate(self._kinds) if number in wanted]:
            yield Record.at(Place(self._reader, self._offsets[place], self._lines[place]))

    @property
    def notes(self) -> list[str]:
        """What whoever uses the file should know of it, a sentence each."""
        return [*([self.repaired] if self.repaired else []), *summarised(self.refused)]

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
        return len(self._offsets)

    def __iter__(self) -> Iterator[Record]:
        return self.records()

    def _report(self) -> None:
        if self._journal.repaired != self.repaired:
            self.repaired = self._journal.repaired
            log.warning(self.repaired)

    def _index(self, record: Record, offset: int, number: int) -> None:
        family = record.workload_key, record.target
        self._offsets.append(offset)
        self._lines.append(number)
        self._kinds.append(self._families.setdefault(family, len(self._families)))
        self._targets.setdefault(record.target, number)


def records_in(journal: Journal, refused: list[str]) -> Iterator[tuple[int, int, Record]]:
    """Yields (line number from 1, offset in bytes, record) of a records file; blank lines are nothing.

    Args:
        journal: of the file.
        refused: gets a sentence for each record that is left out, as it is damaged or cannot be true.

    Raises:
        RecordError: a line that is not meant to be a record of this schema.
    """
    for number, offset, line in journal.lines():
        if line.strip():
            try:
                record = Record.from_line(line, f"{journal.path}:{number}")
            except BadRecordError as error:
                refused.append(str(error))
                continue
            yield number, offset, record


def summarised(refused: Sequence[str]) -> list[str]:
    """Sentences on records that were left out, the first ones each and the others together."""
    shown = [f"{sentence}; the record is left out" for sentence in refused[:_SHOWN]]
    more = len(refused) - len(shown)
    return [*shown, f"{more} more records are left out as these are"] if more else shown


def merge(paths: Iterable[str | os.PathLike[str]], into: str | os.PathLike[str]) -> int:
    """Appends the records of `paths` to the file `into`, each measurement once.

    Two measurements of one candidate are both kept; the same measurement found twice is not, and neither are records
    that are left out of their files.

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

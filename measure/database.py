"""Database over a records file: reads the history of a workload and target, appends and merges.

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
from measure.record import LinePosition, Record, is_whole
from search_space.former_names import FormerAttribute

_SHOWN_SENTENCES = 3
"""Number of refused lines that are reported one by one."""

log = logging.getLogger(__name__)


class Database(Closing):
    """Records of one file, which other files can be merged into and other processes may append to at the same time.

    Queries see the records that were there on opening, and the records appended through this object since. A record
    that is damaged or cannot be true is left out, and its line stays as it is.

    Args:
        path: path of the JSON-lines file; created unless it exists or `readonly` is set.
        readonly: whether to only read, and leave a torn last line as it is.

    Attributes:
        last_repair: sentence on the latest repair of a torn last line; None if there was no repair.
        refusals: a sentence for each record of the file that is left out, with its line number.

    Raises:
        RecordError: the file cannot be opened, or a line is not meant to be a record of this schema; the file is
            unchanged.
    """

    refused = FormerAttribute("refusals")

    def __init__(self, path: str | os.PathLike[str], readonly: bool = False) -> None:
        self._journal = Journal(path, is_whole, readonly)
        self.path = self._journal.path
        self.last_repair: str | None = None
        self.refusals: list[str] = []
        self._reader = self._journal.reader()
        self._families: dict[tuple[str, str], int] = {}  # workload key, target -> number
        self._offsets = array("q")  # offset of each record in bytes,
        self._lines = array("q")  # number of its line,
        self._kinds = array("i")  # number of its family
        self._targets: dict[str, int] = {}
        try:
            for number, offset, record in records_in(self._journal, self.refusals):
                self._index(record, offset, number)
            self._journal.heal()
        except RecordError:
            self.close()
            raise
        self._report()
        for sentence in summarise_refusals(self.refusals):
            log.warning(sentence)

    def append(self, record: Record) -> Record:
        """Writes one record through to the disk.

        Returns:
            The record with its position in the file.

        Raises:
            FullError: the disk is full; the file is unchanged.
            RecordError: the record cannot be true, see `Record.check`; the file is unchanged.
        """
        (placed,) = self.extend([record])
        return placed

    def extend(self, records: Sequence[Record]) -> list[Record]:
        """Writes records through to the disk at once: syncing many takes as long as syncing one.

        Returns:
            The records with their positions in the file.

        Raises:
            FullError: the disk is full; records before the first that did not fit are in the file.
            RecordError: a record cannot be true, see `Record.check`; the file is unchanged.
        """
        if not records:
            return []
        try:
            for record in records:
                record.check()
        except OutcomeError as error:
            raise RecordError(f"`records` must be true to be kept in {self.path}, but {error}") from error
        try:
            positions = self._journal.append([record.to_line() for record in records])
        except FullError:
            if len(records) == 1:
                raise
            return [self.append(record) for record in records]
        self._report()
        for record, (number, offset) in zip(records, positions, strict=True):
            self._index(record, offset, number)
        return [
            replace(record, position=LinePosition(self._reader, offset, number))
            for record, (number, offset) in zip(records, positions, strict=True)
        ]

    def records(self, workload_key: str | None = None, target: str | None = None) -> Iterator[Record]:
        """Yields the records, failures included, in the order of the file; None matches all."""
        wanted = {
            number
            for (key, name), number in self._families.items()
            if workload_key in (None, key) and target in (None, name)
        }
        for row in [row for row, number in enumerate(self._kinds) if number in wanted]:
            yield Record.at(LinePosition(self._reader, self._offsets[row], self._lines[row]))

    @property
    def notes(self) -> list[str]:
        """Sentences that the user of the file should read."""
        return [*([self.last_repair] if self.last_repair else []), *summarise_refusals(self.refusals)]

    def check_compatible(self, *targets: str) -> None:
        """Refuses a file with records of targets other than those of the run that is to be resumed.

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
        if self._journal.last_repair != self.last_repair:
            self.last_repair = self._journal.last_repair
            log.warning(self.last_repair)

    def _index(self, record: Record, offset: int, number: int) -> None:
        family = record.workload_key, record.target
        self._offsets.append(offset)
        self._lines.append(number)
        self._kinds.append(self._families.setdefault(family, len(self._families)))
        self._targets.setdefault(record.target, number)


def records_in(journal: Journal, refusals: list[str]) -> Iterator[tuple[int, int, Record]]:
    """Yields (line number from 1, offset in bytes, record) of a records file; skips blank lines.

    Args:
        journal: journal of the file.
        refusals: list that gets a sentence for each record left out because it is damaged or cannot be true.

    Raises:
        RecordError: a line is not meant to be a record of this schema.
    """
    for number, offset, line in journal.lines():
        if line.strip():
            try:
                record = Record.from_line(line, f"{journal.path}:{number}")
            except BadRecordError as error:
                refusals.append(str(error))
                continue
            yield number, offset, record


def summarise_refusals(refusals: Sequence[str]) -> list[str]:
    """Lists sentences on records that were left out: the first few one by one, the rest as a count."""
    shown = [f"{sentence}; the record is left out" for sentence in refusals[:_SHOWN_SENTENCES]]
    more = len(refusals) - len(shown)
    return [*shown, f"{more} more records are left out as these are"] if more else shown


def merge(paths: Iterable[str | os.PathLike[str]], into: str | os.PathLike[str]) -> int:
    """Appends the records of `paths` to the file `into`, each measurement once.

    Two measurements of one candidate are both kept. Copies of one measurement are added once; records that their files
    leave out are not added.

    Returns:
        Number of added records.

    Raises:
        RecordError: a file cannot be read; nothing of any file has been added then.
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

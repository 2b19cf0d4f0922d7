"""A sequence of records in little memory: a trace with its steps takes kilobytes, and a run may have 100,000 trials."""

from __future__ import annotations

import zlib
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import overload

import numpy as np
from numpy.typing import NDArray

from measure.journal import LineReader
from measure.record import LinePosition, Record

_LEVEL = 3  # of zlib, from 1, the fastest, to 9
_RAW = -15  # neither header nor checksum
_IN_MEMORY = -1  # in place of an index in `_readers`


class RecordLog(Sequence[Record]):
    """Records in order; those in a file are read again on access, others are kept compressed.

    Args:
        records: initial records.

    Attributes:
        errors: number of records by error class, `ok` included.
    """

    def __init__(self, records: Iterable[Record] = ()) -> None:
        self.errors: Counter[str] = Counter()
        self._seconds = array("d")
        self._offsets = array("q")  # in bytes; of a record in memory its index in `_packed`
        self._lines = array("q")
        self._sources = array("h")  # index in `_readers`, or `_IN_MEMORY`
        self._readers: list[LineReader] = []
        self._packed_records: list[bytes] = []
        self._sample = b""  # a line like all others: as a dictionary of the compression it makes them short
        for record in records:
            self.append(record)

    def append(self, record: Record) -> None:
        """Adds a record at the end."""
        if record.position is None:
            self._sources.append(_IN_MEMORY)
            self._offsets.append(len(self._packed_records))
            self._lines.append(0)
            self._packed_records.append(self._pack(record.to_line()))
        else:
            self._sources.append(self._source(record.position.reader))
            self._offsets.append(record.position.offset)
            self._lines.append(record.position.line)
        self._seconds.append(record.seconds if record.ok else float("nan"))
        self.errors[str(record.error)] += 1

    @property
    def seconds(self) -> NDArray[np.float64]:
        """(records,) latencies; NaN for a failure."""
        return np.array(self._seconds)

    def fastest(self, count: int) -> list[Record]:
        """Lists the `count` records with the lowest latencies, fastest first; of equal ones the earlier first."""
        seconds = self.seconds
        order = np.argsort(seconds, kind="stable")[: min(count, int(np.isfinite(seconds).sum()))]
        return [self._load(int(place)) for place in order]

    def copy(self) -> RecordLog:
        """Copies the log; records appended to one are not in the other."""
        other = RecordLog()
        other.errors = self.errors.copy()
        other._seconds, other._offsets, other._sources = self._seconds[:], self._offsets[:], self._sources[:]
        other._lines, other._readers = self._lines[:], self._readers[:]
        other._packed_records, other._sample = self._packed_records[:], self._sample
        return other

    def __len__(self) -> int:
        return len(self._offsets)

    @overload
    def __getitem__(self, index: int) -> Record: ...

    @overload
    def __getitem__(self, index: slice) -> list[Record]: ...

    def __getitem__(self, index: int | slice) -> Record | list[Record]:
        places = range(len(self))[index]
        return self._load(places) if isinstance(places, int) else [self._load(place) for place in places]

    def __iter__(self) -> Iterator[Record]:
        return map(self._load, range(len(self)))

    def _load(self, index: int) -> Record:
        source, offset = self._sources[index], self._offsets[index]
        if source == _IN_MEMORY:
            line = zlib.decompressobj(_RAW, self._sample).decompress(self._packed_records[offset])
            return Record.from_line(line, checked=True)
        return Record.at(LinePosition(self._readers[source], offset, self._lines[index]))

    def _pack(self, line: bytes) -> bytes:
        self._sample = self._sample or line
        packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _RAW, zdict=self._sample)
        return packer.compress(line) + packer.flush()

    def _source(self, reader: LineReader) -> int:
        if reader not in self._readers:
            self._readers.append(reader)
        return self._readers.index(reader)

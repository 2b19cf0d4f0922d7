"""Races: who was at an element last, and whether a barrier came in between."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from search_space.ir.stmt import Buffer
from targets.buffers import elements as sizes

_MANY = -2
_NOBODY = -1


class RaceError(RuntimeError):
    """Two threads reach one element, one of them writing, with no barrier in between."""


class DivergenceError(RuntimeError):
    """A barrier that not all threads of a block reach."""


class CopyError(RuntimeError):
    """Copies by the TMA unit that are not begun, awaited or waited for as they must be."""


@dataclass
class Clock:
    """Counts barriers; it never goes back, over all blocks of a launch. Groups of asynchronous copies are counted too.

    Attributes:
        now: barriers so far.
        group: group of the copies that begin now.
        last_arrived: the last group that is known to have arrived.
        fences: fences so far, which show writes to tensor cores; fenced: the last group that had arrived before.
        products: group of the products of warpgroups that begin now; multiplied: the last that has been waited for.
    """

    now: int = 1
    group: int = 1
    last_arrived: int = 0
    fences: int = 0
    last_fenced: int = 0
    products: int = 1
    last_multiplied: int = 0


class Shadow:
    """The last accesses to each element of one buffer.

    Args:
        buffer: buffer of the elements.
        size: elements of all blocks that run side by side.
        clock: clock of the launch.
        block: threads of a block along x, y and z.

    Threads are numbered across blocks; those of one block are ordered by barriers, those of different ones by nothing.
    """

    def __init__(self, buffer: Buffer, size: int, clock: Clock, block: tuple[int, int, int]) -> None:
        self.buffer, self.clock, self.block = buffer, clock, block
        self.threads = int(np.prod(block))
        self.writer = np.full(size, _NOBODY, np.int64)
        self.write_times = np.zeros(size, np.int64)
        self.reader = np.full(size, _NOBODY, np.int64)
        self.read = np.zeros(size, np.int64)
        self.copy_groups: NDArray[np.int64] | None = None  # group of the copy that fills an element
        self.moving: NDArray[np.bool_] | None = None  # filled by the TMA unit, and not waited for
        self.factors: NDArray[np.int64] | None = None  # group of the products that read an element by themselves
        self.fences = np.full(size if buffer.swizzled else 0, -1, np.int64)  # so many before an element was written

    def reads(self, elements: NDArray[np.int64], threads: NDArray[np.int64]) -> None:
        """Threads read elements, side by side.

        Raises:
            RaceError: another thread has written one of them.
        """
        writer = self.writer[elements]
        clash = (
            (writer != _NOBODY)
            & (writer != threads)
            & self._find_unordered(writer, self.write_times[elements], threads)
        )
        if clash.any():
            self._report(elements, threads, writer, clash, "reads", "writes")
        self._require_arrival(elements, threads)
        fresh = self.read[elements] != self.clock.now
        first = elements[fresh]
        self.reader[first] = threads[fresh]
        self.read[first] = self.clock.now
        others = self.reader[elements] != threads
        self.reader[elements[others]] = _MANY

    def copies(self, elements: NDArray[np.int64]) -> None:
        """Elements are filled by asynchronous copies of the group that is being made."""
        if self.copy_groups is None:
            self.copy_groups = np.zeros(self.writer.size, np.int64)
        self.copy_groups[elements] = self.clock.group

    def moves(self, elements: NDArray[np.int64]) -> None:
        """Elements are filled by the TMA unit from now on."""
        if self.moving is None:
            self.moving = np.zeros(self.writer.size, bool)
        self.moving[elements] = True

    def lands(self, elements: NDArray[np.int64]) -> None:
        """Marks elements from the TMA unit as arrived, for all threads and tensor cores."""
        assert self.moving is not None
        self.moving[elements] = False
        self.writer[elements] = _NOBODY
        self.write_times[elements] = 0
        self.fences[elements] = -1

    def multiplies(self, elements: NDArray[np.int64]) -> None:
        """Products of warpgroups begin to read elements.

        Raises:
            RaceError: a thread has written one of them, with no barrier or no fence since.
        """
        writer = self.writer[elements]
        warpgroup = np.full(elements.size, _MANY, np.int64)
        clash = (writer != _NOBODY) & (self.write_times[elements] == self.clock.now)
        if clash.any():
            self._report(elements, warpgroup, writer, clash, "reads", "writes")
        self._require_arrival(elements, warpgroup)
        unseen = self.fences[elements] >= self.clock.fences
        if self.copy_groups is not None:
            unseen |= self.copy_groups[elements] > self.clock.last_fenced
        if unseen.any():
            at = int(np.flatnonzero(unseen)[0])
            raise RaceError(
                f"what tensor cores read must be fenced after it was written, but "
                f"{self._thread(int(writer[at]))} writes {self._element(int(elements[at]))} with no fence since"
            )
        if self.factors is None:
            self.factors = np.zeros(self.writer.size, np.int64)
        self.factors[elements] = self.clock.products
        self.read_together(elements)

    def read_together(self, elements: NDArray[np.int64]) -> None:
        """Elements are being read by warpgroups now."""
        self.reader[elements] = _MANY
        self.read[elements] = self.clock.now

    def _require_arrival(self, elements: NDArray[np.int64], threads: NDArray[np.int64]) -> None:
        if self.moving is not None and self.moving[elements].any():
            self._report(elements, threads, self.writer[elements], self.moving[elements], "uses", "still copies")
        if self.copy_groups is None:
            return
        early = self.copy_groups[elements] > self.clock.last_arrived
        if early.any():
            self._report(elements, threads, self.writer[elements], early, "uses", "still copies")

    def writes(
        self, elements: NDArray[np.int64], threads: NDArray[np.int64], old: NDArray[Any], new: NDArray[Any]
    ) -> None:
        """Threads write values over old ones, side by side.

        Raises:
            RaceError: another thread has read one of them, or has written something else.
        """
        self._require_arrival(elements, threads)
        if self.factors is not None:
            early = self.factors[elements] > self.clock.last_multiplied
            if early.any():
                self._report(elements, threads, np.full(elements.size, _MANY), early, "writes", "still multiplies")
        if self.fences.size:
            self.fences[elements] = self.clock.fences
        reader = self.reader[elements]
        clash = (reader != _NOBODY) & (reader != threads) & self._find_unordered(reader, self.read[elements], threads)
        if clash.any():
            self._report(elements, threads, reader, clash, "writes", "reads")
        differs = _bits(old) != _bits(new)
        writer = self.writer[elements]
        clash = differs & (writer != _NOBODY) & (writer != threads)
        clash &= self._find_unordered(writer, self.write_times[elements], threads)
        if clash.any():
            self._report(elements, threads, writer, clash, "writes", "writes")
        self.writer[elements] = threads
        self.write_times[elements] = self.clock.now
        winner = self.writer[elements]
        lost = winner != threads
        if lost.any():
            order = np.argsort(elements, kind="stable")
            same = elements[order][1:] == elements[order][:-1]
            unequal = same & (_bits(new)[order][1:] != _bits(new)[order][:-1])
            if unequal.any():
                clash = np.zeros(elements.size, bool)
                clash[order[1:][unequal]] = True
                other = np.zeros(elements.size, np.int64)
                other[order[1:]] = threads[order[:-1]]
                self._report(elements, threads, other, clash, "writes", "writes")

    def _find_unordered(
        self, other: NDArray[np.int64], when: NDArray[np.int64], threads: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        """Tells where no barrier of a block lies between another thread's access and now."""
        elsewhere = (other >= 0) & (other // self.threads != threads // self.threads)
        return np.asarray((when == self.clock.now) | elsewhere)

    def _report(
        self,
        elements: NDArray[np.int64],
        threads: NDArray[np.int64],
        others: NDArray[np.int64],
        clash: NDArray[np.bool_],
        does: str,
        did: str,
    ) -> None:
        at = int(np.flatnonzero(clash)[0])
        element = self._element(int(elements[at]))
        raise RaceError(
            f"two threads must not reach an element with no barrier in between, one of them writing, but "
            f"{self._thread(int(threads[at]))} {does} and {self._thread(int(others[at]))} {did} {element}"
        )

    def _element(self, index: int) -> str:
        """The name of an element of one of the blocks."""
        return f"{self.buffer.name}[{', '.join(map(str, self._indices(index)))}]"

    def _indices(self, index: int) -> list[int]:
        index = exchange(index) if self.buffer.swizzled else index
        rest, out = index % sizes(self.buffer), []
        for stride in (int(s.value) for s in self.buffer.strides):
            out.append(rest // stride)
            rest %= stride
        return out

    def _thread(self, thread: int) -> str:
        if thread < 0:
            return "more than one other thread"
        x, y, _ = self.block
        local = thread % self.threads
        return f"thread ({local % x}, {local // x % y}, {local // (x * y)}) of block {thread // self.threads}"


def exchange(index: Any) -> Any:
    """Returns where elements of a swizzled buffer lie, and which element is at a place: parts of 8 in rows of 64."""
    return index ^ (index >> 3 & 56)


def _bits(values: NDArray[Any]) -> NDArray[Any]:
    """Returns the bits as integers, so that NaN equals itself."""
    kind = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}[values.dtype.itemsize]
    return np.ascontiguousarray(values).view(kind)

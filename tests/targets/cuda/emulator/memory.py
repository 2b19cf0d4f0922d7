"""Memory of an emulated launch: of the device, of each block and of each thread, for many threads at a time.

Values have one row a block and one column a thread, and a single row or column where all agree.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from search_space.dtypes import numpy_dtype
from search_space.ir.expr import BOOL, FLOATS
from search_space.ir.stmt import Buffer
from targets.buffers import constant_shape, elements
from tests.targets.cuda.emulator.races import Clock, RaceError, Shadow, exchange

Index = int | NDArray[np.int64]
Mask = NDArray[np.bool_] | None


class Lanes:
    """Threads that run side by side: all of some blocks.

    Attributes:
        blocks, threads: rows and columns.
        number: number of each thread across all blocks of the launch.
        rows, columns: indices that broadcast.
    """

    def __init__(self, blocks: NDArray[np.int64], threads: int) -> None:
        self.blocks, self.threads = blocks.size, threads
        self.rows = np.arange(blocks.size)[:, None]
        self.columns = np.arange(threads)[None, :]
        self.number = blocks[:, None] * threads + self.columns
        self.shape = (blocks.size, threads)

    def select(self, mask: Mask) -> NDArray[np.bool_]:
        return np.ones(self.shape, bool) if mask is None else np.broadcast_to(mask, self.shape)


class Memory:
    """One buffer.

    Args:
        buffer: buffer to emulate.
        lanes: threads that reach it.
        shadow: finds races; None where there can be none.
    """

    def __init__(self, buffer: Buffer, lanes: Lanes, shadow: Shadow | None = None) -> None:
        self.buffer, self.lanes, self.shadow = buffer, lanes, shadow
        self.size = elements(buffer)
        self.extents = constant_shape(buffer)
        self.strides = tuple(int(s.value) for s in buffer.strides)

    def flat_index(self, indices: tuple[Index, ...], mask: Mask) -> Index:
        """The element at indices, 0 for threads that are masked out.

        Raises:
            IndexError: an index outside of the buffer.
        """
        place: Index = 0
        for index, extent, stride in zip(indices, self.extents, self.strides, strict=True):
            if isinstance(index, np.ndarray):
                if mask is not None:
                    index = np.where(mask, index, 0)
                low, high = int(index.min()), int(index.max())
            else:
                low = high = int(index)
            if (low < 0 or high >= extent) and (mask is None or mask.any()):
                raise IndexError(
                    f"an index of {self.buffer.name} must lie in shape {self.extents}, but got {low} to {high}"
                )
            place = place + index * stride
        if self.buffer.swizzled:
            place = exchange(place)
        return place if mask is None or mask.any() else 0

    def read(self, indices: tuple[Index, ...], mask: Mask) -> Any:
        """Elements at indices, for every thread."""
        place = self.flat_index(indices, mask)
        if self.shadow is not None:
            at, chosen = self._flat(place), self.lanes.select(mask)
            self.shadow.reads(at[chosen], self.lanes.number[chosen])
        return self.get(place)

    def write(self, indices: tuple[Index, ...], values: Any, mask: Mask, copied: bool = False) -> None:
        """Sets elements, all threads at once; `copied`: by copies that arrive later."""
        place = self.flat_index(indices, mask)
        if self.shadow is not None:
            at, chosen = self._flat(place), self.lanes.select(mask)
            at, threads = at[chosen], self.lanes.number[chosen]
            new = np.broadcast_to(np.asarray(values, numpy_dtype(self.buffer.dtype)), self.lanes.shape)[chosen]
            self.shadow.writes(at, threads, self.flat()[at], new)
            if copied:
                self.shadow.copies(at)
        self.put(place, values, mask)

    def get(self, index: Index) -> Any:
        raise NotImplementedError

    def put(self, index: Index, values: Any, mask: Mask) -> None:
        raise NotImplementedError

    def flat(self) -> NDArray[Any]:
        """All elements of all blocks, where races are looked for."""
        raise NotImplementedError

    def _flat(self, index: Index) -> NDArray[np.int64]:
        """Returns where in `flat` each thread is."""
        raise NotImplementedError


class DeviceMemory(Memory):
    """A buffer that all blocks see."""

    def __init__(self, buffer: Buffer, lanes: Lanes, data: NDArray[Any], shadow: Shadow | None = None) -> None:
        super().__init__(buffer, lanes, shadow)
        self.data = data

    def get(self, index: Index) -> Any:
        return self.data[index]

    def put(self, index: Index, values: Any, mask: Mask) -> None:
        chosen = self.lanes.select(mask)
        at = np.broadcast_to(np.asarray(index), self.lanes.shape)[chosen]
        self.data[at] = np.broadcast_to(values, self.lanes.shape)[chosen]

    def flat(self) -> NDArray[Any]:
        return self.data

    def _flat(self, index: Index) -> NDArray[np.int64]:
        return np.broadcast_to(np.asarray(index, np.int64), self.lanes.shape)


class SharedMemory(Memory):
    """A buffer of each block, undefined at first."""

    def __init__(self, buffer: Buffer, lanes: Lanes, clock: Clock, block: tuple[int, int, int]) -> None:
        size = elements(buffer)
        shadow = Shadow(buffer, lanes.blocks * size, clock, block)
        super().__init__(buffer, lanes, shadow)
        self.data = make_undefined((lanes.blocks, size), buffer.dtype)

    def get(self, index: Index) -> Any:
        if not isinstance(index, np.ndarray):
            return self.data[:, index : index + 1]
        if index.shape[0] == 1:
            return self.data[:, index[0]]
        return self.data[self.lanes.rows, index]

    def put(self, index: Index, values: Any, mask: Mask) -> None:
        chosen = self.lanes.select(mask)
        at = self._flat(index)[chosen]
        self.data.reshape(-1)[at] = np.broadcast_to(values, self.lanes.shape)[chosen]

    def flat(self) -> NDArray[Any]:
        return self.data.reshape(-1)

    def _flat(self, index: Index) -> NDArray[np.int64]:
        return np.broadcast_to(self.lanes.rows * self.size + np.asarray(index, np.int64), self.lanes.shape)


class PrivateMemory(Memory):
    """A buffer of each thread, undefined at first."""

    def __init__(self, buffer: Buffer, lanes: Lanes) -> None:
        super().__init__(buffer, lanes)
        self.data = make_undefined((self.size, *lanes.shape), buffer.dtype)

    def get(self, index: Index) -> Any:
        if not isinstance(index, np.ndarray):
            return self.data[index]
        return self.data[index, self.lanes.rows, self.lanes.columns]

    def put(self, index: Index, values: Any, mask: Mask) -> None:
        if not isinstance(index, np.ndarray):
            if mask is None:
                self.data[index] = values
            else:
                np.copyto(self.data[index], values, where=np.broadcast_to(mask, self.lanes.shape))
            return
        chosen = self.lanes.select(mask)
        rows, columns = np.nonzero(chosen)
        at = np.broadcast_to(index, self.lanes.shape)[chosen]
        self.data[at, rows, columns] = np.broadcast_to(values, self.lanes.shape)[chosen]


def make_undefined(shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
    """Contents that nobody has written: NaN, or a number that shows."""
    return np.full(shape, np.nan if dtype in FLOATS else 77 % (2 if dtype == BOOL else 128), numpy_dtype(dtype))


class SumsMemory(PrivateMemory):
    """Registers that products add to.

    Attributes:
        group: group of the products that were started last.
        is_fenced: whether nobody but products has touched them since the last fence.
    """

    def __init__(self, buffer: Buffer, lanes: Lanes, clock: Clock) -> None:
        super().__init__(buffer, lanes)
        self.clock, self.group, self.is_fenced = clock, 0, False

    def get(self, index: Index) -> NDArray[np.float32]:
        self._require_settled("read")
        held: NDArray[np.float32] = super().get(index)
        return held

    def put(self, index: Index, values: NDArray[np.float32], mask: Mask) -> None:
        self._require_settled("written")
        self.is_fenced = False
        super().put(index, values, mask)

    def _require_settled(self, what: str) -> None:
        if self.group > self.clock.last_multiplied:
            raise RaceError(f"{self.buffer.name} must not be {what} before the products that add to it are waited for")

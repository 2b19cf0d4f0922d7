"""Constants of an executable's steps in the layout of their kernels, packed as soon as kernels are known."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from autotune.graph.ir import Array, Graph
from autotune.graph.partition import Group
from measure.host import allowed_cores
from search_space.dtypes import numpy_dtype
from targets.arrays import round_up
from targets.base import Module, Packer, Target

AHEAD = 4
"""Calls whose constants are packed ahead of their turn: packing all at once would take as much memory again."""


@dataclass(frozen=True)
class Call:
    """Call of a kernel.

    Attributes:
        graph: graph with the call's inputs.
        group: nodes that it computes.
        module: module of the kernel.
    """

    graph: Graph
    group: Group
    module: Module

    @property
    def packing_key(self) -> tuple[object, ...]:
        """Key that calls share whose constants are packed to the same bytes."""
        held = self.graph.constants
        arrays = [held.get(name) for name in self.group.inputs]
        places = [None if a is None else (a.ctypes.data, a.shape, a.strides, a.dtype.str) for a in arrays]
        return self.module.name, *places


class Constants:
    """Packer of constants for a target; constants that are packed ahead wait until `of` is called.

    Args:
        target: target of the kernels.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        self._library: object = None
        self._packers: dict[str, Packer | None] = {}  # module name -> packer
        self._packed_arrays: dict[tuple[str, Group], Mapping[str, Array]] = {}
        self._stream: Iterator[Mapping[str, Array]] | None = None

    def ahead(self, call: Call) -> None:
        """Packs the constants of a call before `of` is called for it."""
        self._packed_arrays[call.module.name, call.group] = self._pack(call)

    @contextmanager
    def all_ahead(self, calls: Sequence[Call], library: object) -> Iterator[None]:
        """Packs all calls by a thread on each core; within the context `of` is called for them in this order.

        The threads end with the context. A generator that owned them would be closed by the garbage collector, which
        may run where `threading` holds the lock that ending a thread takes.

        Args:
            calls: calls of the executable, each `Call.packing_key` once.
            library: the loaded library of the kernels; None: kernels are not linked yet.
        """
        self._library = library
        for call in calls:
            self._packer(call.module)
        with ThreadPoolExecutor(len(allowed_cores()), "autotune-packing") as pool:
            self._stream = self._pack_ahead(calls, pool)
            try:
                yield
            finally:
                self._stream = None
                pool.shutdown(cancel_futures=True)

    def of(self, call: Call) -> Mapping[str, Array]:
        """Returns the constants of a call that are packed at compile time, by the parameter's name."""
        if self._stream is not None:
            return next(self._stream)
        made = self._packed_arrays.pop((call.module.name, call.group), None)
        return self._pack(call) if made is None else made

    def _pack_ahead(self, calls: Iterable[Call], pool: ThreadPoolExecutor) -> Iterator[Mapping[str, Array]]:
        """Yields the constants of each call, in order, packed a few calls ahead by the threads of a pool."""
        waiting: deque[Future[Mapping[str, Array]]] = deque()
        for call in calls:
            if len(waiting) > AHEAD:
                yield waiting.popleft().result()
            waiting.append(pool.submit(self._pack, call))
        while waiting:
            yield waiting.popleft().result()

    def _packer(self, module: Module) -> Packer | None:
        if module.name not in self._packers:
            self._packers[module.name] = self._target.packer(module, self._library)
        return self._packers[module.name]

    def _pack(self, call: Call) -> Mapping[str, Array]:
        module, constants = call.module, call.graph.constants
        if not any(p.constant or p.packed_from for p in module.parameters):
            return {}
        packer = self._packer(module)
        if packer is None:
            return {}
        arrays = [
            np.asarray(constants[name])
            if name in constants and not source.extents
            else np.zeros(source.shape, numpy_dtype(source.dtype))
            for source, name in zip(module.sources, call.group.inputs, strict=True)
        ]
        return packer(arrays)


COPIES = 5
"""Copies of a network's constants that fit into the room for weights whose kernels are not built yet.

Winograd's transform of a 3x3 window to 6x6 makes four. Untouched pages of the room take no memory.
"""


def room(graphs: Iterable[Graph], calls: Sequence[Call] | None, spacing: int) -> int:
    """Bounds the bytes of an executable's weights from above, as if no two were equal.

    Args:
        graphs: graphs whose constants calls may read unpacked.
        calls: calls of the executable; None: their kernels are not built, and the bound is a guess.
        spacing: bytes at whose multiples constants begin.
    """
    sizes = [array.nbytes for graph in graphs for array in graph.constants.values()]
    if calls is None:
        sizes *= COPIES
    else:
        made = [p for call in calls for p in call.module.parameters if p.constant or p.packed_from]
        sizes += [math.prod(p.shape) * numpy_dtype(p.dtype).itemsize for p in made]
    return sum(round_up(max(1, nbytes), spacing) for nbytes in sizes)

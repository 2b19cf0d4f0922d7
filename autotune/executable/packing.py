"""Constants of a network's calls as their kernels take them, packed side by side where all kernels are there."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from autotune.graph.ir import Array, Graph
from autotune.graph.partition import Group
from measure.host import allowed_cores
from search_space.dtypes import numpy_dtype
from targets.base import Module, Packer

AHEAD = 4
"""Calls whose constants are packed before their turn: all of them at once would take as much memory again."""


@dataclass(frozen=True)
class Call:
    """A call of a kernel.

    Attributes:
        graph: that has the call's inputs.
        group: what is computed.
        module: of the kernel.
        packer: of the module; None where the target packs when the network is loaded.
    """

    graph: Graph
    group: Group
    module: Module
    packer: Packer | None

    def constants(self) -> Mapping[str, Array]:
        """Constants by name of the parameter; none where there is no packer."""
        module, held = self.module, self.graph.constants
        if self.packer is None or not any(p.constant or p.packed_from for p in module.parameters):
            return {}
        return self.packer(
            [
                np.asarray(held[name]) if name in held else np.zeros(source.shape, numpy_dtype(source.dtype))
                for source, name in zip(module.sources, self.group.inputs, strict=True)
            ]
        )


def packed_ahead(calls: Iterable[Call]) -> Iterator[Mapping[str, Array]]:
    """Constants of each call, in order, packed by a thread on each core, a few calls ahead."""
    waiting: deque[Future[Mapping[str, Array]]] = deque()
    with ThreadPoolExecutor(len(allowed_cores()), "autotune-packing") as pool:
        for call in calls:
            if len(waiting) > AHEAD:
                yield waiting.popleft().result()
            waiting.append(pool.submit(call.constants))
        while waiting:
            yield waiting.popleft().result()


def room(graphs: Iterable[Graph], calls: Sequence[Call], spacing: int) -> int:
    """Bytes that the weights of an executable take at most, where equal ones lie apart.

    Args:
        graphs: whose constants calls may read as they are.
        calls: of the executable.
        spacing: bytes at whose multiples constants begin.
    """
    made = [p for call in calls for p in call.module.parameters if p.constant or p.packed_from]
    sizes = [math.prod(p.shape) * numpy_dtype(p.dtype).itemsize for p in made]
    sizes += [array.nbytes for graph in graphs for array in graph.constants.values()]
    return sum(-(-max(1, nbytes) // spacing) * spacing for nbytes in sizes)

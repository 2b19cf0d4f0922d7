"""Memory of the values that a forward graph saves for its backward graph, which the next step uses again.

Callers hold none of these values. Memory that is allocated anew is cleared by the system, here all of it in each step.
So all saved values of a call lie in one block, which is free again once none of them is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.fx import GraphModule, Node

from autotune.graph.ir import Array
from targets.arrays import allocate_aligned, round_up

FOR_BACKWARD = "autotune_saved"
"""Key in the facts of a node whose value a forward graph saves, and does not return."""
_ALIGNMENT = 64

Description = tuple[Sequence[int], Sequence[int], torch.dtype]
"""Shape, strides and type of a tensor."""


def mark_saved(forward: GraphModule, outputs: int) -> None:
    """Marks the values in memory that a forward graph saves, and that none of its results lies in.

    Args:
        forward: graph that returns results, then saved values.
        outputs: number of results.
    """
    results: Any = forward.graph.output_node().args[0]
    returned, saved = ({_storage(node) for node in part} for part in (results[:outputs], results[outputs:]))
    for node in forward.graph.nodes:
        if _storage(node) in saved - returned - {None}:
            node.meta[FOR_BACKWARD] = True


def is_saved(node: Node) -> bool:
    """Tells whether a value is saved for a backward graph alone."""
    return bool(node.meta.get(FOR_BACKWARD, False))


def _storage(node: Any) -> int | None:
    """Returns the identity of the memory of a node's example value; None if it is no tensor."""
    value = node.meta.get("val") if isinstance(node, Node) else None
    return value.untyped_storage()._cdata if isinstance(value, torch.Tensor) else None


class SavedBlocks:
    """Blocks of memory, of which one waits for the next call.

    Args:
        tensors: tensors of a block.
    """

    def __init__(self, tensors: Sequence[Description]) -> None:
        self._layout: list[tuple[Description, int, int]] = []
        self._size, self._free = 0, list[Array]()
        for shape, strides, dtype in tensors:
            extent = 1 + sum((n - 1) * step for n, step in zip(shape, strides, strict=True)) if all(shape) else 0
            self._layout.append(((shape, strides, dtype), self._size, extent))
            self._size += round_up(extent * dtype.itemsize, _ALIGNMENT)

    def take(self) -> list[torch.Tensor]:
        """Returns tensors in a block that is theirs until the last of them is freed; other threads may take, too.

        Each tensor has a storage of its own: who copies or stores one with its storage takes no other.
        """
        try:
            block = self._free.pop()
        except IndexError:
            block = allocate_aligned((self._size,), "uint8", np.empty)
        owned = np.asarray(_Lease(block, self._free))
        return [_lay_out(owned, *part) for part in self._layout]


def _lay_out(block: Array, description: Description, begin: int, extent: int) -> torch.Tensor:
    """Makes a tensor of so many elements in a block, from a byte on."""
    shape, strides, dtype = description
    if not extent:
        return torch.empty_strided(shape, strides, dtype=dtype, device="cpu")
    return torch.frombuffer(block, dtype=dtype, count=extent, offset=begin).as_strided(shape, strides)


class _Lease:
    """Owner of a block as NumPy sees it: the block is free when no array refers to its owner."""

    def __init__(self, block: Array, free: list[Array]) -> None:
        self._block, self._free = block, free
        self.__array_interface__ = block.__array_interface__

    def __del__(self) -> None:
        if not self._free:
            self._free.append(self._block)

"""Shapes of calls: keys of the graphs compiled for each shape, and a cache of the last used ones."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Generic, TypeVar

import torch
from torch.fx import GraphModule

from autotune.graph.frontends.aten.sizes import SYMBOLS

_LOG = logging.getLogger(__name__)
T = TypeVar("T")


def list_size_inputs(module: GraphModule) -> tuple[int, ...]:
    """Lists indices of the inputs that decide a graph's sizes: numbers, and tensors of any shape."""
    placeholders = module.graph.find_nodes(op="placeholder")
    return tuple(place for place, node in enumerate(placeholders) if _open(node.meta.get("val")))


def shape_key(inputs: Sequence[Any], indices: Sequence[int]) -> Hashable:
    """Returns the key of a compiled graph: the numbers among some inputs, and the tensors' shapes and strides."""
    return tuple(
        (given.shape, given.stride()) if isinstance(given, torch.Tensor) else given
        for given in (inputs[place] for place in indices)
    )


def _open(value: Any) -> bool:
    """Tells whether a placeholder's value is a symbol, or a tensor whose extents or strides are."""
    found = (*value.shape, *value.stride()) if isinstance(value, torch.Tensor) else (value,)
    return any(isinstance(each, SYMBOLS) for each in found)


class Recent(Generic[T]):
    """Values of the last used keys; threads may ask at the same time.

    Args:
        most: number of keys that are kept.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._entries: OrderedDict[Hashable, T] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, key: Hashable, make: Callable[[], T]) -> T:
        """Returns the value of a key; `make`, which must be quick, makes a missing one."""
        with self._lock:
            value = self._entries.get(key)
            if value is None:
                if len(self._entries) == self._most:
                    self._entries.popitem(last=False)
                    _LOG.warning(
                        "a graph of any shape has come in more than %d shapes (option `shapes`): the one that was used "
                        "least recently is dropped, and compiled anew where it comes again",
                        self._most,
                    )
                value = self._entries[key] = make()
            self._entries.move_to_end(key)
            return value

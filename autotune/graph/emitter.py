"""Nodes of one operator or gradient: added to a graph under its name, with constants and changes of shape."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from autotune.graph.ir import Array, GraphBuilder
from search_space.dtypes import NARROW


class NodeEmitter(ABC):
    """An adder of nodes to a graph, all named after one operator."""

    @property
    @abstractmethod
    def builder(self) -> GraphBuilder:
        """Builder of the graph."""

    @property
    @abstractmethod
    def label(self) -> str:
        """Name of the nodes, as far as it is free."""

    def add(self, op: str, inputs: Sequence[str], **attrs: Any) -> str:
        """Adds a node to the graph and returns the name of its value."""
        return self.builder.add(op, inputs, self.label, **attrs)

    def constant(self, array: Array) -> str:
        """Adds a constant to the graph and returns its name."""
        return self.builder.constant(array, f"{self.label}_constant")

    def scalar(self, value: float, like: str) -> str:
        """Adds a constant of one element, of the dtype in which operations on `like` compute."""
        kind = self.builder.type(like)
        number = np.asarray(value, "float32" if kind.dtype in NARROW else kind.dtype)
        return self.constant(number.reshape(1 if kind.shape else ()))

    def shape(self, value: str) -> tuple[int, ...]:
        """Returns the shape of a value of the graph."""
        return self.builder.type(value).shape

    def reshape(self, value: str, shape: tuple[int, ...]) -> str:
        """Reshapes a value, if it has another shape."""
        return value if self.shape(value) == shape else self.add("reshape", [value], shape=shape)

    def broadcast(self, value: str, shape: tuple[int, ...]) -> str:
        """Broadcasts a value to a shape, if it has another one."""
        if math.prod(self.shape(value)) == math.prod(shape):
            return self.reshape(value, shape)
        return self.add("broadcast_to", [value], shape=shape)

    def cast(self, value: str, dtype: str) -> str:
        """Casts a value to a dtype, if it has another one."""
        return value if self.builder.type(value).dtype == dtype else self.add("cast", [value], dtype=dtype)


@dataclass(frozen=True)
class LabelledEmitter(NodeEmitter):
    """An adder of nodes to a builder, under a label."""

    target: GraphBuilder
    name: str

    @property
    def builder(self) -> GraphBuilder:
        """Builder of the graph."""
        return self.target

    @property
    def label(self) -> str:
        """Name of the nodes, as far as it is free."""
        return self.name


def to_last(rank: int) -> tuple[int, ...]:
    """Returns the axes of the transposition from (n, c, spatial...) to (n, spatial..., c)."""
    return (0, *range(2, rank), 1)


def to_first(rank: int) -> tuple[int, ...]:
    """Returns the axes of the transposition from (n, spatial..., c) to (n, c, spatial...)."""
    return (0, rank - 1, *range(1, rank - 1))


def channels_last(emitter: NodeEmitter, value: str) -> str:
    """Transposes a value to channels last."""
    rank = len(emitter.shape(value))
    return emitter.add("transpose", [value], axes=to_last(rank)) if rank > 2 else value


def channels_first(emitter: NodeEmitter, value: str) -> str:
    """Transposes a value to ONNX's order, channels first."""
    rank = len(emitter.shape(value))
    return emitter.add("transpose", [value], axes=to_first(rank)) if rank > 2 else value

"""Calls of operators on their way to nodes of a graph, whichever front end reads them.

A call names its inputs and outputs as its model does. `Call` and its `Context` say what graph values these names stand
for, so that parts of an import serve ONNX and ATen alike.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from autotune.graph.errors import ModelError
from autotune.graph.ir import Array, Builder, TensorType
from autotune.graph.limits import Budget
from search_space.dtypes import NARROW

Result = str | Array
"""The graph's name of a value, or the array where it is known before the network runs."""


@dataclass
class Context:
    """A model on its way to a graph.

    Attributes:
        builder: of the graph.
        values: name in the model → name in the graph.
        arrays: name in the model → the value of what is known before the network runs.
        opset: version of ONNX's operator set whose rules hold.
        failed: name in the model → why a value that depends on constants alone is not known.
        prefix: of names in the graph: of a function or a graph within a node.
        budget: what the import may make, one for the whole model.
    """

    builder: Builder
    values: MutableMapping[str, str]
    arrays: MutableMapping[str, Array]
    opset: int
    failed: dict[str, str] = field(default_factory=dict)
    prefix: str = ""
    budget: Budget = field(default_factory=Budget)

    def is_known(self, name: str) -> bool:
        """Whether there is a value of that name so far, in the graph or as an array."""
        return name in self.values or name in self.arrays

    def value(self, name: str) -> str:
        """The graph's name of a value; constants are added when they are first read."""
        if not self.is_known(name):
            if name in self.failed:
                raise ModelError(self.failed[name])
            raise ModelError(f"values that are read must be first outputs of supported nodes, but got {name!r}")
        if name not in self.values:
            self.values[name] = self.builder.constant(self.arrays[name], name)
        return self.values[name]

    def result(self, name: str) -> Result:
        """An array where it is known, else the graph's name of a value."""
        return self.arrays[name] if name in self.arrays else self.value(name)

    def bind(self, name: str, result: Result) -> None:
        """Gives a value a name."""
        if isinstance(result, str):
            self.values[name] = result
        else:
            self.arrays[name] = result


@dataclass(frozen=True)
class Call:
    """A node of a model, in the words of ONNX: its operator, inputs by place, and attributes.

    Attributes:
        context: of the model.
        op: its operator.
        title: the node's name, for messages.
        inputs: names in the model, "" where an optional input is left out.
        outputs: names in the model.
        attrs: attributes as given.
    """

    context: Context
    op: str
    title: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: Mapping[str, Any]

    def has(self, place: int) -> bool:
        """Whether an input is given."""
        return place < len(self.inputs) and bool(self.inputs[place])

    def value(self, place: int) -> str:
        """The graph's name of an input."""
        self.require(self.has(place), f"must have input {place}", f"{len(self.inputs)} inputs")
        return self.context.value(self.inputs[place])

    def type(self, place: int) -> TensorType:
        """Type of an input."""
        name = self.inputs[place]
        array = self.context.arrays.get(name)
        if array is not None and name not in self.context.values:
            return TensorType(array.shape, str(array.dtype))
        return self.context.builder.type(self.value(place))

    def array(self, place: int) -> Array | None:
        """An input whose elements are known; None where it is computed when the network runs."""
        return self.context.arrays.get(self.inputs[place]) if self.has(place) else None

    def known(self, place: int, what: str) -> Array:
        """An input that must be known.

        Raises:
            ModelError: it is not.
        """
        array = self.array(place)
        if array is None and self.inputs[place] in self.context.failed:
            raise ModelError(self.context.failed[self.inputs[place]])
        self.require(array is not None, f"must have a constant {what}", self.inputs[place])
        assert array is not None
        return array

    def ints(self, name: str, place: int | None = None, default: Sequence[int] | None = None) -> tuple[int, ...] | None:
        """Integers that are an attribute in old operator sets, a constant input in new ones."""
        if name in self.attrs:
            value = self.attrs[name]
            return tuple(value) if isinstance(value, Sequence) else (int(value),)
        if place is not None and self.has(place):
            return tuple(int(v) for v in self.known(place, name).reshape(-1))
        return None if default is None else tuple(default)

    def add(self, op: str, inputs: Sequence[str], **attrs: Any) -> str:
        """Adds a node to the graph; the name of its value."""
        return self.context.builder.add(op, inputs, f"{self.context.prefix}{self.outputs[0]}", **attrs)

    def constant(self, array: Array) -> str:
        """Adds a constant to the graph; its name."""
        return self.context.builder.constant(array, f"{self.context.prefix}{self.outputs[0]}_constant")

    def scalar(self, value: float, like: str) -> str:
        """A constant of one element, of the dtype that operations compute in on `like`."""
        kind = self.context.builder.type(like)
        number = np.asarray(value, "float32" if kind.dtype in NARROW else kind.dtype)
        return self.constant(number.reshape(1 if kind.shape else ()))

    def shape(self, value: str) -> tuple[int, ...]:
        """Shape of a value of the graph."""
        return self.context.builder.type(value).shape

    def reshaped(self, value: str, shape: tuple[int, ...]) -> str:
        """A value in a shape, which it may have already."""
        return value if self.shape(value) == shape else self.add("reshape", [value], shape=shape)

    def take(self, kind: TensorType) -> None:
        """Counts an array that is about to be made, see `Budget.take`."""
        self.context.budget.take(f"{self.op} node {self.title!r}", kind)

    def broadcast(self, value: str, shape: tuple[int, ...]) -> str:
        """A value brought to a shape, which it may have already."""
        if math.prod(self.shape(value)) == math.prod(shape):
            return self.reshaped(value, shape)
        return self.add("broadcast_to", [value], shape=shape)

    def cast(self, value: str, dtype: str) -> str:
        """A value in a type of elements, which it may have already."""
        return value if self.context.builder.type(value).dtype == dtype else self.add("cast", [value], dtype=dtype)

    def require(self, holds: bool, rule: str, got: object) -> None:
        """Raises a ModelError that states the rule and the value unless it holds."""
        if not holds:
            raise ModelError(f"{self.op} node {self.title!r} {rule}, but got {got}")


def to_last(rank: int) -> tuple[int, ...]:
    """Axes that bring (n, c, spatial...) to (n, spatial..., c)."""
    return (0, *range(2, rank), 1)


def to_first(rank: int) -> tuple[int, ...]:
    """Axes that bring (n, spatial..., c) to (n, c, spatial...)."""
    return (0, rank - 1, *range(1, rank - 1))


def channels_last(call: Call, value: str) -> str:
    """The value with its channels last."""
    rank = len(call.shape(value))
    return call.add("transpose", [value], axes=to_last(rank)) if rank > 2 else value


def channels_first(call: Call, value: str) -> str:
    """The value with its channels where ONNX has them."""
    rank = len(call.shape(value))
    return call.add("transpose", [value], axes=to_first(rank)) if rank > 2 else value

"""One node of an ONNX model while it is imported: its operands and attributes, and what it becomes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from autotune.graph.ir import Array, Builder, GraphError, TensorType
from autotune.graph.onnx_model import ModelError


class Unsupported(ModelError):
    """An operator, or a use of one, that graphs do not have."""


class Call:
    """A node with its operands.

    Attributes:
        op: its ONNX name.
        opset: version of the operator set.

    Args:
        builder: of the graph.
        proto: the node.
        opset: version of the operator set.
        values: ONNX name → name in the graph, of all that is computed.
        known: ONNX name → array, of all that is constant.
        placed: ONNX name → name in the graph, of the constants added so far; shared by the calls of a model.
    """

    def __init__(
        self,
        builder: Builder,
        proto: onnx.NodeProto,
        opset: int,
        values: Mapping[str, str],
        known: Mapping[str, Array],
        placed: dict[str, str],
    ) -> None:
        self.op = proto.op_type
        self.opset = opset
        self._builder = builder
        self._proto = proto
        self._values = values
        self._known = known
        self._attributes = {a.name: onnx.helper.get_attribute_value(a) for a in proto.attribute}
        self._placed = placed

    def __str__(self) -> str:
        return f"{self.op} node {self._proto.name or self.output!r}"

    @property
    def output(self) -> str:
        """Name of the first output."""
        return next((name for name in self._proto.output if name), "")

    @property
    def outputs(self) -> int:
        """How many outputs the node lists."""
        return len(self._proto.output)

    @property
    def count(self) -> int:
        """How many inputs the node lists."""
        return len(self._proto.input)

    def attr(self, name: str, default: Any = None) -> Any:
        """An attribute; texts decoded, lists as tuples."""
        value = self._attributes.get(name, default)
        if isinstance(value, bytes):
            return value.decode()
        return tuple(value) if isinstance(value, list) else value

    def has(self, place: int) -> bool:
        """Whether an optional input is given."""
        return place < self.count and bool(self._proto.input[place])

    def known(self, place: int) -> Array | None:
        """An input as an array where it is a constant."""
        return self._known.get(self._proto.input[place]) if self.has(place) else None

    def array(self, place: int, what: str) -> Array:
        """An input that must be a constant.

        Raises:
            Unsupported: it is computed, or an input of the model.
        """
        array = self.known(place)
        if array is None:
            raise Unsupported(f"`{what}` of {self} must be a constant, but got {self._proto.input[place]!r}")
        return array

    def integers(self, place: int, what: str) -> tuple[int, ...]:
        """A constant input as a tuple of integers."""
        return tuple(int(v) for v in self.array(place, what).reshape(-1))

    def value(self, place: int) -> str:
        """The graph's value of an input; a constant one is added to the graph."""
        name = self._proto.input[place]
        if name in self._known:
            if name not in self._placed:
                self._placed[name] = self.constant(self._known[name], name)
            return self._placed[name]
        return self._values[name]

    def values(self) -> list[str]:
        """Of every input."""
        return [self.value(place) for place in range(self.count)]

    def type(self, place: int = 0) -> TensorType:
        """Type of an input."""
        name = self._proto.input[place]
        if name in self._known:
            return TensorType(self._known[name].shape, str(self._known[name].dtype))
        return self._builder.type(self._values[name])

    def shape(self, place: int = 0) -> tuple[int, ...]:
        """Shape of an input."""
        return self.type(place).shape

    def type_of(self, value: str) -> TensorType:
        """Type of a value of the graph."""
        return self._builder.type(value)

    def array_of(self, value: str) -> Array | None:
        """The constant that a value of the graph is, or None."""
        return self._builder.array(value)

    def axis(self, value: int, rank: int) -> int:
        """An axis counted from the first of `rank`."""
        self.require(-rank <= value < rank, f"must have an axis of {rank}", f"axis={value}")
        return value % rank

    def add(self, op: str, *inputs: str, **attrs: Any) -> str:
        """Adds a node; the name of its value."""
        try:
            return self._builder.add(op, inputs, f"{self.output}/{op}", **attrs)
        except GraphError as error:
            raise Unsupported(f"{self} must be one that graphs have: {error}") from error

    def product(self, op: str, *inputs: str, **attrs: Any) -> str:
        """Adds a sum of products, which floats of 16 bits accumulate in 32; the value in the dtype of its input."""
        out, dtype = self.add(op, *inputs, **attrs), self.type_of(inputs[0]).dtype
        return self.add("cast", out, dtype=dtype) if dtype in ("float16", "bfloat16") else out

    def in_float32(self, op: str, value: str, *inputs: str, **attrs: Any) -> str:
        """Adds an operation that is of float32; one on floats of 16 bits is computed in 32 and rounded."""
        dtype = self.type_of(value).dtype
        if dtype not in ("float16", "bfloat16"):
            return self.add(op, value, *inputs, **attrs)
        return self.add("cast", self.add(op, self.add("cast", value, dtype="float32"), *inputs, **attrs), dtype=dtype)

    def constant(self, array: Array, name: str = "") -> str:
        """Adds a weight; the name of its value."""
        self.require(all(array.shape), "must read tensors that are not empty", f"shape={list(array.shape)}")
        return self._builder.constant(array, name or f"{self.output}/constant")

    def scalar(self, value: Any, like: str) -> str:
        """A constant of one element that broadcasts to the value `like`, in its dtype."""
        kind = self.type_of(like)
        return self.constant(np.full((1,) if kind.shape else (), value, kind.dtype))

    def require(self, holds: bool, rule: str, value: object) -> None:
        """Raises `Unsupported` with the rule and the value unless it holds."""
        if not holds:
            raise Unsupported(f"{self} {rule}, but got {value}")

    def reshape(self, value: str, shape: Sequence[int]) -> str:
        """The value in another shape; itself where that is its shape."""
        return value if self.type_of(value).shape == tuple(shape) else self.add("reshape", value, shape=tuple(shape))

    def transpose(self, value: str, axes: Sequence[int]) -> str:
        """The value with its axes in another order; itself where that is their order. Constants are moved at once."""
        if list(axes) == list(range(len(axes))):
            return value
        array = self.array_of(value)
        if array is not None:
            return self.constant(array.transpose(axes), f"{value}/transpose")
        return self.add("transpose", value, axes=tuple(axes))

    def channels_last(self, value: str) -> str:
        """(n, c, spatial...) → (n, spatial..., c)."""
        rank = len(self.type_of(value).shape)
        return self.transpose(value, (0, *range(2, rank), 1))

    def channels_first(self, value: str) -> str:
        """(n, spatial..., c) → (n, c, spatial...)."""
        rank = len(self.type_of(value).shape)
        return self.transpose(value, (0, rank - 1, *range(1, rank - 1)))

    def expand(self, value: str, shape: Sequence[int]) -> str:
        """The value broadcast to `shape`; itself where it has it."""
        return value if self.type_of(value).shape == tuple(shape) else self.add("expand", value, shape=tuple(shape))

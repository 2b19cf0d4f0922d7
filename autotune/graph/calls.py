"""Calls of operators on their way to nodes of a graph, for all front ends.

A call names its inputs and outputs as in the model. `Call` and `Context` map these names to values of the graph, so
that ONNX and ATen share parts of the import.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from autotune.graph.emitter import NodeEmitter
from autotune.graph.errors import UnsupportedModelError
from autotune.graph.ir import Array, GraphBuilder, TensorType
from autotune.graph.limits import Budget

Result = str | Array
"""Name of a value in the graph, or the array of a constant."""


@dataclass
class Context:
    """A model during its import.

    Attributes:
        builder: builder of the graph.
        values: name in the model → name in the graph.
        arrays: name in the model → array of a constant.
        opset: ONNX opset whose rules hold.
        failures: name in the model → reason why a value that depends on constants alone could not be computed.
        prefix: prefix of names in the graph, for a function or a subgraph.
        budget: limits of the import, shared by the whole model.
    """

    builder: GraphBuilder
    values: MutableMapping[str, str]
    arrays: MutableMapping[str, Array]
    opset: int
    failures: dict[str, str] = field(default_factory=dict)
    prefix: str = ""
    budget: Budget = field(default_factory=Budget)

    def is_known(self, name: str) -> bool:
        """Tells whether a value of that name exists so far, in the graph or as an array."""
        return name in self.values or name in self.arrays

    def value(self, name: str) -> str:
        """Returns the graph's name of a value; constants are added on their first read.

        Raises:
            UnsupportedModelError: the value does not exist.
        """
        if not self.is_known(name):
            if name in self.failures:
                raise UnsupportedModelError(self.failures[name])
            raise UnsupportedModelError(
                f"values that are read must be first outputs of supported nodes, but got {name!r}"
            )
        if name not in self.values:
            self.values[name] = self.builder.constant(self.arrays[name], name)
        return self.values[name]

    def result(self, name: str) -> Result:
        """Returns the array of a constant, or the graph's name of another value."""
        return self.arrays[name] if name in self.arrays else self.value(name)

    def bind(self, name: str, result: Result) -> None:
        """Assigns a name to a value."""
        if isinstance(result, str):
            self.values[name] = result
        else:
            self.arrays[name] = result


@dataclass(frozen=True)
class Call(NodeEmitter):
    """A node of a model in ONNX's form: its operator, positional inputs, and attributes.

    Attributes:
        context: context of the model.
        op: operator of the node.
        title: name of the node, for messages.
        inputs: names in the model, "" for omitted optional inputs.
        outputs: names in the model.
        attrs: attributes as written.
    """

    context: Context
    op: str
    title: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: Mapping[str, Any]

    def has(self, index: int) -> bool:
        """Tells whether an input is present."""
        return index < len(self.inputs) and bool(self.inputs[index])

    def value(self, index: int) -> str:
        """Returns the graph's name of an input."""
        self.require(self.has(index), f"must have input {index}", f"{len(self.inputs)} inputs")
        return self.context.value(self.inputs[index])

    def type(self, index: int) -> TensorType:
        """Returns the type of an input."""
        name = self.inputs[index]
        array = self.context.arrays.get(name)
        if array is not None and name not in self.context.values:
            return TensorType(array.shape, str(array.dtype))
        return self.context.builder.type(self.value(index))

    def array(self, index: int) -> Array | None:
        """Returns the array of a constant input; None if the input is computed at run time."""
        return self.context.arrays.get(self.inputs[index]) if self.has(index) else None

    def require_array(self, index: int, what: str) -> Array:
        """Returns the array of an input that must be constant.

        Raises:
            UnsupportedModelError: the input is not constant.
        """
        array = self.array(index)
        if array is None and self.inputs[index] in self.context.failures:
            raise UnsupportedModelError(self.context.failures[self.inputs[index]])
        self.require(array is not None, f"must have a constant {what}", self.inputs[index])
        assert array is not None
        return array

    def ints(self, name: str, index: int | None = None, default: Sequence[int] | None = None) -> tuple[int, ...] | None:
        """Returns integers that are an attribute in old opsets, and a constant input in new ones."""
        if name in self.attrs:
            value = self.attrs[name]
            return tuple(value) if isinstance(value, Sequence) else (int(value),)
        if index is not None and self.has(index):
            return tuple(int(v) for v in self.require_array(index, name).reshape(-1))
        return None if default is None else tuple(default)

    @property
    def builder(self) -> GraphBuilder:
        """Builder of the graph."""
        return self.context.builder

    @property
    def label(self) -> str:
        """Name of the nodes, as far as it is free."""
        return f"{self.context.prefix}{self.outputs[0]}"

    def take(self, kind: TensorType) -> None:
        """Counts an array that is about to be created, see `Budget.take`."""
        self.context.budget.take(f"{self.op} node {self.title!r}", kind)

    def require(self, holds: bool, rule: str, value: object) -> None:
        """Raises a UnsupportedModelError with the rule and the value unless the rule holds."""
        if not holds:
            raise UnsupportedModelError(f"{self.op} node {self.title!r} {rule}, but got {value}")

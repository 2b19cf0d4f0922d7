"""What converts which operator of ATen, and what it is given."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch.fx import Node

from autotune.graph.calls import Call, Context
from autotune.graph.errors import ModelError
from autotune.graph.frontends.aten.tensors import dtype_name, is_dense
from autotune.graph.ir import TensorType
from search_space.dtypes import BITS, NARROW, numpy_dtype

OPSET = 18
"""Of ONNX, whose rules the shared parts of the importers go by."""


@dataclass
class AtenContext(Context):
    """An FX graph on its way to a graph of ours; names are those of FX nodes.

    Attributes:
        parts: node → values of those of its outputs that are read, by their place.
        indices: values that are places of axes, and in which range PyTorch takes them.
    """

    parts: dict[str, dict[int, str]] = field(default_factory=dict)
    indices: list[tuple[str, range]] = field(default_factory=list)


@dataclass(frozen=True)
class AtenCall(Call):
    """One call of an operator.

    `inputs` has an entry for each argument of the operator's schema: the name of an FX node, "" for what is no tensor.

    Attributes:
        node: of the FX graph.
        given: argument → as it is given, or its default.
    """

    node: Node
    given: Mapping[str, Any]

    @classmethod
    def of(cls, context: Context, node: Node) -> AtenCall:
        """The call of a node whose target is an overload of ATen."""
        target: Any = node.target
        given: dict[str, Any] = {}
        for place, argument in enumerate(target._schema.arguments):
            if place < len(node.args) and not argument.kwarg_only:
                given[argument.name] = node.args[place]
            else:
                given[argument.name] = node.kwargs.get(argument.name, argument.default_value)
        inputs = tuple(value.name if isinstance(value, Node) else "" for value in given.values())
        return cls(context, name_of(target), node.name, inputs, (node.name,), {}, node, given)

    def __getitem__(self, argument: str) -> Any:
        """An argument by its name."""
        return self.given[argument]

    def check_outputs(self) -> None:
        """Holds what the call gives against what graphs can have.

        Raises:
            ModelError: it gives a tensor of another kind.
        """
        found = self.node.meta["val"]
        for place, value in enumerate(found if isinstance(found, (tuple, list)) else [found]):
            if isinstance(found, torch.Tensor) or self.reads(place):
                tensor_type(value, self.title)

    @property
    def result(self) -> TensorType:
        """Type of the output, or of the first of several."""
        found = self.node.meta["val"]
        return tensor_type(found if isinstance(found, torch.Tensor) else found[0], self.title)

    @property
    def computed(self) -> str:
        """The dtype that elements of the output are computed in."""
        dtype = self.result.dtype
        return "float32" if dtype in NARROW else dtype

    def operand(self, place: int, dtype: str) -> str:
        """A tensor or a number, to compute with in `dtype`; 16-bit floats are widened as they are read."""
        given = list(self.given.values())[place]
        wide = "float32" if dtype in NARROW else dtype
        if not isinstance(given, Node):
            self.require(isinstance(given, (int, float)), f"must have a number as input {place}", repr(given))
            return self.number(given, wide)
        value = self.value(place)
        same = self.context.builder.type(value).dtype
        return value if same == dtype or (same in NARROW and wide == "float32") else self.cast(value, wide)

    def number(self, value: float, dtype: str) -> str:
        """A constant of one element."""
        return self.constant(np.array(value).astype(numpy_dtype(dtype)))

    def values(self, argument: str) -> list[str]:
        """The graph's names of a list of tensors."""
        return [self.context.value(node.name) for node in self.given[argument]]

    def axes(self, argument: str = "dim", rank: int | None = None) -> tuple[int, ...]:
        """Axes that an argument names, from the beginning and in rising order; all of `rank` where it names none."""
        rank = len(self.type(0).shape) if rank is None else rank
        given = self.given[argument]
        named = [given] if isinstance(given, int) else list(given or range(rank))
        return tuple(sorted(axis % rank for axis in named)) if rank else ()

    def axis(self, argument: str = "dim") -> int:
        """An axis from the beginning."""
        rank = len(self.type(0).shape)
        self.require(rank > 0, "must have an axis", self.type(0))
        return int(self.given[argument]) % rank

    def require_same_type(self, *places: int) -> None:
        """Raises ModelError where tensors among the arguments are not of one type: PyTorch refuses such a call."""
        kinds = [self.type(place).dtype for place in places if self.inputs[place]]
        self.require(len(set(kinds)) == 1, "must have operands of one type", ", ".join(kinds))

    def require_parameters(self, *places: int) -> None:
        """Raises ModelError where parameters of a normalisation are of another type than PyTorch takes.

        They are of the data's type, or float32 beside 16-bit floats.
        """
        data, kinds = self.type(0).dtype, {self.type(place).dtype for place in places if self.inputs[place]}
        wide = {"float32"} if data in NARROW else {data}
        self.require(not kinds or kinds in ({data}, wide), f"must have parameters of {data}", ", ".join(sorted(kinds)))

    def require_inside(self, index: Node, extent: int, negative: bool = False) -> None:
        """Holds places of an axis against its extent: constants here, computed ones whenever the graph runs.

        Args:
            index: the places.
            extent: of the axis.
            negative: whether places may be counted from the end.

        Raises:
            ModelError: constant places of which one is outside.
        """
        inside = range(-extent if negative else 0, extent)
        array = self.context.arrays.get(index.name)
        if array is None:
            assert isinstance(self.context, AtenContext)
            self.context.indices.append((self.context.value(index.name), inside))
            return
        least, most = int(array.min()), int(array.max())
        known = inside.start <= least and most < inside.stop
        self.require(known, f"must have places of {inside.start} to {inside.stop - 1}", f"{least} to {most}")

    def shared(self, op: str, inputs: Sequence[str], **attrs: Any) -> Call:
        """The same call in ONNX's words, for the parts that both importers share; `inputs` are names of FX nodes.

        Numbers are those of ONNX's attributes, which are float32: workloads, and so records, are the same either way.
        """
        held = {name: float32(value) if isinstance(value, float) else value for name, value in attrs.items()}
        return Call(self.context, op, self.title, tuple(inputs), self.outputs, held)

    def reads(self, place: int) -> bool:
        """Whether an output of several is read."""
        return any(user.args[1] == place for user in self.node.users)


def float32(value: float) -> float:
    """The nearest number that float32 has."""
    return float(np.float32(value))


Converter = Callable[[AtenCall], "str | Sequence[str | None]"]
CONVERTERS: dict[str, Converter] = {}
"""Overload of ATen, `relu.default` → what adds its nodes and gives the name of its value, or of its values in order."""


def converts(*names: str) -> Callable[[Converter], Converter]:
    """Registers a function as the converter of overloads."""

    def register(converter: Converter) -> Converter:
        for name in names:
            assert name not in CONVERTERS, name
            CONVERTERS[name] = converter
        return converter

    return register


def name_of(target: Any) -> str:
    """An overload's name without `aten`; of what is no operator of ATen its whole name."""
    return str(target).removeprefix("aten.")


def tensor_type(value: Any, title: str) -> TensorType:
    """Type of a fake tensor.

    Raises:
        ModelError: no tensor of known extents and of a dtype that graphs have.
    """
    if not isinstance(value, torch.Tensor):
        raise ModelError(f"values must be tensors, but {title!r} gives {type(value).__name__}")
    if not is_dense(value) or value.device.type != "cpu":
        raise ModelError(f"tensors must be dense and on the CPU, but {title!r} is {value.layout} on {value.device}")
    if not all(isinstance(extent, int) for extent in value.shape):
        raise ModelError(f"shapes must be known before a network runs, but {title!r} is of {list(value.shape)}")
    if value.numel() == 0:
        raise ModelError(f"tensors must have elements, but {title!r} is of {list(value.shape)}")
    dtype = dtype_name(value.dtype)
    if dtype not in BITS:
        raise ModelError(f"tensors must be of {', '.join(BITS)}, but {title!r} is of {dtype}")
    return TensorType(tuple(value.shape), dtype)

"""Registry of converters of ATen operators, and the calls that they receive."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch.fx import Node

from autotune.graph.calls import Call, Context
from autotune.graph.errors import UnsupportedModelError
from autotune.graph.frontends.aten.tensors import dtype_name, is_dense
from autotune.graph.ir import TensorType
from search_space.dtypes import BITS, NARROW, numpy_dtype

OPSET = 18
"""ONNX opset whose rules the shared parts of the importers follow."""


@dataclass
class AtenContext(Context):
    """An FX graph during its conversion; names are those of FX nodes.

    Attributes:
        parts: node → values of its outputs that are read, by number.
        indices: values that index axes, and the range that PyTorch accepts.
        stops_gradients: whether `detach` becomes a `stop_gradient`, for a graph that is differentiated.
    """

    parts: dict[str, dict[int, str]] = field(default_factory=dict)
    indices: list[tuple[str, range]] = field(default_factory=list)
    stops_gradients: bool = False


@dataclass(frozen=True)
class AtenCall(Call):
    """A call of an ATen operator.

    `inputs` has an entry for each argument of the operator's schema: the name of an FX node; "" for other values.

    Attributes:
        node: node of the FX graph.
        arguments: value of each argument, as passed or by default.
    """

    node: Node
    arguments: Mapping[str, Any]

    @classmethod
    def of(cls, context: Context, node: Node) -> AtenCall:
        """Builds the call of a node whose target is an ATen overload."""
        target: Any = node.target
        values: dict[str, Any] = {}
        for place, argument in enumerate(target._schema.arguments):
            if place < len(node.args) and not argument.kwarg_only:
                values[argument.name] = node.args[place]
            else:
                values[argument.name] = node.kwargs.get(argument.name, argument.default_value)
        inputs = tuple(value.name if isinstance(value, Node) else "" for value in values.values())
        return cls(context, operator_name(target), node.name, inputs, (node.name,), {}, node, values)

    def __getitem__(self, argument: str) -> Any:
        """Returns an argument by its name."""
        return self.arguments[argument]

    def check_outputs(self) -> None:
        """Checks that graphs can represent the outputs of the call.

        Raises:
            UnsupportedModelError: an output that is read has a type that graphs lack.
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
    def compute_dtype(self) -> str:
        """Dtype in which elements of the output are computed."""
        dtype = self.result.dtype
        return "float32" if dtype in NARROW else dtype

    def operand(self, position: int, dtype: str) -> str:
        """Returns a tensor or number as an operand in `dtype`; 16-bit floats are widened as they are read."""
        argument = list(self.arguments.values())[position]
        wide = "float32" if dtype in NARROW else dtype
        if not isinstance(argument, Node):
            self.require(isinstance(argument, (int, float)), f"must have a number as input {position}", repr(argument))
            return self.number(argument, wide)
        value = self.value(position)
        same = self.context.builder.type(value).dtype
        return value if same == dtype or (same in NARROW and wide == "float32") else self.cast(value, wide)

    def number(self, value: float, dtype: str) -> str:
        """Adds a constant of one element."""
        return self.constant(np.array(value).astype(numpy_dtype(dtype)))

    def values(self, argument: str) -> list[str]:
        """Returns the graph's names of a list of tensors."""
        return [self.context.value(node.name) for node in self.arguments[argument]]

    def axes(self, argument: str = "dim", rank: int | None = None) -> tuple[int, ...]:
        """Returns the axes that an argument names, ascending and not negative; all of `rank` if it names none."""
        rank = len(self.type(0).shape) if rank is None else rank
        given = self.arguments[argument]
        named = [given] if isinstance(given, int) else list(given or range(rank))
        return tuple(sorted(axis % rank for axis in named)) if rank else ()

    def axis(self, argument: str = "dim") -> int:
        """Returns an axis as a number that is not negative."""
        rank = len(self.type(0).shape)
        self.require(rank > 0, "must have an axis", self.type(0))
        return int(self.arguments[argument]) % rank

    def require_same_type(self, *indices: int) -> None:
        """Raises UnsupportedModelError if tensor arguments differ in dtype, as PyTorch does."""
        kinds = [self.type(place).dtype for place in indices if self.inputs[place]]
        self.require(len(set(kinds)) == 1, "must have operands of one type", ", ".join(kinds))

    def require_parameters(self, *indices: int) -> None:
        """Raises UnsupportedModelError if parameters of a normalisation have a dtype that PyTorch rejects.

        They must have the data's dtype, or float32 beside 16-bit floats.
        """
        data, kinds = self.type(0).dtype, {self.type(place).dtype for place in indices if self.inputs[place]}
        wide = {"float32"} if data in NARROW else {data}
        self.require(not kinds or kinds in ({data}, wide), f"must have parameters of {data}", ", ".join(sorted(kinds)))

    def require_inside(self, index: Node, extent: int, negative: bool = False) -> None:
        """Checks indices of an axis against its extent: constants at import, computed ones on every run.

        Args:
            index: the indices.
            extent: extent of the axis.
            negative: whether indices may count from the end.

        Raises:
            UnsupportedModelError: a constant index is outside.
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
        """Returns the call in ONNX's form, for the code that both importers share; `inputs` are names of FX nodes.

        Floats are rounded to float32 like ONNX's attributes, so both importers create the same workloads and records.
        """
        held = {name: float32(value) if isinstance(value, float) else value for name, value in attrs.items()}
        return Call(self.context, op, self.title, tuple(inputs), self.outputs, held)

    def reads(self, index: int) -> bool:
        """Tells whether an output of several is read."""
        return any(user.args[1] == index for user in self.node.users)


def float32(value: float) -> float:
    """Rounds a number to float32."""
    return float(np.float32(value))


Converter = Callable[[AtenCall], "str | Sequence[str | None]"]
CONVERTERS: dict[str, Converter] = {}
"""Overload of ATen, such as `relu.default` → function that adds its nodes and returns the name of each value."""


def converts(*names: str) -> Callable[[Converter], Converter]:
    """Registers a function as the converter of overloads."""

    def register(converter: Converter) -> Converter:
        for name in names:
            assert name not in CONVERTERS, name
            CONVERTERS[name] = converter
        return converter

    return register


def operator_name(target: Any) -> str:
    """Returns an overload's name without `aten`; other targets keep their full name."""
    return str(target).removeprefix("aten.")


def tensor_type(value: Any, title: str) -> TensorType:
    """Returns the type of a fake tensor.

    Raises:
        UnsupportedModelError: the value is not a tensor of static extents and of a dtype that graphs have.
    """
    if not isinstance(value, torch.Tensor):
        raise UnsupportedModelError(f"values must be tensors, but {title!r} gives {type(value).__name__}")
    if not is_dense(value) or value.device.type != "cpu":
        raise UnsupportedModelError(
            f"tensors must be dense and on the CPU, but {title!r} is {value.layout} on {value.device}"
        )
    if not all(isinstance(extent, int) for extent in value.shape):
        raise UnsupportedModelError(
            f"shapes must be known before a network runs, but {title!r} is of {list(value.shape)}"
        )
    if value.numel() == 0:
        raise UnsupportedModelError(f"tensors must have elements, but {title!r} is of {list(value.shape)}")
    dtype = dtype_name(value.dtype)
    if dtype not in BITS:
        raise UnsupportedModelError(f"tensors must be of {', '.join(BITS)}, but {title!r} is of {dtype}")
    return TensorType(tuple(value.shape), dtype)

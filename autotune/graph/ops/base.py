"""Definition of an operation of a graph: its attributes, its tensor expression, and its NumPy implementation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any

import numpy as np

from autotune.graph.types import Array, Attributes, TensorType
from search_space import te
from search_space.dtypes import NARROW
from search_space.ir.expr import Expr
from search_space.operators import evaluation
from search_space.operators.checks import choice
from search_space.workloads import Workload

Types = Sequence[TensorType]
Tensors = Sequence[te.Tensor]

STOP_GRADIENT = "stop_gradient"
"""Operation that returns its input, through which no gradient flows; removed once a graph has its gradients."""
MOST_CACHED = 4096
"""Entries of the caches of inferred types: layers repeat, and every pass creates all nodes anew."""


class Kind(StrEnum):
    """A class of operations by how fusion treats them.

    - `elementwise`: an element reads its inputs at its own index (broadcast); may end its producer's kernel.
    - `injective`: an element reads one element of the inputs at another index: a copy in another order.
    - `view`: the same elements in the same order; nothing is computed.
    - `compute`: every other operation; begins a kernel.
    """

    elementwise = "elementwise"
    injective = "injective"
    view = "view"
    compute = "compute"


@dataclass(frozen=True)
class GraphOp:
    """An operation: its attributes, type rule, expression and NumPy implementation.

    Attributes:
        name: name that nodes refer to.
        kind: class that decides how fusion treats it.
        attributes: attributes as written and types of the inputs → all attributes, checked and in canonical form.
        define: attributes and input tensors → the tensor expression; the output's shape and dtype are the node's type.
        workload: attributes, input types and flags of inputs that are weights → the operator library's workload for the
            same inputs in the same order. Without one, the expression itself is tuned.
        compute: attributes and arrays → the output in NumPy, if that is faster than to evaluate the expression.
        narrow: whether its workload takes 16-bit floats if all inputs have one such dtype; otherwise inputs are
            widened as they are read.
        offloaded: whether an accelerator computes it: nothing is fused into its kernel.
    """

    name: str
    kind: Kind
    attributes: Callable[[Attributes, Types], dict[str, Any]]
    define: Callable[[Attributes, Tensors], te.Tensor] | None = None
    workload: Callable[[Attributes, Types, Sequence[bool]], Workload] | None = None
    compute: Callable[..., Array] | None = None
    narrow: bool = False
    offloaded: bool = False

    def infer(self, attrs: Attributes, types: Types) -> TensorType:
        """Infers the type of the output.

        Raises:
            ValueError, TypeError: types of the inputs do not fit together.
        """
        return _infer(self, tuple(attrs.items()), tuple(types))

    def expression(self, attrs: Attributes, inputs: Tensors) -> te.Tensor:
        """Builds the output from `inputs` as a tensor expression; what is computed reads 16-bit floats as float32."""
        assert self.define is not None, f"{self.name} has no expression of its own"
        return self.define(attrs, inputs if self.moves else [WideningTensor.of(tensor) for tensor in inputs])

    @property
    def moves(self) -> bool:
        """Tells whether it only moves or converts elements; such operations accept every dtype."""
        return self.kind in (Kind.injective, Kind.view) or self.name in ("cast", "copy", STOP_GRADIENT)

    def list_stored_dtypes(self, types: Types) -> tuple[str, ...]:
        """Returns for each input the 16-bit float dtype that the workload widens; an empty text: no widening."""
        kinds = {kind.dtype for kind in types}
        if self.moves or (self.narrow and len(kinds) == 1) or not kinds & set(NARROW):
            return ("",) * len(types)
        return tuple(kind.dtype if kind.dtype in NARROW else "" for kind in types)

    def anchor(self, attrs: Attributes, types: Types, constants: Sequence[bool]) -> Workload:
        """Returns the operator library's workload on widened inputs."""
        assert self.workload is not None
        return self.workload(attrs, widen_types(types, self.list_stored_dtypes(types)), constants)

    def tensors(self, attrs: Attributes, types: Types, constants: Sequence[bool] = ()) -> list[te.Tensor]:
        """Returns the inputs and the output of the operation by itself; `constants` flags inputs that are weights."""
        flags = constants or [False] * len(types)
        if self.workload is not None:
            return self.anchor(attrs, types, flags).tensors()
        inputs = [
            te.placeholder(kind.shape, kind.dtype, f"x{place}", constant)
            for place, (kind, constant) in enumerate(zip(types, flags, strict=True))
        ]
        return [*inputs, self.expression(attrs, inputs)]

    def tensors_to_differentiate(self, attrs: Attributes, types: Types, wrt: int) -> list[te.Tensor]:
        """Returns the inputs and the output of the definition that is differentiated by the input of a number."""
        if self.workload is None:
            return self.tensors(attrs, types)
        return self.anchor(attrs, types, [False] * len(types)).tensors_to_differentiate(wrt)

    def evaluate(self, attrs: Attributes, arrays: Sequence[Array]) -> Array:
        """Computes the output in NumPy, with the dtype of `infer`."""
        types = [TensorType(a.shape, str(a.dtype)) for a in arrays]
        if self.compute is not None or self.workload is not None:
            stored = zip(arrays, self.list_stored_dtypes(types), strict=True)
            arrays = [array.astype(np.float32) if dtype else array for array, dtype in stored]
        if self.compute is not None:
            kind = self.infer(attrs, types)
            out = np.asarray(self.compute(attrs, *arrays))
            return np.ascontiguousarray(out.astype(kind.dtype, copy=False)).reshape(kind.shape)
        if self.workload is not None:
            return _anchor_workload(self, tuple(attrs.items()), tuple(types)).reference(*arrays)
        return evaluation.evaluate(self.tensors(attrs, types), arrays)


@dataclass(frozen=True)
class WideningTensor(te.Tensor):
    """A tensor of 16-bit floats whose elements are read as float32."""

    @staticmethod
    def of(tensor: te.Tensor) -> te.Tensor:
        """Returns `tensor`, or a tensor that reads it as float32 if its dtype is a 16-bit float."""
        return WideningTensor(tensor.op) if tensor.dtype in NARROW else tensor

    @property
    def dtype(self) -> str:
        """float32."""
        return "float32"

    def __getitem__(self, indices: Any) -> Expr:
        return te.Tensor(self.op)[indices].astype(self.dtype)


def widen_types(types: Types, narrow_dtypes: Sequence[str] | None = None) -> list[TensorType]:
    """Replaces each type that has a 16-bit dtype in `narrow_dtypes`, or in None any 16-bit float, by float32."""
    if narrow_dtypes is None:
        narrow_dtypes = [kind.dtype if kind.dtype in NARROW else "" for kind in types]
    return [TensorType(kind.shape) if dtype else kind for kind, dtype in zip(types, narrow_dtypes, strict=True)]


@lru_cache(MOST_CACHED)
def _infer(operation: GraphOp, items: tuple[tuple[str, Any], ...], types: tuple[TensorType, ...]) -> TensorType:
    attrs = dict(items)
    if operation.workload is not None:
        types = tuple(widen_types(types, operation.list_stored_dtypes(types)))
        workload = operation.workload(attrs, types, [False] * len(types))
        for spec, kind in zip(workload.inputs, types, strict=True):
            if (spec.shape, spec.dtype) != (kind.shape, kind.dtype):
                raise ValueError(f"`{spec.name}` must be {spec.dtype}{list(spec.shape)}, but got {kind}")
        return TensorType(workload.output.shape, workload.output.dtype)
    out = operation.expression(attrs, [te.placeholder(t.shape, t.dtype, f"x{i}") for i, t in enumerate(types)])
    return TensorType(out.shape, out.dtype)


@lru_cache(MOST_CACHED)
def _anchor_workload(operation: GraphOp, items: tuple[tuple[str, Any], ...], types: tuple[TensorType, ...]) -> Workload:
    """Returns the workload without weights, as its reference does not depend on them."""
    return operation.anchor(dict(items), types, [False] * len(types))


def exactly(**defaults: Any) -> Callable[[Attributes, Types], dict[str, Any]]:
    """Returns a checker of optional attributes with these defaults; values may be of any type."""

    def check(attributes: Attributes, types: Types) -> dict[str, Any]:
        if unknown := [name for name in attributes if name not in defaults]:
            known = ", ".join(defaults) or "none"
            raise ValueError(f"attributes must be among {known}, but got {unknown[0]}={attributes[unknown[0]]!r}")
        return {name: freeze(attributes.get(name, default)) for name, default in defaults.items()}

    return check


def freeze(value: Any) -> Any:
    """Converts lists to tuples, nested ones too."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return tuple(freeze(item) for item in value)
    return value


def broadcast(types: Types) -> tuple[int, ...]:
    """Computes the shape that arrays broadcast to, as in NumPy.

    Raises:
        ValueError: extents differ and are not 1.
    """
    rank = max((len(kind.shape) for kind in types), default=0)
    extents = []
    for place in range(-rank, 0):
        sizes = {kind.shape[place] for kind in types if -place <= len(kind.shape)} - {1}
        if len(sizes) > 1:
            shown = " and ".join(str(list(kind.shape)) for kind in types)
            raise ValueError(f"shapes must be equal or 1 in each dimension, but got {shown}")
        extents.append(sizes.pop() if sizes else 1)
    return tuple(extents)


def at(tensor: te.Tensor, index: Sequence[Any]) -> Any:
    """Returns the element of `tensor` that broadcasting brings to `index`."""
    tail = index[len(index) - len(tensor.shape) :]
    return tensor[tuple(0 if extent == 1 else i for i, extent in zip(tail, tensor.shape, strict=True))]


OPS: dict[str, GraphOp] = {}
"""Operations by name."""


def register(*operations: GraphOp) -> None:
    """Adds operations.

    Raises:
        ValueError: a name is taken.
    """
    for operation in operations:
        if operation.name in OPS:
            raise ValueError(f"`name` must be new, but got name={operation.name!r}")
        OPS[operation.name] = operation


def find(name: str) -> GraphOp:
    """Looks up an operation by its name.

    Raises:
        ValueError: no operation has the name.
    """
    return OPS[choice("op", name, OPS)]

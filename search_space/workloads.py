"""Workloads: operators with their sizes, each a tensor expression and a NumPy reference."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from search_space import te
from search_space.operators import OPERATORS, Operator

Array = NDArray[Any]

__all__ = ["OPERATORS", "TensorSpec", "Workload", *OPERATORS]


@dataclass(frozen=True)
class TensorSpec:
    """An input or output: its name, shape and dtype, and whether it is a constant (a weight)."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    constant: bool = False


@dataclass(frozen=True, eq=False)
class Workload:
    """An operator and its arguments; made by the function of the operator's name in this module."""

    operator: str
    args: Mapping[str, Any]

    @cached_property
    def key(self) -> str:
        """Stable text that names the workload in records: the operator and its arguments in order."""
        parts = (f"{name}={_text(value)}" for name, value in self.args.items())
        return f"{self.operator}({','.join(parts)})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Workload) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __repr__(self) -> str:
        return self.key

    def to_json(self) -> dict[str, Any]:
        return {"operator": self.operator, "args": {k: _plain(v) for k, v in self.args.items()}}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Workload:
        """The workload `to_json` described.

        Raises:
            ValueError: an operator, argument or size that is not known or not possible.
        """
        name = data.get("operator")
        if name not in OPERATORS:
            raise ValueError(
                f"`operator` must be one of {', '.join(OPERATORS)}, but got operator={name!r}{_near(name, OPERATORS)}"
            )
        return _make(OPERATORS[name], **data.get("args", {}))

    @property
    def definition(self) -> Operator:
        """The library entry."""
        return OPERATORS[self.operator]

    @property
    def algorithms(self) -> tuple[str, ...]:
        """Names of the equal ways to define it."""
        return self.definition.algorithms

    def tensors(self, algorithm: str = "direct") -> list[te.Tensor]:
        """The te definition: inputs, then the output.

        Raises:
            ValueError: an algorithm the operator does not have.
        """
        if algorithm not in self.algorithms:
            raise ValueError(
                f"`algorithm` must be one of {', '.join(self.algorithms)}, but got algorithm={algorithm!r}"
            )
        return self.definition.tensors(self.args)

    @cached_property
    def _specs(self) -> tuple[TensorSpec, ...]:
        return tuple(TensorSpec(t.name, t.shape, t.dtype, t.op.constant) for t in self.tensors())

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        return self._specs[:-1]

    @property
    def output(self) -> TensorSpec:
        return self._specs[-1]

    @property
    def flops(self) -> int:
        """Operations of one execution, a multiply-add counted as two."""
        return int(self.definition.flops(self.args))

    @property
    def tolerance(self) -> tuple[float, float]:
        """(rtol, atol) for comparing with the reference: rounding grows with the length of the reduction."""
        if self.output.dtype in ("int32", "int8", "uint8", "int64", "bool"):
            return 0.0, 0.0
        length = 1
        for stage in _operations(self.tensors()[-1].op):
            for axis in stage.reduce_axis:
                length *= axis.extent
        return 1e-4, 2e-6 * max(4.0, float(length) ** 0.5)

    def make_inputs(self, seed: int) -> list[Array]:
        """Random inputs: uniform in (-1, 1), or small integers so that sums stay exact."""
        rng = np.random.default_rng(seed)
        return [_random(spec, rng) for spec in self.inputs]

    def reference(self, *arrays: Array) -> Array:
        """The output by NumPy."""
        return self.definition.reference(self.args, *arrays)


def _operations(op: te.Operation) -> list[te.Operation]:
    return [op, *(o for t in op.inputs for o in _operations(t.op))]


def _random(spec: TensorSpec, rng: np.random.Generator) -> Array:
    from search_space.ir.interp import numpy_dtype

    if spec.dtype in ("uint8", "int8"):
        return rng.integers(0 if spec.dtype == "uint8" else -127, 128, spec.shape).astype(spec.dtype)
    return rng.uniform(-1, 1, spec.shape).astype(numpy_dtype(spec.dtype))


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, (list, tuple)) else value


def _text(value: Any) -> str:
    return "x".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def _near(name: Any, known: Any) -> str:
    found = difflib.get_close_matches(str(name), list(known), 1)
    return f"; did you mean {found[0]}?" if found else ""


def _make(operator: Operator, *args: Any, **kwargs: Any) -> Workload:
    parameters = inspect.signature(operator.arguments).parameters
    for name in kwargs:
        if name not in parameters:
            raise ValueError(
                f"`{operator.name}` must have arguments among {', '.join(parameters)}, but got {name!r}"
                f"{_near(name, parameters)}"
            )
    try:
        return Workload(operator.name, operator.arguments(*args, **kwargs))
    except TypeError as error:  # a missing argument
        raise ValueError(f"`{operator.name}` must be given its sizes, but {error}") from error


def _constructor(operator: Operator) -> Callable[..., Workload]:
    make = functools.partial(_make, operator)
    functools.update_wrapper(make, operator.arguments)
    return make


conv2d = _constructor(OPERATORS["conv2d"])
conv1d = _constructor(OPERATORS["conv1d"])
conv3d = _constructor(OPERATORS["conv3d"])
depthwise_conv2d = _constructor(OPERATORS["depthwise_conv2d"])
conv2d_transpose = _constructor(OPERATORS["conv2d_transpose"])
matmul = _constructor(OPERATORS["matmul"])
batch_matmul = _constructor(OPERATORS["batch_matmul"])
dense = _constructor(OPERATORS["dense"])
max_pool2d = _constructor(OPERATORS["max_pool2d"])
avg_pool2d = _constructor(OPERATORS["avg_pool2d"])
softmax = _constructor(OPERATORS["softmax"])
layer_norm = _constructor(OPERATORS["layer_norm"])
reduce = _constructor(OPERATORS["reduce"])
elementwise = _constructor(OPERATORS["elementwise"])

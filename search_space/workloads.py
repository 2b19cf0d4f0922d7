"""Workloads: operators with their arguments, each with tensor expressions, a NumPy reference and a key."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any, ParamSpec
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from search_space import te, te_json
from search_space.dtypes import numpy_dtype
from search_space.operators import LIBRARY, OPERATORS, Operator, find, resolve_operator
from search_space.operators.algorithms import products
from search_space.operators.blocked import CONV2D_BLOCKED, DENSE_BLOCKED
from search_space.operators.conv import CONV1D, CONV2D, CONV3D
from search_space.operators.definitions import DEFINITIONS, check_reference, definition_arguments
from search_space.operators.depthwise import DEPTHWISE_CONV2D
from search_space.operators.dynamic import DYNAMIC_MATMUL
from search_space.operators.elementwise import ELEMENTWISE
from search_space.operators.estimates import STEP
from search_space.operators.fused import FUSED
from search_space.operators.pooling import AVG_POOL2D, MAX_POOL2D
from search_space.operators.products import BATCH_MATMUL, DENSE, MATMUL
from search_space.operators.reduction import REDUCE
from search_space.operators.rowwise import LAYER_NORM, SOFTMAX
from search_space.operators.sparse import SPARSE_MATMUL
from search_space.operators.sparse_conv import SPARSE_CONV2D
from search_space.operators.tensors import TENSORS
from search_space.operators.transposed import CONV2D_TRANSPOSE
from search_space.operators.weights_only import MATMUL_NBITS

__all__ = ["OPERATORS", "TensorSpec", "Workload", "from_tensors", "own", *OPERATORS]

MOST_ELEMENTS = 1 << 31
"""Greatest number of elements of an input or output."""
_TRUNCATED_DTYPES, _TRUNCATED_TERMS = frozenset(("float16", "bfloat16", "tfloat32")), 4096
"""Factor types of tensor cores that truncate sums, and terms of a sum up to which that is within rounding errors."""
Array = NDArray[Any]
P = ParamSpec("P")


@dataclass(frozen=True)
class TensorSpec:
    """One array of a workload. A `constant` one is a weight, which may be re-laid before the first call."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    constant: bool = False


@dataclass(frozen=True, eq=False)
class Workload:
    """A computation: an operator of the library and its arguments, checked and complete.

    Attributes:
        operator: name in `OPERATORS`.
        args: every argument, those left out at their defaults.

    Raises:
        ValueError: an unknown operator or argument, or values that do not go together.
    """

    operator: str
    args: Mapping[str, Any]

    def __post_init__(self) -> None:
        if not isinstance(self.args, Mapping):
            raise ValueError(f"`args` must be a mapping of arguments, but got args={self.args!r}")
        object.__setattr__(self, "args", MappingProxyType(find(self.operator).arguments(self.args)))

    @property
    def _operator(self) -> Operator[Any]:
        return find(self.operator)

    @cached_property
    def key(self) -> str:
        """The operator and its arguments, described; records are found by it."""
        return f"{self.operator}({self._operator.describe(self.args)})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Workload) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __repr__(self) -> str:
        return self.key

    def __reduce__(self) -> tuple[Any, ...]:
        return Workload, (self.operator, dict(self.args))

    @staticmethod
    def of(tensors: Sequence[te.Tensor]) -> Workload:
        """Makes the workload of tensor expressions, whose names, shapes and constants stay as they are.

        Args:
            tensors: every placeholder that is read, in the order in which kernels shall take them, then the output.

        Raises:
            ValueError: the tensors are no such list.
        """
        definition = te_json.to_json(tensors)
        key = te_json.text(definition)
        found = _OF_TENSORS.get(key)
        if found is None:
            found = _OF_TENSORS[key] = Workload("tensors", {"definition": definition})
        return found

    @property
    def portable(self) -> Workload:
        """The workload itself if every process knows its operator; else its definition as plain data, see `own`.

        Raises:
            ValueError: the operator's reference differs from its definition.
        """
        return self if self.anchor.operator in LIBRARY else own(self._operator, **self.args)

    @cached_property
    def anchor(self) -> Workload:
        """The workload without the prologues and the epilogue that are fused with it; itself if nothing is fused."""
        return Workload.from_json(self.args["anchor"]) if self.operator == "fused" else self

    def to_json(self) -> dict[str, Any]:
        """Returns plain data, every argument included."""
        args = {k: list(v) if isinstance(v, tuple) else v for k, v in self.args.items()}
        return {"operator": self.operator, "args": args}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Workload:
        """Reads the workload that `to_json` wrote.

        Raises:
            ValueError: other keys, an unknown operator, or invalid arguments.
        """
        if not isinstance(data, Mapping) or set(data) != {"operator", "args"}:
            got = list(data) if isinstance(data, Mapping) else data
            raise ValueError(f"`workload` must have the keys operator and args, but got workload={got!r}")
        return Workload(data["operator"], data["args"])

    @cached_property
    def algorithms(self) -> tuple[str, ...]:
        """Equal definitions of the workload, the plainest first."""
        return self._operator.algorithms(self.args)

    def tensors(self, algorithm: str = "direct") -> list[te.Tensor]:
        """Returns the inputs and then the output of one definition.

        Raises:
            ValueError: the workload has no such algorithm.
        """
        return self._operator.tensors(self.args, algorithm)

    def tensors_to_differentiate(self, wrt: int) -> list[te.Tensor]:
        """Returns the inputs and then the output of the definition that is differentiated by the input of a number."""
        definition = self._operator.differentiable(self.args, self.inputs[wrt].name)
        return self.tensors() if definition is None else definition(self.args)

    @cached_property
    def _specs(self) -> tuple[TensorSpec, ...]:
        tensors = self.tensors(self.algorithms[0])
        return tuple(TensorSpec(t.name, t.shape, t.dtype, t.op.constant) for t in tensors)

    def check_size(self) -> None:
        """Refuses a tensor that is too large to be made or computed in reasonable time.

        Raises:
            ValueError: a tensor of too many elements.
        """
        for spec in self._specs:
            if (elements := math.prod(spec.shape)) > MOST_ELEMENTS:
                shape = "x".join(map(str, spec.shape))
                raise ValueError(
                    f"a tensor must have at most {MOST_ELEMENTS} elements, but got {elements}: {spec.name} of {shape}"
                )

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """Arrays that kernels and `reference` take, in order."""
        return self._specs[:-1]

    @property
    def dtypes(self) -> frozenset[str]:
        """Types of its inputs, and the type in which it multiplies, which may have fewer digits."""
        return frozenset(spec.dtype for spec in self.inputs) | {self.args.get("dtype", self.inputs[0].dtype)}

    @property
    def output(self) -> TensorSpec:
        """Array that kernels and `reference` return."""
        return self._specs[-1]

    @cached_property
    def flops(self) -> int:
        """Additions and multiplications, a multiply-add counted as 2."""
        return int(self._operator.flops(self.args))

    def count_flops(self, algorithm: str) -> float:
        """Counts the operations of an algorithm: fewer products than `flops` has, transforms around them left out."""
        return self.flops - self.anchor.flops * (1.0 - products(self.anchor.args, algorithm))

    @property
    def tolerance(self) -> tuple[float, float]:
        """(rtol, atol) within which a right output lies: |actual - reference| <= atol + rtol * |reference|.

        Integers are exact, or one off if they are rounded from computed floats, which may lie on either side of a tie.
        Rounding errors of a sum grow with its length n and with the size s of its terms. For terms of random sign added
        up in order the error is 0.05 * n * s of the spacing of floating-point numbers; for positive terms it grows with
        the root of n. Outputs of 16 bits are a rounded float32, a few steps apart at most; if they are accumulated in
        16 bits, that is in the size of the terms. Tensor cores truncate sums towards zero instead of rounding them:
        with n / 16 additions to a sum that grows with the root of n, the error shows if n is large.
        """
        if not self.output.dtype.startswith(("float", "bfloat")):
            return 0.0, float(self._operator.precision.integer_error(self.args))
        precision, step = self._operator.precision, STEP[self.output.dtype]
        terms: float = precision.terms(self.args)
        if self.args.get("dtype") in _TRUNCATED_DTYPES:
            terms *= max(1.0, (terms / _TRUNCATED_TERMS) ** 0.5)
        relative = 100 + 4 * terms**0.5 if self.output.dtype == "float32" else 4
        return step * relative, step * precision.scale(self.args) * (precision.floor(self.args) + terms)

    def get_tolerance(self, algorithm: str) -> tuple[float, float]:
        """Returns `tolerance` of an algorithm, which is larger for algorithms that round the factors they multiply."""
        rtol, atol = self.tolerance
        return rtol, atol + self._operator.precision.rounding(self.args, algorithm)

    def make_inputs(self, seed: int) -> list[Array]:
        """Draws random inputs on which the operator is defined; equal seeds give equal inputs."""
        rng = np.random.default_rng(seed)
        return [self._operator.draw(self.args, s.shape, numpy_dtype(s.dtype), rng) for s in self.inputs]

    def other_inputs(self, inputs: Sequence[Array], seed: int) -> list[Array]:
        """Draws inputs anew but for the constants, which are those of `inputs`.

        `make_inputs` draws other numbers from every seed.
        """
        rng = np.random.default_rng([seed, 1])
        return [
            given if s.constant else self._operator.draw(self.args, s.shape, numpy_dtype(s.dtype), rng)
            for given, s in zip(inputs, self.inputs, strict=True)
        ]

    def reference(self, *arrays: Array) -> Array:
        """Computes the output in NumPy.

        Raises:
            ValueError: arrays that are not the inputs in number, shape or dtype.
        """
        found = [(a.shape, a.dtype) for a in arrays]
        if found != [(s.shape, numpy_dtype(s.dtype)) for s in self.inputs]:
            wanted = ", ".join(f"{s.name} {s.dtype}{list(s.shape)}" for s in self.inputs)
            got = ", ".join(f"{dtype}{list(shape)}" for shape, dtype in found)
            raise ValueError(f"`arrays` must be {wanted}, but got {got or 'none'}")
        out = self._operator.reference(self.args, *arrays)
        return np.ascontiguousarray(out.astype(numpy_dtype(self.output.dtype))).reshape(self.output.shape)


_OF_TENSORS: WeakValueDictionary[str, Workload] = WeakValueDictionary()
"""Workloads of definitions, by their text: a graph has thousands of equal ones, whose figures are computed once."""


def from_tensors(tensors: Sequence[te.Tensor]) -> Workload:
    """Makes the workload of a definition, like `Workload.of`."""
    return Workload.of(tensors)


def own(operator: Operator[Any] | str, /, **arguments: Any) -> Workload:
    """Makes the workload of an operator of one's own: its definitions and figures as plain data.

    Other processes and machines, and readers of the records, then do not need the operator. Kernels are compared with
    the first definition; this function compares the operator's reference with it.

    Args:
        operator: an operator, or its name in code of one's own, `FILE.py:NAME` or `module:NAME`, which is run.
        arguments: arguments of the operator.

    Raises:
        ValueError: no such operator, arguments that it refuses, or a reference that differs from its definition.
    """
    resolved = resolve_operator(operator) if isinstance(operator, str) else operator
    if not isinstance(resolved, Operator):
        raise ValueError(f"`operator` must be an Operator or the name of one, but got operator={operator!r}")
    workload = Workload(DEFINITIONS.name, definition_arguments(resolved, arguments))
    check_reference(resolved, arguments, workload.tolerance)
    return workload


def _constructor(operator: Operator[P]) -> Callable[P, Workload]:
    """Returns a function with the operator's own signature that makes its workloads."""
    names = list(operator.parameters)

    @functools.wraps(operator.normalise)
    def make(*values: P.args, **keywords: P.kwargs) -> Workload:
        given = dict(zip(names, values, strict=False))
        if len(values) > len(names) or given.keys() & keywords.keys():
            raise TypeError(f"{operator.name} takes {inspect.signature(operator.normalise)}")
        return Workload(operator.name, {**given, **keywords})

    make.__annotations__ = {**make.__annotations__, "return": "Workload"}
    return make


conv1d = _constructor(CONV1D)
conv2d = _constructor(CONV2D)
conv3d = _constructor(CONV3D)
conv2d_blocked = _constructor(CONV2D_BLOCKED)
depthwise_conv2d = _constructor(DEPTHWISE_CONV2D)
conv2d_transpose = _constructor(CONV2D_TRANSPOSE)
matmul = _constructor(MATMUL)
batch_matmul = _constructor(BATCH_MATMUL)
dense = _constructor(DENSE)
matmul_nbits = _constructor(MATMUL_NBITS)
dynamic_matmul = _constructor(DYNAMIC_MATMUL)
sparse_matmul = _constructor(SPARSE_MATMUL)
sparse_conv2d = _constructor(SPARSE_CONV2D)
dense_blocked = _constructor(DENSE_BLOCKED)
max_pool2d = _constructor(MAX_POOL2D)
avg_pool2d = _constructor(AVG_POOL2D)
softmax = _constructor(SOFTMAX)
layer_norm = _constructor(LAYER_NORM)
reduce = _constructor(REDUCE)
elementwise = _constructor(ELEMENTWISE)
tensors = _constructor(TENSORS)
definitions: Callable[..., Workload] = _constructor(DEFINITIONS)
fused = _constructor(FUSED)

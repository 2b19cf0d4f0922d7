"""The interface of an operator: arguments, equal definitions as tensor expressions, a NumPy reference, its work."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, ParamSpec

import numpy as np
from numpy.typing import NDArray

from search_space import te
from search_space.operators.checks import nearest

P = ParamSpec("P")
Args = Mapping[str, Any]
Array = NDArray[Any]
Definition = Callable[[Args], list[te.Tensor]]

REQUIRED_ARGUMENT: Any = inspect.Parameter.empty
"""Default of a parameter that must be given although it follows `batch`, which has a default."""


LIBRARY = "library"
"""The algorithm that hands the product of matrices to an existing library."""


def callable_library(args: Args, algorithm: str) -> bool:
    """Tells whether an algorithm is available: a library is called for float32 alone."""
    return algorithm != LIBRARY or bool(args["dtype"] == "float32")


FLOOR = 10.0
"""Default of `Precision.floor`."""


@dataclass(frozen=True)
class Precision:
    """The allowed distance of a right output from the reference.

    Attributes:
        terms: number of terms that are added up for one output element, by arguments.
        scale: size of one such term, for inputs of size one.
        floor: spacings of floating-point numbers (times the scale) allowed for rounding outside of the sum.
        integer_error: greatest error of an integer: 0, or 1 if it is rounded from floats that are computed.
        rounding: additional error of an algorithm, for inputs of size one.
    """

    terms: Callable[[Args], int] = lambda args: 1
    scale: Callable[[Args], float] = lambda args: 1.0
    floor: Callable[[Args], float] = lambda args: FLOOR
    integer_error: Callable[[Args], int] = lambda args: 0
    rounding: Callable[[Args, str], float] = lambda args, algorithm: 0.0


def format_arguments(args: Args) -> str:
    """Formats the arguments in order, for the keys of workloads."""
    return ",".join(f"{name}={'x'.join(map(str, v)) if isinstance(v, tuple) else v}" for name, v in args.items())


@dataclass(frozen=True)
class Operator(Generic[P]):
    """An entry of the library of operators.

    Attributes:
        name: name in workloads.
        normalise: checks arguments and brings them into one form; signature and docstring are the operator's.
        definitions: algorithm → inputs..., output.
        reference: arguments and input arrays → the output, up to its dtype.
        flops: additions and multiplications (2 for a multiply-add), by arguments.
        precision: parts of the tolerance.
        bounds: range of floating-point inputs on which the operator is defined.
        available: whether an algorithm is defined for given arguments.
        describe: arguments as one short text that stays the same over versions and tells workloads apart: their key.
        differentiable: arguments and the name of an input → the definition that is differentiated by this input, where
            the gradient of the plainest one would multiply zeros; else None.
        draw_integers: arguments, the shape of an integer input and a generator → a random input; None: any.
    """

    name: str
    normalise: Callable[P, dict[str, Any]]
    definitions: Mapping[str, Definition]
    reference: Callable[..., Array]
    flops: Callable[[Args], int]
    precision: Precision = Precision()
    bounds: Callable[[Args], tuple[float, float]] = lambda args: (-1.0, 1.0)
    available: Callable[[Args, str], bool] = lambda args, algorithm: True
    describe: Callable[[Args], str] = format_arguments
    differentiable: Callable[[Args, str], Definition | None] = lambda args, name: None
    draw_integers: Callable[[Args, tuple[int, ...], np.random.Generator], Array | None] = lambda args, shape, rng: None

    @cached_property
    def parameters(self) -> Mapping[str, inspect.Parameter]:
        """The arguments by name, in order."""
        return inspect.signature(self.normalise).parameters

    def arguments(self, values: Args) -> dict[str, Any]:
        """Checks the arguments and returns every one in its canonical form.

        Raises:
            ValueError: an argument that is unknown, missing or of a value the operator is not defined for.
        """
        parameters = self.parameters
        for name in values:
            if name not in parameters:
                raise ValueError(
                    f"`{self.name}` must have arguments among {', '.join(parameters)}, "
                    f"but got {name!r}{nearest(name, parameters)}"
                )
        missing = [n for n, p in parameters.items() if p.default is REQUIRED_ARGUMENT and n not in values]
        if missing:
            got = ", ".join(f"{k}={v!r}" for k, v in values.items())
            raise ValueError(f"`{self.name}` must be given {', '.join(missing)}, but got {got or 'nothing'}")
        normalise: Callable[..., dict[str, Any]] = self.normalise
        checked = normalise(**values)
        return {name: checked[name] for name in parameters}

    def algorithms(self, args: Args) -> tuple[str, ...]:
        """Lists the definitions for these arguments, the plainest first."""
        return tuple(a for a in self.definitions if self.available(args, a))

    def tensors(self, args: Args, algorithm: str) -> list[te.Tensor]:
        """Returns the inputs and then the output of one definition.

        Raises:
            ValueError: no such algorithm for these arguments.
        """
        if algorithm not in self.definitions or not self.available(args, algorithm):
            choices = self.algorithms(args)
            raise ValueError(
                f"`algorithm` must be one of {', '.join(choices)}, "
                f"but got algorithm={algorithm!r}{nearest(algorithm, choices)}"
            )
        return self.definitions[algorithm](args)

    def draw(self, args: Args, shape: tuple[int, ...], dtype: np.dtype[Any], rng: np.random.Generator) -> Array:
        """Draws a random input: floats within `bounds`, bits, or integers whose sums of products fit int32."""
        if dtype.kind == "b":
            return rng.integers(0, 2, shape).astype(dtype)
        if dtype.kind in "iu":
            if (drawn := self.draw_integers(args, shape, rng)) is not None:
                return drawn.astype(dtype)
            low, high = (-127, 127) if dtype.kind == "i" else (0, 255)
            return rng.integers(low, high, shape, dtype=dtype, endpoint=True)
        return rng.uniform(*self.bounds(args), shape).astype(dtype)

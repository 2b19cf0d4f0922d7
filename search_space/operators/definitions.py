"""An operator of one's own as plain data: its definitions and figures, which any process and any record can hold."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from search_space import te, te_json
from search_space.dtypes import numpy_dtype
from search_space.operators import evaluation
from search_space.operators.base import Args, Array, Definition, Operator, Precision

LONGEST = 500
"""Greatest number of characters of a name."""


def definitions(
    name: str,
    algorithms: Sequence[Sequence[Any]],
    flops: int,
    terms: int = 1,
    scale: float = 1.0,
    floor: float = 10.0,
    bounds: Sequence[float] = (-1.0, 1.0),
) -> dict[str, Any]:
    """Computes the definition of an operator of one's own for given arguments.

    Args:
        name: name of the operator, with its arguments.
        algorithms: pairs of a name and a definition, as `search_space.te_json` writes it; the plainest first.
        flops: additions and multiplications.
        terms, scale, floor: parts of its `Precision`.
        bounds: range of floating-point inputs.
    """
    if not isinstance(name, str) or not name.isprintable() or not 0 < len(name) <= LONGEST:
        raise ValueError(f"`name` must be a line of at most {LONGEST} characters, but got name={str(name)[:80]!r}")
    for key, value in (("flops", flops), ("terms", terms)):
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise ValueError(f"`{key}` must be an integer of at least 0, but got {key}={value!r}")
    for key, number in (("scale", scale), ("floor", floor)):
        if not _is_number(number) or number < 0:
            raise ValueError(f"`{key}` must be a number of at least 0, but got {key}={number!r}")
    if not isinstance(bounds, Sequence) or len(bounds) != 2 or not all(map(_is_number, bounds)):
        raise ValueError(f"`bounds` must be two numbers, but got bounds={bounds!r}")
    return {
        "name": name,
        "algorithms": _checked_algorithms(algorithms),
        "flops": flops,
        "terms": terms,
        "scale": scale,
        "floor": floor,
        "bounds": list(bounds),
    }


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _checked_algorithms(algorithms: Any) -> list[list[Any]]:
    pairs = isinstance(algorithms, Sequence) and all(isinstance(p, Sequence) and len(p) == 2 for p in algorithms)
    if not pairs or not algorithms or not all(isinstance(name, str) and name.isidentifier() for name, _ in algorithms):
        raise ValueError(f"`algorithms` must be pairs of a name and a definition, but got {str(algorithms)[:80]}")
    if len({name for name, _ in algorithms}) < len(algorithms):
        raise ValueError(f"`algorithms` must have different names, but got {', '.join(name for name, _ in algorithms)}")
    parsed = [(name, te_json.from_json(definition)) for name, definition in algorithms]
    first, wanted = parsed[0][0], _signature(parsed[0][1])
    for name, tensors in parsed[1:]:
        if _signature(tensors) != wanted:
            raise ValueError(f"`algorithms` must take and give the same tensors, but {name} and {first} differ")
    return [[name, te_json.to_json(tensors)] for name, tensors in parsed]


def _signature(tensors: Sequence[te.Tensor]) -> list[tuple[str, tuple[int, ...], str, bool]]:
    *inputs, output = tensors
    return [*((t.name, t.shape, t.dtype, t.op.constant) for t in inputs), ("", output.shape, output.dtype, False)]


class _Definitions(Mapping[str, Definition]):
    """Mapping of algorithms to definitions; the arguments hold the algorithms."""

    def __getitem__(self, algorithm: str) -> Definition:
        return lambda args: te_json.from_json(dict(args["algorithms"])[algorithm])

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


@dataclass(frozen=True)
class _OfArguments(Operator[Any]):
    def algorithms(self, args: Args) -> tuple[str, ...]:
        return tuple(name for name, _ in args["algorithms"])


def _describe(args: Args) -> str:
    """Describes the arguments: the name with its arguments, and a digest of the definitions."""
    text = te_json.text({"algorithms": args["algorithms"]})
    return f"{args['name']},sha256={hashlib.sha256(text.encode()).hexdigest()[:16]}"


def _reference(args: Args, *arrays: Array) -> Array:
    return evaluation.evaluate(te_json.from_json(args["algorithms"][0][1]), arrays)


DEFINITIONS = _OfArguments(
    "definitions",
    definitions,
    _Definitions(),
    _reference,
    lambda args: int(args["flops"]),
    Precision(lambda args: args["terms"], lambda args: args["scale"], lambda args: args["floor"]),
    lambda args: (args["bounds"][0], args["bounds"][1]),
    describe=_describe,
)


def definition_arguments(operator: Operator[Any], values: Args) -> dict[str, Any]:
    """Returns the arguments of `DEFINITIONS` that represent an operator with arguments of its own.

    Raises:
        ValueError: arguments that it refuses, or a reference that differs from its first definition.
    """
    args = operator.arguments(values)
    algorithms = [[name, te_json.to_json(operator.tensors(args, name))] for name in operator.algorithms(args)]
    precision = operator.precision
    data = {
        "name": f"{operator.name}({operator.describe(args)})",
        "algorithms": algorithms,
        "flops": int(operator.flops(args)),
        "terms": int(precision.terms(args)),
        "scale": float(precision.scale(args)),
        "floor": float(precision.floor(args)),
        "bounds": [float(bound) for bound in operator.bounds(args)],
    }
    return data


def check_reference(operator: Operator[Any], values: Args, tolerance: tuple[float, float]) -> None:
    """Compares an operator's own reference with its first definition, which workers compare kernels with.

    Raises:
        ValueError: they differ by more than the tolerance, relative and absolute.
    """
    args = operator.arguments(values)
    *inputs, output = operator.tensors(args, operator.algorithms(args)[0])
    rng = np.random.default_rng(0)
    arrays = [operator.draw(args, t.shape, numpy_dtype(t.dtype), rng) for t in inputs]
    defined = evaluation.evaluate([*inputs, output], arrays).astype(np.float64)
    own = np.asarray(operator.reference(args, *arrays))
    if own.size != defined.size:
        raise ValueError(f"`reference` of {operator.name} must give {output.shape}, but got {own.shape}")
    away = np.abs(own.astype(np.float64).reshape(defined.shape) - defined)
    allowed = tolerance[1] + tolerance[0] * np.abs(defined)
    if not (away <= allowed).all():
        raise ValueError(
            f"`reference` of {operator.name} must give what its definition computes, but differs by "
            f"{np.nanmax(away):.2g} where {float(allowed.max()):.2g} is allowed"
        )

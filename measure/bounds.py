"""Lower bounds of the time of a workload that no machine can reach.

A latency below its bound was not measured. The bounds are at least ten times below the fastest machines, and below what
algorithms save besides, so that no honest device is ever refused.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import orjson

from measure.errors import OutcomeError

_DEFINITION_OPERATORS = ("tensors", "fused")
"""Operators whose arguments are a definition: a kernel may leave out operations whose results nobody reads."""


class WorkloadBounds(NamedTuple):
    """Key and operation count of a workload whose operator is known.

    Attributes:
        key: stable key of the workload.
        operations: operations that any kernel of it must do.
    """

    key: str
    operations: float


def get_bounds(workload: Mapping[str, Any]) -> WorkloadBounds | None:
    """Returns key and operation count of a workload in its JSON form; None if this process lacks its operator.

    Raises:
        OutcomeError: the operator is known, but its arguments are invalid.
    """
    from search_space.operators import OPERATORS

    if workload.get("operator") not in OPERATORS:
        return None
    return _compute_bounds(orjson.dumps(workload, option=orjson.OPT_SORT_KEYS | orjson.OPT_SERIALIZE_NUMPY))


def least_seconds(workload: Mapping[str, Any], target: str, threads: int) -> float:
    """Returns a lower bound, in seconds, of any kernel of a workload on any machine of a target; 0 if unknown.

    Raises:
        OutcomeError: see `get_bounds`.
    """
    counted = get_bounds(workload)
    return 0.0 if counted is None else counted.operations / _rate(target, threads)


def check_possible(workload: Mapping[str, Any], target: str, threads: int, seconds: float) -> None:
    """Refuses a latency that no machine of a target can reach.

    Raises:
        OutcomeError: the latency is too low, or `get_bounds` raises it; names the rule and the value.
    """
    least = least_seconds(workload, target, threads)
    if seconds < least:
        raise OutcomeError(
            f"`seconds` must be at least {least:.3g} for this workload, as no {target.partition(':')[0]} is faster, "
            f"but got seconds={seconds:g}"
        )


@lru_cache(4096)
def _compute_bounds(text: bytes) -> WorkloadBounds:
    from search_space.operators import LIBRARY
    from search_space.workloads import Workload

    try:
        workload = Workload.from_json(orjson.loads(text))
        exact = workload.operator not in _DEFINITION_OPERATORS and workload.operator in LIBRARY
        operations = workload.flops if exact else math.prod(workload.output.shape)
        return WorkloadBounds(workload.key, float(min(operations, 1 << 1000)))
    except (ValueError, TypeError, KeyError, AttributeError, IndexError, ArithmeticError, RecursionError) as error:
        raise OutcomeError(
            f"`workload` must be one of its operator, but: {str(error) or type(error).__name__}"
        ) from None


@lru_cache(4096)
def _rate(target: str, threads: int) -> float:
    """Returns operations per second that no machine of a target can reach."""
    from targets import registry
    from targets.base import FASTEST

    try:
        return registry.get(target).fastest(threads)
    except ValueError:  # a target of another version, or a design unknown here
        return FASTEST

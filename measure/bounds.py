"""What no machine can do: the least time of a workload, far below what any kernel takes.

A latency below it was not measured. The limits leave ten times and more to the fastest machines there are, and what
algorithms save besides, so that no honest device is ever refused.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import orjson

from measure.errors import OutcomeError

_DEFINED = ("tensors", "fused")
"""Operators whose arguments are a definition: of its operations a kernel may leave out what nobody reads."""


class Known(NamedTuple):
    """What is known of a workload whose operator is.

    Attributes:
        key: its stable key.
        operations: that any kernel of it must do.
    """

    key: str
    operations: float


def known(workload: Mapping[str, Any]) -> Known | None:
    """What is known of a workload in its JSON form; None where its operator is not one of this process.

    Raises:
        OutcomeError: the operator is known, and these are no arguments of it.
    """
    from search_space.operators import OPERATORS

    if workload.get("operator") not in OPERATORS:
        return None
    return _known(orjson.dumps(workload, option=orjson.OPT_SORT_KEYS | orjson.OPT_SERIALIZE_NUMPY))


def least_seconds(workload: Mapping[str, Any], target: str, threads: int) -> float:
    """Seconds that no kernel of a workload can be below on any machine of a target; 0 where nothing is known of it.

    Raises:
        OutcomeError: see `known`.
    """
    found = known(workload)
    return 0.0 if found is None else found.operations / _rate(target, threads)


def check_possible(workload: Mapping[str, Any], target: str, threads: int, seconds: float) -> None:
    """Refuses a latency that no machine of a target can reach.

    Raises:
        OutcomeError: names the rule and the value; see `known`, too.
    """
    least = least_seconds(workload, target, threads)
    if seconds < least:
        raise OutcomeError(
            f"`seconds` must be at least {least:.3g} for this workload, as no {target.partition(':')[0]} is faster, "
            f"but got seconds={seconds:g}"
        )


@lru_cache(4096)
def _known(text: bytes) -> Known:
    from search_space.operators import LIBRARY
    from search_space.workloads import Workload

    try:
        workload = Workload.from_json(orjson.loads(text))
        exact = workload.operator not in _DEFINED and workload.operator in LIBRARY
        operations = workload.flops if exact else math.prod(workload.output.shape)
        return Known(workload.key, float(min(operations, 1 << 1000)))
    except (ValueError, TypeError, KeyError, AttributeError, IndexError, ArithmeticError, RecursionError) as error:
        raise OutcomeError(
            f"`workload` must be one of its operator, but: {str(error) or type(error).__name__}"
        ) from None


@lru_cache(4096)
def _rate(target: str, threads: int) -> float:
    """Operations a second that no machine of a target can reach."""
    from targets import registry
    from targets.base import FASTEST

    try:
        return registry.get(target).fastest(threads)
    except ValueError:  # of another version, or a design that is not here
        return FASTEST

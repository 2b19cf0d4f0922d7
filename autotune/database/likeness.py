"""How alike two workloads are: the same operator, and sizes whose ratios are near 1."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from search_space.workloads import Workload

_OTHER = 1.0
"""What a difference that is none of sizes counts for: as much as a factor of two."""


def anchor_of(workload: Workload) -> Mapping[str, Any]:
    """JSON of what a workload computes, less what is fused around it."""
    found: Mapping[str, Any] = workload.args["anchor"] if workload.operator == "fused" else workload.to_json()
    return found


def signature(workload: Workload) -> tuple[object, ...]:
    """What must be the same for schedules to be carried over: the operator and the types."""
    types = tuple(spec.dtype for spec in (*workload.inputs[:2], workload.output))
    return anchor_of(workload)["operator"], types


def distance(one: Workload, other: Workload) -> float:
    """Sum of the logarithms (base 2) of the ratios of sizes, and 1 for each other difference; 0 for the same layer."""
    first, second = anchor_of(one)["args"], anchor_of(other)["args"]
    total = sum(_apart(first.get(name), second.get(name)) for name in sorted({*first, *second}))
    ends = [len(of.inputs) for of in (one, other)]
    return total + 0.25 * abs(ends[0] - ends[1])  # what is fused behind changes little


def _apart(one: Any, other: Any) -> float:
    if isinstance(one, int | float) and isinstance(other, int | float) and not isinstance(one, bool):
        return abs(math.log2((one + 1.0) / (other + 1.0)))
    if isinstance(one, list | tuple) and isinstance(other, list | tuple) and len(one) == len(other):
        return sum(_apart(a, b) for a, b in zip(one, other, strict=True))
    return 0.0 if one == other else _OTHER

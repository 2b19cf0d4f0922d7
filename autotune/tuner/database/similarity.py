"""Distance of two workloads of the same operator, by the ratios of their sizes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

_OTHER = 1.0
"""Distance of a difference other than of sizes: as much as a factor of two."""


Description = Mapping[str, Any]
"""JSON of a workload: distances need no workload objects, as there may be thousands."""


def anchor_description(workload: Description) -> Description:
    """Returns the anchor of a workload, without fused operations."""
    found: Description = workload["args"]["anchor"] if workload["operator"] == "fused" else workload
    return found


def signature(workload: Description) -> tuple[object, ...]:
    """Returns the operator and the types, which must be equal for schedules to be transferred."""
    anchor = anchor_description(workload)
    return anchor["operator"], tuple(sorted((k, v) for k, v in anchor["args"].items() if "dtype" in k))


def distance(one: Description, other: Description) -> float:
    """Sums |log2| of the ratios of sizes, and 1 for each other difference; 0 for the same layer."""
    first, second = anchor_description(one)["args"], anchor_description(other)["args"]
    total = sum(_apart(first.get(name), second.get(name)) for name in sorted({*first, *second}))
    return total + 0.25 * abs(_count_fused_inputs(one) - _count_fused_inputs(other))  # fused operations change little


def _count_fused_inputs(workload: Description) -> int:
    """Counts the inputs of the fused epilogue."""
    epilogue = workload["args"].get("epilogue") if workload["operator"] == "fused" else None
    return len(epilogue.get("inputs", ())) if isinstance(epilogue, Mapping) else 0


def _apart(one: Any, other: Any) -> float:
    if isinstance(one, int | float) and isinstance(other, int | float) and not isinstance(one, bool):
        return abs(math.log2((one + 1.0) / (other + 1.0)))
    if isinstance(one, list | tuple) and isinstance(other, list | tuple) and len(one) == len(other):
        return sum(_apart(a, b) for a, b in zip(one, other, strict=True))
    return 0.0 if one == other else _OTHER

"""How far the outputs of a network lie from a reference's, and who is right where they disagree."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import onnx

from autotune.graph.float64 import evaluate_in_float64
from autotune.graph.ir import Array
from autotune.graph.onnx_nodes import NodeError


@dataclass(frozen=True)
class Check:
    """How far outputs lie from the reference's.

    Attributes:
        reference: what computed it.
        errors: value → largest difference over the largest element of the value.
        note: what the user should know of the reference; "" where there is nothing.
    """

    reference: str
    errors: Mapping[str, float]
    note: str = ""

    @property
    def max_error(self) -> float:
        """The largest; NaN counts as infinite."""
        return max((math.inf if math.isnan(e) else e for e in self.errors.values()), default=0.0)


def relative_error(found: Array, wanted: Array) -> float:
    """Largest difference over the largest finite element of `wanted`; infinite where the shapes differ."""
    if found.shape != wanted.shape:
        return math.inf
    ours, theirs = found.astype(np.float64), wanted.astype(np.float64)
    scale = float(np.max(np.abs(theirs), initial=0.0, where=np.isfinite(theirs))) or 1.0
    same = (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))  # infinities, too, whose difference is no number
    return float(np.max(np.abs(np.subtract(ours, theirs, out=np.zeros_like(ours), where=~same)), initial=0.0)) / scale


def errors_of(found: Mapping[str, Array], wanted: Mapping[str, Array]) -> dict[str, float]:
    """Relative error of each value."""
    return {name: relative_error(array, wanted[name]) for name, array in found.items()}


def judged(
    check: Check,
    model: onnx.ModelProto,
    feeds: Mapping[str, Array],
    found: Mapping[str, Array],
    wanted: Mapping[str, Array],
) -> Check:
    """Errors against the model in float64, which neither the importer nor a kernel takes part in."""
    try:
        exact = evaluate_in_float64(model, feeds)
    except NodeError as error:
        return replace(check, note=f"nothing decides between the network and {check.reference}: {error}")
    theirs = Check(check.reference, errors_of(wanted, exact))
    note = f"{theirs.reference} is {theirs.max_error:.1e} off the model in float64"
    return Check("the model in float64", errors_of(found, exact), note)

"""Errors of a network's outputs beside a reference, and a decision by float64 where they disagree."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from autotune.compiler.sources import ModelSource
from autotune.graph.frontends.onnx.nodes import NodeError
from autotune.graph.ir import Array
from autotune.graph.quantise.formats import decibels


@dataclass(frozen=True)
class Rounding:
    """Error of an output due to computing in fewer bits, beside the model in float32.

    Attributes:
        decibels: signal to noise, over elements that are finite in both; 999 where nothing differs.
        error: largest difference over the largest element.
    """

    decibels: float
    error: float

    @property
    def noise(self) -> float:
        """Root mean square of the differences, over that of the signal: a ratio of amplitudes."""
        return float(10 ** (-self.decibels / 20))

    @staticmethod
    def between(actual: Array, exact: Array) -> Rounding:
        """Computes the rounding of an output beside its value in float32."""
        finite = np.isfinite(actual) & np.isfinite(exact)
        ours, theirs = (np.where(finite, x, 0).astype(np.float64) for x in (actual, exact))
        return Rounding(
            decibels(float((theirs**2).sum()), float(((ours - theirs) ** 2).sum())), relative_error(actual, exact)
        )


@dataclass(frozen=True)
class Check:
    """Errors of an executable's outputs beside the reference's.

    Attributes:
        reference: name of the runtime that computed the reference.
        errors: output → largest difference over the largest element.
        note: remark on the reference for the user, or "".
        rounding: output → its error due to computing in fewer bits, of a network in fewer bits.
        layers: value in between → the same error of another executable, which has the value as an output; empty if no
            such executable was compiled.
    """

    reference: str
    errors: Mapping[str, float]
    note: str = ""
    rounding: Mapping[str, Rounding] = field(default_factory=dict)
    layers: Mapping[str, float] = field(default_factory=dict)

    @property
    def max_error(self) -> float:
        """The largest error of an output or a value in between; NaN counts as infinite."""
        return max((math.inf if math.isnan(e) else e for e in self.all_errors.values()), default=0.0)

    @property
    def all_errors(self) -> dict[str, float]:
        """All errors: values in between in the order of the network, then outputs."""
        return {**self.layers, **self.errors}


def in_order(errors: Mapping[str, float], names: Iterable[str]) -> dict[str, float]:
    """Sorts errors of values by the order of their names in the network."""
    return {name: errors[name] for name in names if name in errors}


def relative_error(actual: Array, expected: Array) -> float:
    """Computes the largest difference over the largest finite element of `expected`; infinite if the shapes differ."""
    if actual.shape != expected.shape:
        return math.inf
    ours, theirs = actual.astype(np.float64), expected.astype(np.float64)
    scale = float(np.max(np.abs(theirs), initial=0.0, where=np.isfinite(theirs))) or 1.0
    same = (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))  # also for infinities, whose difference is NaN
    return float(np.max(np.abs(np.subtract(ours, theirs, out=np.zeros_like(ours), where=~same)), initial=0.0)) / scale


def compute_errors(actual: Mapping[str, Array], expected: Mapping[str, Array]) -> dict[str, float]:
    """Computes the relative error of each value."""
    return {name: relative_error(array, expected[name]) for name, array in actual.items()}


def against_float64(
    check: Check,
    source: ModelSource,
    feeds: Mapping[str, Array],
    actual: Mapping[str, Array],
    expected: Mapping[str, Array],
) -> Check:
    """Measures errors beside the model in float64, which uses neither the importer nor a kernel."""
    try:
        exact = source.exact_outputs(feeds)
    except NodeError as error:
        return replace(check, note=f"nothing decides between the network and {check.reference}: {error}")
    theirs = Check(check.reference, compute_errors(expected, exact))
    note = f"{theirs.reference} is {theirs.max_error:.1e} off the model in float64"
    return Check("the model in float64", compute_errors(actual, exact), note)

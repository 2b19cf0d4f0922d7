"""Alignment of features of different tasks and machines: every task's are mapped into the frame of the source.

The layout stays, so that any cost model reads aligned features as it reads others.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.features import NAMES
from costmodel.features.groups import COUNTS
from costmodel.transfer.errors import TransferError
from costmodel.transfer.tasks import Features, SourceTask, Task
from search_space.hardware import Hardware
from search_space.operators.checks import choice

KNOTS = 33
"""Quantiles at which distributions are compared."""


class Alignment(ABC):
    """The frame of a set of source tasks, with maps of any task's features into it."""

    @abstractmethod
    def of(self, task: Task) -> FeatureMap:
        """Maps a task's features into the frame, by facts that are known before the task is measured."""

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """Returns the frame as plain data, the arguments of the class."""


FeatureMap = Callable[[Features], Features]
"""A map of one task's features, of the same layout, (..., features) -> (..., features); its input stays unchanged."""


def _make_shift(shift: NDArray[np.float32]) -> FeatureMap:
    """Adds a constant to each feature: most are logarithms, so that units change."""
    return lambda features: features + shift


class NoAlignment(Alignment):
    """No alignment: the frame is that of the features themselves."""

    @classmethod
    def fit(cls, source: Sequence[SourceTask]) -> NoAlignment:
        return cls()

    def of(self, task: Task) -> FeatureMap:
        return lambda features: features

    def to_json(self) -> dict[str, Any]:
        return {}


class MachineAlignment(Alignment):
    """Amounts in units of the machine: seconds by its peak, working sets by its caches, vectors by its width.

    Args:
        units: units of the frame, by name.
    """

    def __init__(self, units: Mapping[str, float]) -> None:
        self.units = dict(units)

    @classmethod
    def fit(cls, source: Sequence[SourceTask]) -> MachineAlignment:
        """Fits the frame: the geometric mean of the machines' units."""
        found = [_units(task.hardware) for task in source]
        return cls({name: float(np.exp2(np.mean([np.log2(of[name]) for of in found]))) for name in found[0]})

    def of(self, task: Task) -> FeatureMap:
        own = _units(task.hardware)
        shift = np.zeros(len(NAMES), np.float32)
        for name, unit in _UNIT_OF.items():
            shift[NAMES.index(name)] = np.log2(self.units[unit] / own[unit])
        return _make_shift(shift)

    def to_json(self) -> dict[str, Any]:
        return {"units": self.units}


class CentredAlignment(Alignment):
    """An alignment by each feature's difference from its median over the task's space, which removes effects of sizes.

    Args:
        centre: (features,) values that medians are moved to.
    """

    def __init__(self, centre: Sequence[float]) -> None:
        self.centre = np.asarray(centre, np.float32)

    @classmethod
    def fit(cls, source: Sequence[SourceTask]) -> CentredAlignment:
        """Fits the frame: the mean of the tasks' medians."""
        return cls(np.mean([np.median(task.sample_rows, axis=0) for task in source], axis=0).tolist())

    def of(self, task: Task) -> FeatureMap:
        return _make_shift(self.centre - np.median(task.sample_rows, axis=0).astype(np.float32))

    def to_json(self) -> dict[str, Any]:
        return {"centre": self.centre.tolist()}


class QuantileAlignment(Alignment):
    """An alignment of each feature to the value of the same quantile in the frame, the barycentre of the tasks.

    On a line, the barycentre of distributions by optimal transport has the mean of their quantile functions.

    Args:
        knots: (KNOTS, features), the frame's quantiles.
    """

    def __init__(self, knots: Sequence[Sequence[float]]) -> None:
        self.knots = np.asarray(knots, np.float64)

    @classmethod
    def fit(cls, source: Sequence[SourceTask]) -> QuantileAlignment:
        return cls(np.mean([_knots(task) for task in source], axis=0).tolist())

    def of(self, task: Task) -> FeatureMap:
        return _make_transport(_knots(task), self.knots)

    def to_json(self) -> dict[str, Any]:
        return {"knots": self.knots.tolist()}


def _make_transport(own: NDArray[np.float64], frame: NDArray[np.float64]) -> FeatureMap:
    """Maps quantiles to quantiles, (KNOTS, features) each; a value that repeats goes to the mean of its targets."""
    knots: list[tuple[NDArray[np.float64], NDArray[np.float64]]] = []
    for values, wanted in zip(own.T, frame.T, strict=True):
        distinct, index, counts = np.unique(values, return_inverse=True, return_counts=True)
        knots.append((distinct, np.bincount(index, wanted) / counts))

    def map_features(features: Features) -> Features:
        out = np.empty(features.shape, np.float32)
        for index, (source, target) in enumerate(knots):
            values = features[..., index]
            # Beyond the sample a value keeps its distance to the sample's end.
            beyond = np.minimum(values - source[0], 0.0) + np.maximum(values - source[-1], 0.0)
            out[..., index] = np.interp(values, source, target) + beyond
        return out

    return map_features


def _knots(task: Task) -> NDArray[np.float64]:
    """Computes (KNOTS, features) quantiles over a task's sample."""
    found: NDArray[np.float64] = np.quantile(task.sample_rows.astype(np.float64), np.linspace(0, 1, KNOTS), axis=0)
    return found


def _units(hardware: Hardware) -> dict[str, float]:
    """Returns the units of a machine's amounts."""
    return {
        "l1": float(max(1, hardware.l1_bytes)),
        "l2": float(max(1, hardware.l2_bytes)),
        "lanes": float(max(1, hardware.float_lanes)),
        "registers": float(max(1, hardware.vector_registers)),
        "operation": 1.0 / hardware.peak_flops,
        "byte": 1.0 / max(1.0, hardware.bandwidth),
        "one": 1.0,
    }


def _feature_unit(name: str) -> str | None:
    """Returns the unit of a feature that is a logarithm of an amount; None if all machines count it alike."""
    if name in ("vectorize.product", "vectorize.length"):
        return "lanes"
    if name in ("roofline.accumulators", "roofline.registers"):
        return "registers"
    if name.endswith("nanoseconds"):
        return "operation"
    if (name.startswith("inner") and name.endswith("working_set")) or name.endswith("distance_bytes"):
        return "l2"
    return None


_UNIT_OF = {name: unit for name in COUNTS if (unit := _feature_unit(name)) is not None}

ALIGNMENTS: dict[str, type[Any]] = {
    "none": NoAlignment,
    "machine": MachineAlignment,
    "centred": CentredAlignment,
    "quantile": QuantileAlignment,
}
"""Name -> class, which `fit`s the frame of source tasks."""


def get(name: str) -> type[Any]:
    """Finds an alignment by its name.

    Raises:
        TransferError: no alignment has this name.
    """
    return ALIGNMENTS[choice("align", name, ALIGNMENTS, error=TransferError)]

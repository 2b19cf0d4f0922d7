"""The choice of dtypes of a mixed-precision network, with its alternatives: plain data that a run stores."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from autotune.graph.ir import Graph

_STORED_NAMES = {
    "required_decibels": "wanted",
    "bound": "asked",
    "predicted_decibels": "predicted",
    "measured_decibels": "measured",
}
"""Attribute of `Mixture` → its key in stored data, where they differ."""
_DECIBELS = ("predicted", "measured", "wanted")
"""Keys of ratios in decibels, which are null for infinity."""


@dataclass(frozen=True)
class Candidate:
    """A choice of kernel dtypes with its estimates.

    Attributes:
        name: label for people.
        decibels: ratio of signal to noise of the worst output, with the noise of all places summed; infinite in
            float32.
        seconds: estimated time of the network.
        narrow: number of kernels in 16 bits.
        int8: number of kernels on bytes.
    """

    name: str
    decibels: float
    seconds: float
    narrow: int
    int8: int = 0


@dataclass(frozen=True)
class Mixture:
    """The kernels of a network by dtype: float32, 16 bits, or bytes.

    Attributes:
        dtype: dtype of the kernels in 16 bits.
        full: kernels in float32, by name.
        narrow: kernels in 16 bits.
        required_decibels: minimum ratio of signal to noise of every output, dB.
        bound: the configuration's bound: the ratio in dB, or "as openvino" for the error of that peer.
        predicted_decibels: ratio of signal to noise of the worst output, dB, with the noise of all places summed.
        measured_decibels: measured ratio, dB, with all places rounded together, on the same inputs.
        inputs: number of sets of inputs.
        seconds: time of the network by measurements and the roofline.
        front: choices along the trade-off, the slowest first, including all in float32 and all in 16 bits.
        graph: digest of the graph that the names belong to.
        int8: layers on bytes.
        bytes_allowed: whether layers could be on bytes.
    """

    dtype: str
    full: tuple[str, ...]
    narrow: tuple[str, ...]
    required_decibels: float
    bound: float | str
    predicted_decibels: float
    measured_decibels: float
    inputs: int
    seconds: float
    front: tuple[Candidate, ...]
    graph: str
    int8: tuple[str, ...] = ()
    bytes_allowed: bool = False

    def to_json(self) -> dict[str, Any]:
        """Returns plain data, in which infinity is null."""
        found = {_STORED_NAMES.get(name, name): value for name, value in asdict(self).items()}
        found["front"] = [{**each, "decibels": _finite_or_none(each["decibels"])} for each in found["front"]]
        found |= {name: list(found[name]) for name in ("full", "narrow", "int8")}
        return {**found, **{name: _finite_or_none(found[name]) for name in _DECIBELS}}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Mixture:
        """Reads the data of `to_json`.

        Raises:
            KeyError, TypeError: the data are not those of `to_json`.
        """
        fields = dict(data)
        front = tuple(Candidate(**{**each, "decibels": _number(each["decibels"])}) for each in fields.pop("front"))
        fields |= {name: tuple(fields[name]) for name in ("full", "narrow")} | {"int8": tuple(fields.get("int8", ()))}
        fields |= {name: _number(fields[name]) for name in _DECIBELS}
        fields |= {name: fields.pop(stored) for name, stored in _STORED_NAMES.items()}
        return cls(**fields, front=front)

    def __str__(self) -> str:
        kernels = len(self.full) + len(self.narrow) + len(self.int8)
        in_bytes = f" and {len(self.int8)} in int8" if self.bytes_allowed else ""
        return (
            f"{len(self.narrow)} of {kernels} kernels in {self.dtype}{in_bytes}, "
            f"{decibels_text(self.measured_decibels)} beside float32 "
            f"({decibels_text(self.predicted_decibels)} predicted, {decibels_text(self.required_decibels)} wanted)"
        )


def decibels_text(decibels: float) -> str:
    """Formats decibels for people."""
    return "exact" if math.isinf(decibels) else f"{decibels:.1f} dB"


def graph_digest(graph: Graph) -> str:
    """Computes a digest of the names, operations, attributes and types of a graph's nodes."""
    text = "\n".join([str(dict(graph.inputs)), *map(str, graph.nodes), str(graph.outputs)])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _finite_or_none(decibels: float) -> float | None:
    return None if math.isinf(decibels) else decibels


def _number(decibels: float | None) -> float:
    return math.inf if decibels is None else decibels

"""What was chosen for a network in mixed precision, and what it was chosen from: plain data, kept with a run."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from autotune.graph.ir import Graph


@dataclass(frozen=True)
class Candidate:
    """A choice of kernels, with its estimates.

    Attributes:
        name: for people.
        decibels: signal to noise of the worst output, the noise of all places added up; infinite in float32.
        seconds: of the network.
        narrow: how many kernels are in 16 bits.
        int8: how many are on bytes.
    """

    name: str
    decibels: float
    seconds: float
    narrow: int
    int8: int = 0


@dataclass(frozen=True)
class Mixture:
    """Which kernels are in float32, which in 16 bits, and which on bytes.

    Attributes:
        dtype: of those in 16 bits.
        full: kernels in float32, by name.
        narrow: kernels in 16 bits.
        wanted: signal to noise that every output has to keep, dB.
        asked: what the configuration says: the same, or whose error it is.
        predicted: of the worst output, dB, the noise of all places added up.
        measured: the same, all places rounded together, on the same inputs.
        inputs: sets of inputs.
        seconds: of the network by measurements and the roofline.
        front: choices along the trade-off, the slowest first, with all in float32 and all in 16 bits.
        graph: digest of the graph that the names belong to.
        int8: layers on bytes.
        bytes_allowed: whether there could be such.
    """

    dtype: str
    full: tuple[str, ...]
    narrow: tuple[str, ...]
    wanted: float
    asked: float | str
    predicted: float
    measured: float
    inputs: int
    seconds: float
    front: tuple[Candidate, ...]
    graph: str
    int8: tuple[str, ...] = ()
    bytes_allowed: bool = False

    def to_json(self) -> dict[str, Any]:
        """Plain data, in which infinity is null."""
        found = asdict(self)
        found["front"] = [{**each, "decibels": _known(each["decibels"])} for each in found["front"]]
        found |= {name: list(found[name]) for name in ("full", "narrow", "int8")}
        return {**found, **{name: _known(found[name]) for name in ("predicted", "measured", "wanted")}}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Mixture:
        """What `to_json` gave.

        Raises:
            KeyError, TypeError: something else.
        """
        fields = dict(data)
        front = tuple(Candidate(**{**each, "decibels": _number(each["decibels"])}) for each in fields.pop("front"))
        fields |= {name: tuple(fields[name]) for name in ("full", "narrow")} | {"int8": tuple(fields.get("int8", ()))}
        fields |= {name: _number(fields[name]) for name in ("predicted", "measured", "wanted")}
        return cls(**fields, front=front)

    def __str__(self) -> str:
        kernels = len(self.full) + len(self.narrow) + len(self.int8)
        in_bytes = f" and {len(self.int8)} in int8" if self.bytes_allowed else ""
        return (
            f"{len(self.narrow)} of {kernels} kernels in {self.dtype}{in_bytes}, "
            f"{decibels_text(self.measured)} beside float32 "
            f"({decibels_text(self.predicted)} predicted, {decibels_text(self.wanted)} wanted)"
        )


def decibels_text(decibels: float) -> str:
    """For people."""
    return "exact" if math.isinf(decibels) else f"{decibels:.1f} dB"


def graph_digest(graph: Graph) -> str:
    """The same for graphs whose nodes have the same names, operations, attributes and types."""
    text = "\n".join([str(dict(graph.inputs)), *map(str, graph.nodes), str(graph.outputs)])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _known(decibels: float) -> float | None:
    return None if math.isinf(decibels) else decibels


def _number(decibels: float | None) -> float:
    return math.inf if decibels is None else decibels

"""Options of a compilation: what is made of a graph, for which target; what excludes what is checked here alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import TypeVar

from autotune.config import ConfigError, Quantisation
from autotune.graph.offload import Block, block_of
from autotune.graph.passes.pipeline import GraphPass
from autotune.tuning.task import CPU
from search_space.ir.intervals import Span
from targets import registry
from targets.base import Target

E = TypeVar("E", bound=StrEnum)


class Precision(StrEnum):
    """Type that layers multiply, and that values between kernels are stored in; `mixed`: chosen for each kernel."""

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"
    MIXED = "mixed"


class Quantise(StrEnum):
    """Which layers compute with integers, and how; of `weights8` and `weights4` weights alone have so few bits."""

    INT8 = "int8"
    SHIFT8 = "shift8"
    WEIGHTS8 = "weights8"
    WEIGHTS4 = "weights4"

    @property
    def weights_only(self) -> bool:
        """Says whether layers compute in floats."""
        return self in (Quantise.WEIGHTS8, Quantise.WEIGHTS4)


@dataclass(frozen=True)
class CompileOptions:
    """Options by which a graph becomes an executable.

    Attributes:
        target: of the kernels, but for those of `device`.
        device: accelerator that computes the layers that it can; needs `quantise` shift8.
        precision: of a graph in float32; one with 16-bit floats keeps its own.
        quantise: None: layers compute in floats.
        quantisation: how.
        passes: names of the graph passes to run; None: all.
        substitutions: passes behind the others that replace parts of a graph by faster ones of other rounding errors.
        sizes: least and greatest value of each open size, by name.
        seed: of every random draw, and of weights that the model does not carry.

    Raises:
        ValueError: an unknown precision or mode, or options that exclude each other.
    """

    target: Target = field(default_factory=partial(registry.get, CPU))
    device: Target | None = None
    precision: Precision = Precision.FLOAT32
    quantise: Quantise | None = None
    quantisation: Quantisation = Quantisation()
    passes: Sequence[str] | None = None
    substitutions: Sequence[GraphPass] = ()
    sizes: Mapping[str, Span] = field(default_factory=dict)
    seed: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "precision", _member(Precision, "precision", self.precision))
        if self.quantise is not None:
            object.__setattr__(self, "quantise", _member(Quantise, "quantise", self.quantise))
        mixed, shifts = self.precision is Precision.MIXED, self.quantise is Quantise.SHIFT8
        quantise = None if self.quantise is None else self.quantise.value
        if mixed and self.quantise not in (None, Quantise.INT8):
            raise ValueError(f"`quantise` must be int8 or None beside mixed precision, but got quantise={quantise!r}")
        if self.device is not None and not shifts:
            on = self.device.name
            raise ValueError(f"`quantise` must be 'shift8' for layers on {on}, but got quantise={quantise!r}")
        if shifts and self.precision is not Precision.FLOAT32:
            precision = self.precision.value
            raise ValueError(f"`precision` must be float32 beside quantise='shift8', but got precision={precision!r}")
        refused = {
            "network.quantise": self.quantise is not None and not self.quantise.weights_only,
            "network.substitutions": bool(self.substitutions),
            "network.precision": mixed,
        }
        for key, given in refused.items():
            if given and self.sizes:
                raise ConfigError(f"`{key}` must be left out where `sizes` are open, but it is given", key)

    @property
    def block(self) -> Block | None:
        """The block of the device's matrix instruction; None without a device.

        Raises:
            ValueError: a device that has none.
        """
        if self.device is None:
            return None
        block = block_of(self.device.hardware)
        if block is None:
            raise ValueError(
                f"`device` must be a target with a matrix instruction on blocks, but got device={self.device.name!r}"
            )
        return block

    @property
    def plain(self) -> bool:
        """Says whether the passes leave precision and layers as the model has them."""
        changes = (self.quantise, self.device) != (None, None) or bool(self.substitutions)
        return self.precision is Precision.FLOAT32 and not changes


def _member(kind: type[E], name: str, value: str) -> E:
    """Returns the member of an enumeration that a text names.

    Raises:
        ValueError: there is none.
    """
    try:
        return kind(value)
    except ValueError:
        allowed = ", ".join(kind)
        raise ValueError(f"`{name}` must be one of {allowed}, but got {name}={value!r}") from None

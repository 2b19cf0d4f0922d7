"""What a network runs: calls of kernels, loops of calls and choices among them, and where everything lies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from targets.extents import Extent
from targets.module import Module, Parameter


@dataclass(frozen=True)
class Place:
    """Where a step of a network finds an array.

    Attributes:
        space: `input` or `output` of the network, `weights`, `packed` (constants that are made when the network is
            loaded), `arena`, or `workspace` of the kernels.
        number: which of the inputs or outputs, or bytes into one of the others.
        beyond: bytes into the input or output.
        advance: of a step of a loop, bytes from where it is in one trip to where it is in the next one.
        period: trips after which it is where it was in the first one; 0: never.
        first: where it is in the first trip, where that is elsewhere.
    """

    space: str
    number: int
    beyond: int = 0
    advance: int = 0
    period: int = 0
    first: Place | None = None

    def shifted(self, nbytes: int) -> Place:
        """So many bytes further, in every trip."""
        first = None if self.first is None else self.first.shifted(nbytes)
        if self.space in ("input", "output"):
            return replace(self, beyond=self.beyond + nbytes, first=first)
        return replace(self, number=self.number + nbytes, first=first)


@dataclass(frozen=True)
class Step:
    """One kernel's call.

    Attributes:
        module: number of the kernel's module.
        arguments: of each parameter of the module, in order.
        title: what it computes, for people.
        sizes: of each size of the module, in order, what it is by the sizes of the network.
    """

    module: int
    arguments: tuple[Place, ...]
    title: str = ""
    sizes: tuple[Extent, ...] = ()


@dataclass(frozen=True)
class Loop:
    """Steps that run several times, one after the other in each trip.

    Attributes:
        trips: how often.
        steps: of a trip.
    """

    trips: int
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class Case:
    """Steps for a range of sizes.

    Attributes:
        spans: least and greatest value of each size of the network, in order.
        steps: what runs where all sizes are within these.
    """

    spans: tuple[tuple[int, int], ...]
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class Choice:
    """The first of several cases that the sizes of a call are within, or the last one."""

    cases: tuple[Case, ...]

    @property
    def steps(self) -> tuple[Step, ...]:
        """Of all cases, one after the other."""
        return tuple(step for case in self.cases for step in case.steps)


@dataclass(frozen=True)
class Packing:
    """A constant that is made when the network is loaded.

    Attributes:
        module: number of the module whose prologue makes it.
        name: of the module's parameter that it is.
        sources: where what it is made of lies, in the order of the parameter's `packed_from`.
        result: where it comes to lie.
    """

    module: int
    name: str
    sources: tuple[Place, ...]
    result: Place


@dataclass(frozen=True)
class NetworkPlan:
    """Kernels in the order in which one call runs them, and where everything lies.

    Attributes:
        name: of the network, a C identifier; names of the modules begin with it and differ.
        modules: distinct kernels.
        steps: calls of them, and loops of calls and choices among calls where the target runs them.
        inputs, outputs: of the network.
        weights_bytes: of all constants, as the kernels take them, or as what is packed when the network is loaded.
        arena_bytes: of the activations; the kernels' own workspace follows them.
        packings: constants that are made when the network is loaded.
        packed_bytes: of these.
        parts: all constants, which lie one after the other.
        sizes: what shapes of inputs leave open, by name: least and greatest value.
    """

    name: str
    modules: tuple[Module, ...]
    steps: tuple[Step | Loop | Choice, ...]
    inputs: tuple[Parameter, ...]
    outputs: tuple[Parameter, ...]
    weights_bytes: int
    arena_bytes: int
    packings: tuple[Packing, ...] = ()
    packed_bytes: int = 0
    parts: tuple[NDArray[np.uint8], ...] = field(default=(), compare=False, repr=False)
    sizes: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def calls(self) -> tuple[Step, ...]:
        """Each call once, those of loops and of all cases where these stand."""
        return tuple(call for step in self.steps for call in ((step,) if isinstance(step, Step) else step.steps))

    @cached_property
    def weights(self) -> NDArray[np.uint8]:
        """All constants in one array, `weights_bytes` long; as much memory again as they take."""
        return np.concatenate([np.zeros(0, np.uint8), *self.parts])

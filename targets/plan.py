"""Calls of a network's kernels, loops of calls and choices among them, and the positions of all arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from targets.extents import Extent
from targets.module import Module, Parameter


@dataclass(frozen=True)
class BufferRef:
    """The position of an array that a step of a network uses.

    Attributes:
        space: `input` or `output` of the network, `weights`, `packed` (constants that are made when the network is
            loaded), `arena`, or `workspace` of the kernels.
        number: index of the input or output, or bytes into one of the other spaces.
        beyond: bytes into the input or output.
        advance: bytes from the position in one trip of a loop to that in the next.
        period: trips after which the position of the first trip recurs; 0: never.
        first: position in the first trip, if that differs.
    """

    space: str
    number: int
    beyond: int = 0
    advance: int = 0
    period: int = 0
    first: BufferRef | None = None

    def shift(self, nbytes: int) -> BufferRef:
        """Returns this position moved by so many bytes, in every trip."""
        first = None if self.first is None else self.first.shift(nbytes)
        if self.space in ("input", "output"):
            return replace(self, beyond=self.beyond + nbytes, first=first)
        return replace(self, number=self.number + nbytes, first=first)


@dataclass(frozen=True)
class Step:
    """The call of one kernel.

    Attributes:
        module: number of the kernel's module.
        arguments: position of each parameter of the module, in order.
        title: description of the computation, for people.
        sizes: expression of each size of the module by the network's sizes, in order.
    """

    module: int
    arguments: tuple[BufferRef, ...]
    title: str = ""
    sizes: tuple[Extent, ...] = ()


@dataclass(frozen=True)
class Loop:
    """Steps that run several times, one after the other in each trip.

    Attributes:
        trips: number of trips.
        steps: steps of one trip.
    """

    trips: int
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class Case:
    """Steps for a range of sizes.

    Attributes:
        spans: least and greatest value of each size of the network, in order.
        steps: steps that run if all sizes are within `spans`.
    """

    spans: tuple[tuple[int, int], ...]
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class Choice:
    """The first of several cases that the sizes of a call are within, or the last one."""

    cases: tuple[Case, ...]

    @property
    def steps(self) -> tuple[Step, ...]:
        """Steps of all cases, one after the other."""
        return tuple(step for case in self.cases for step in case.steps)


@dataclass(frozen=True)
class Packing:
    """A constant that is made when the network is loaded.

    Attributes:
        module: number of the module whose prologue makes it.
        name: name of the module's parameter that receives the constant.
        sources: positions of the arrays that it is packed from, in the order of the parameter's `packed_from`.
        result: position of the packed constant.
    """

    module: int
    name: str
    sources: tuple[BufferRef, ...]
    result: BufferRef


@dataclass(frozen=True)
class NetworkPlan:
    """Kernels in the order in which one call runs them, and the positions of all arrays.

    Attributes:
        name: name of the network, a C identifier; names of the modules begin with it and differ.
        modules: distinct kernels.
        steps: calls of them, and loops of calls and choices among calls where the target runs them.
        inputs, outputs: parameters of the network.
        weights_bytes: bytes of all constants as the network stores them: packed already, or to be packed when it is
            loaded.
        arena_bytes: bytes of the activations; the kernels' own workspace follows them.
        packings: constants that are made when the network is loaded.
        packed_bytes: bytes of the packed constants.
        parts: all constants, one after the other in memory.
        sizes: least and greatest value of each open size, by name.
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
        """Each call once, in order; a loop's and a choice's calls take its place."""
        return tuple(call for step in self.steps for call in ((step,) if isinstance(step, Step) else step.steps))

    @cached_property
    def weights(self) -> NDArray[np.uint8]:
        """All constants in one array, `weights_bytes` long; as much memory again as they take."""
        return np.concatenate([np.zeros(0, np.uint8), *self.parts])

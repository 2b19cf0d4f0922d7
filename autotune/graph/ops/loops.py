"""A loop with a static number of steps over a body graph, and its results.

A node has one value, but a loop has several results. They lie one after another in the bytes that `loop` returns, each
at a multiple of `ALIGNMENT`. `loop_result` is a view of one result.

A loop has the inputs of its body: initial states, sequences, and inputs shared by all steps. Each step reads one
element of a sequence along its first axis. Some outputs of the body are `stacked`: their result holds the outputs of
all steps along a new first axis. The result of any other output is that of the last step. A step's state is an output
of the step before. ONNX's `Scan` and JAX's `scan` are defined in this way.

A step reads the states of the previous step while it writes its own, so both need separate memory. A stacked state is
read from the stack. Any other state has two buffers that steps write alternately.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from autotune.graph.ops.base import GraphOp, Kind, Types, freeze, register
from autotune.graph.types import Array, Attributes, TensorType
from search_space.dtypes import numpy_dtype

ALIGNMENT = 64
"""Alignment of results in bytes."""
MOST_TRIPS = 1 << 20
"""Maximum number of steps of a loop; a greater number is an error of the model."""


class Body(Protocol):
    """The body of a loop: the computation of one step; `autotune.graph.loops.Body` implements it."""

    @property
    def state_outputs(self) -> tuple[int, ...]:
        """The number of the output that becomes each state in the next step."""

    @property
    def sequences(self) -> int:
        """Number of inputs that are elements of sequences."""

    @property
    def stacked(self) -> tuple[bool, ...]:
        """Flags of the outputs of which the values of all steps are stacked."""

    @property
    def inputs(self) -> tuple[TensorType, ...]:
        """Types of states, then elements of sequences, then shared inputs."""

    @property
    def outputs(self) -> tuple[TensorType, ...]:
        """Types of a step's outputs."""

    def step(self, arrays: Sequence[Array]) -> list[Array]:
        """Computes the outputs of one step."""


@dataclass(frozen=True)
class OutputPosition:
    """The position of one output of a loop's steps in the loop's bytes.

    Attributes:
        base: offset that the first step writes to.
        advance: bytes from one step's output to the next one's.
        period: number of steps after which offsets repeat; 0: they do not repeat, or all steps share one.
        result: offset of the result.
        type: type of the result.
    """

    base: int
    advance: int
    period: int
    result: int
    type: TensorType

    def at(self, step: int) -> int:
        """Returns the offset that a step writes to."""
        return self.base + self.advance * (step % self.period if self.period else step)


def lay_out_outputs(attrs: Attributes) -> tuple[list[OutputPosition], int]:
    """Lays out the outputs of a loop's steps, and returns the total number of bytes.

    Returns:
        The position of each output, and the bytes of all.
    """
    body, trips = attrs["body"], attrs["trips"]
    layout, start = [], 0
    for number, kind in enumerate(body.outputs):
        if body.stacked[number]:
            back = attrs["writes_back"][number]
            first, advance = ((trips - 1) * kind.nbytes, -kind.nbytes) if back else (0, kind.nbytes)
            whole = TensorType((trips, *kind.shape), kind.dtype)
            layout.append(OutputPosition(start + first, advance, 0, start, whole))
            start += _align(whole.nbytes)
        elif number in body.state_outputs:
            room = _align(kind.nbytes)
            layout.append(OutputPosition(start, room, 2, start + (trips - 1) % 2 * room, kind))
            start += 2 * room
        else:
            layout.append(OutputPosition(start, 0, 0, start, kind))
            start += _align(kind.nbytes)
    return layout, start


def _align(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


class _Loop(GraphOp):
    """An operation whose body is a graph: it has no expression, and caches of other operations skip it."""

    def infer(self, attrs: Attributes, types: Types) -> TensorType:
        return TensorType((lay_out_outputs(attrs)[1],), "uint8")

    def evaluate(self, attrs: Attributes, arrays: Sequence[Array]) -> Array:
        body, trips, count = attrs["body"], attrs["trips"], len(attrs["body"].state_outputs)
        states = list(arrays[:count])
        sequences, shared = arrays[count : count + body.sequences], arrays[count + body.sequences :]
        positions, nbytes = lay_out_outputs(attrs)
        data = np.zeros(nbytes, np.uint8)
        for step in range(trips):
            seen = [s[trips - 1 - step if b else step] for s, b in zip(sequences, attrs["reads_back"], strict=True)]
            made = body.step([*states, *seen, *shared])
            for place, kind, value in zip(positions, body.outputs, made, strict=True):
                view_in_bytes(data, place.at(step), kind)[...] = value
            states = [made[number] for number in body.state_outputs]
        return data


class _Result(GraphOp):
    """A view of the bytes of a loop."""

    def infer(self, attrs: Attributes, types: Types) -> TensorType:
        return TensorType(attrs["shape"], attrs["dtype"])

    def evaluate(self, attrs: Attributes, arrays: Sequence[Array]) -> Array:
        return view_in_bytes(arrays[0], attrs["start"], self.infer(attrs, []))


def view_in_bytes(data: Array, start: int, kind: TensorType) -> Array:
    """Returns a view of an array in the bytes of a loop."""
    return data[start : start + kind.nbytes].view(numpy_dtype(kind.dtype)).reshape(kind.shape)


def _loop_attributes(attributes: Attributes, types: Types) -> dict[str, Any]:
    body: Body = attributes["body"]
    trips, states = attributes["trips"], len(body.state_outputs)
    reads = freeze(attributes.get("reads_back", (False,) * body.sequences))
    writes = freeze(attributes.get("writes_back", (False,) * len(body.outputs)))
    if type(trips) is not int or not 1 <= trips <= MOST_TRIPS:
        raise ValueError(f"`trips` must be 1 to {MOST_TRIPS}, but got trips={trips!r}")
    if (len(reads), len(writes)) != (body.sequences, len(body.outputs)):
        raise ValueError(
            f"`reads_back` and `writes_back` must be of {body.sequences} sequences and {len(body.outputs)} outputs, "
            f"but got {list(reads)} and {list(writes)}"
        )
    wanted = [
        TensorType((trips, *kind.shape), kind.dtype) if states <= place < states + body.sequences else kind
        for place, kind in enumerate(body.inputs)
    ]
    if list(types) != wanted:
        raise ValueError(f"inputs must be {', '.join(map(str, wanted))}, but got {', '.join(map(str, types))}")
    return {"body": body, "trips": trips, "reads_back": reads, "writes_back": writes}


def _result_attributes(attributes: Attributes, types: Types) -> dict[str, Any]:
    (data,) = types
    number, start = int(attributes["place"]), int(attributes["start"])
    kind = TensorType(freeze(attributes["shape"]), attributes["dtype"])
    within = data.dtype == "uint8" and len(data.shape) == 1 and 0 <= start <= data.size - kind.nbytes
    if not within or start % ALIGNMENT:
        raise ValueError(f"a result must lie among the bytes of a loop, but got {kind} at {start} of {data}")
    return {"place": number, "start": start, "shape": kind.shape, "dtype": kind.dtype}


register(
    _Loop("loop", Kind.compute, _loop_attributes),
    _Result("loop_result", Kind.view, _result_attributes),
)

"""A loop of a known number of steps over a body of its own, and what it gives.

A node gives one value, a loop has several results: they lie one after another in the bytes that `loop` gives, each at a
multiple of `ALIGNMENT`, and `loop_result` is a view of one of them.

The inputs of a loop are those of its body: first values of the states; then sequences, of which each step sees one
element along the first axis; then what all steps see as it is. Of the body's outputs some are `stacked`: the result has
those of all steps along a new first axis; of the others it is that of the last step. A state is in each step but the
first what one of the outputs was in the step before. So ONNX's `Scan` and JAX's `scan` have it.

A step reads the states of the step before while it makes its own, so the two do not lie in one place: what is stacked
is read where it was stacked, any other state has two places, which steps write by turns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from autotune.graph.ops.base import GraphOp, Kind, Types, frozen, register
from autotune.graph.types import Array, Attributes, TensorType
from search_space.dtypes import numpy_dtype

ALIGNMENT = 64
"""Bytes at multiples of which results begin."""
MOST_TRIPS = 1 << 20
"""Steps of a loop: what is beyond that is an error of the model, not a network that anybody waits for."""


class Body(Protocol):
    """What a loop does in each step; `autotune.graph.loops.Body` is one."""

    @property
    def carried(self) -> tuple[int, ...]:
        """Of each state the number of the output that it is in the next step."""

    @property
    def sequences(self) -> int:
        """How many inputs are elements of sequences."""

    @property
    def stacked(self) -> tuple[bool, ...]:
        """Of each output whether all steps are kept."""

    @property
    def inputs(self) -> tuple[TensorType, ...]:
        """States, elements of sequences, then what all steps see."""

    @property
    def outputs(self) -> tuple[TensorType, ...]:
        """Of a step."""

    def step(self, arrays: Sequence[Array]) -> list[Array]:
        """Outputs of a step of these inputs."""


@dataclass(frozen=True)
class Written:
    """Where the steps of a loop write one of their outputs, among the loop's bytes.

    Attributes:
        base: where the first step writes.
        advance: bytes from a step's to the next one's.
        period: steps after which places come again; 0: each step has its own, or all have the same one.
        result: where the result begins.
        type: of the result.
    """

    base: int
    advance: int
    period: int
    result: int
    type: TensorType

    def at(self, step: int) -> int:
        """Where a step writes."""
        return self.base + self.advance * (step % self.period if self.period else step)


def written(attrs: Attributes) -> tuple[list[Written], int]:
    """Where the steps of a loop write each of their outputs, and the bytes of all."""
    body, trips = attrs["body"], attrs["trips"]
    found, start = [], 0
    for number, kind in enumerate(body.outputs):
        if body.stacked[number]:
            back = attrs["writes_back"][number]
            first, advance = ((trips - 1) * kind.nbytes, -kind.nbytes) if back else (0, kind.nbytes)
            whole = TensorType((trips, *kind.shape), kind.dtype)
            found.append(Written(start + first, advance, 0, start, whole))
            start += _spaced(whole.nbytes)
        elif number in body.carried:
            room = _spaced(kind.nbytes)
            found.append(Written(start, room, 2, start + (trips - 1) % 2 * room, kind))
            start += 2 * room
        else:
            found.append(Written(start, 0, 0, start, kind))
            start += _spaced(kind.nbytes)
    return found, start


def _spaced(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


class _Loop(GraphOp):
    """Its body is a graph, so it has no expression; nothing of it is kept in the caches of other operations."""

    def infer(self, attrs: Attributes, types: Types) -> TensorType:
        return TensorType((written(attrs)[1],), "uint8")

    def evaluate(self, attrs: Attributes, arrays: Sequence[Array]) -> Array:
        body, trips, count = attrs["body"], attrs["trips"], len(attrs["body"].carried)
        states = list(arrays[:count])
        sequences, shared = arrays[count : count + body.sequences], arrays[count + body.sequences :]
        places, nbytes = written(attrs)
        data = np.zeros(nbytes, np.uint8)
        for step in range(trips):
            seen = [s[trips - 1 - step if b else step] for s, b in zip(sequences, attrs["reads_back"], strict=True)]
            made = body.step([*states, *seen, *shared])
            for place, kind, value in zip(places, body.outputs, made, strict=True):
                shown(data, place.at(step), kind)[...] = value
            states = [made[number] for number in body.carried]
        return data


class _Result(GraphOp):
    """A view of the bytes of a loop."""

    def infer(self, attrs: Attributes, types: Types) -> TensorType:
        return TensorType(attrs["shape"], attrs["dtype"])

    def evaluate(self, attrs: Attributes, arrays: Sequence[Array]) -> Array:
        return shown(arrays[0], attrs["start"], self.infer(attrs, []))


def shown(data: Array, start: int, kind: TensorType) -> Array:
    """An array among the bytes of a loop."""
    return data[start : start + kind.nbytes].view(numpy_dtype(kind.dtype)).reshape(kind.shape)


def _loop_attributes(given: Attributes, types: Types) -> dict[str, Any]:
    body: Body = given["body"]
    trips, states = given["trips"], len(body.carried)
    reads = frozen(given.get("reads_back", (False,) * body.sequences))
    writes = frozen(given.get("writes_back", (False,) * len(body.outputs)))
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


def _result_attributes(given: Attributes, types: Types) -> dict[str, Any]:
    (data,) = types
    place, start = int(given["place"]), int(given["start"])
    kind = TensorType(frozen(given["shape"]), given["dtype"])
    within = data.dtype == "uint8" and len(data.shape) == 1 and 0 <= start <= data.size - kind.nbytes
    if not within or start % ALIGNMENT:
        raise ValueError(f"a result must lie among the bytes of a loop, but got {kind} at {start} of {data}")
    return {"place": place, "start": start, "shape": kind.shape, "dtype": kind.dtype}


register(
    _Loop("loop", Kind.compute, _loop_attributes),
    _Result("loop_result", Kind.view, _result_attributes),
)

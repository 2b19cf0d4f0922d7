"""Operators that move elements or name them anew."""

from __future__ import annotations

import math

from autotune.graph.importer.call import Call
from autotune.graph.importer.registry import imports


@imports("Identity", "Dropout")
def same(call: Call) -> list[str | None]:
    """The input itself. The mask of a Dropout is not available."""
    if call.op == "Dropout" and call.has(2):
        call.require(not call.array(2, "training_mode"), "must be in inference mode", "training_mode=1")
    return [call.value(0), *[None] * (call.outputs - 1)]


@imports("Reshape")
def reshape(call: Call) -> str:
    """0 keeps an extent, -1 is what is left."""
    source = call.shape()
    wanted = list(call.integers(1, "shape"))
    if not call.attr("allowzero", 0):
        call.require(
            all(n != 0 or i < len(source) for i, n in enumerate(wanted)), "must keep known extents", f"shape={wanted}"
        )
        wanted = [source[i] if n == 0 else n for i, n in enumerate(wanted)]
    if -1 in wanted:
        rest = -math.prod(wanted)
        wanted[wanted.index(-1)] = math.prod(source) // rest if rest else 0
    return call.reshape(call.value(0), wanted)


@imports("Flatten")
def flatten(call: Call) -> str:
    """Two dimensions, cut at `axis`."""
    shape, axis = call.shape(), call.attr("axis", 1)
    cut = axis + len(shape) if axis < 0 else axis
    return call.reshape(call.value(0), (math.prod(shape[:cut]), math.prod(shape[cut:])))


@imports("Unsqueeze")
def unsqueeze(call: Call) -> str:
    """Dimensions of 1 at `axes` of the output."""
    axes = call.attr("axes") if call.opset < 13 else call.integers(1, "axes")
    rank = len(call.shape()) + len(axes)
    places, rest = {call.axis(a, rank) for a in axes}, iter(call.shape())
    return call.reshape(call.value(0), [1 if place in places else next(rest) for place in range(rank)])


@imports("Squeeze")
def squeeze(call: Call) -> str:
    """Without the dimensions at `axes`, or without every dimension of 1."""
    shape = call.shape()
    axes = call.attr("axes") if call.opset < 13 else call.integers(1, "axes") if call.has(1) else None
    if axes is None:
        axes = [place for place, extent in enumerate(shape) if extent == 1]
    gone = {call.axis(a, len(shape)) for a in axes}
    call.require(all(shape[a] == 1 for a in gone), "must remove dimensions of 1", f"axes={list(axes)}")
    return call.reshape(call.value(0), [extent for place, extent in enumerate(shape) if place not in gone])


@imports("Transpose")
def transpose(call: Call) -> str:
    """Reversed by default."""
    return call.transpose(call.value(0), call.attr("perm", tuple(reversed(range(len(call.shape()))))))


@imports("Concat")
def concat(call: Call) -> str:
    """Along `axis`."""
    return call.add("concat", *call.values(), axis=call.axis(call.attr("axis", 1), len(call.shape())))

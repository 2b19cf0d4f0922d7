"""Operators that move elements."""

from __future__ import annotations

import math
from collections.abc import Sequence

from autotune.graph.calls import Call
from autotune.graph.frontends.onnx.importer.registry import imports
from autotune.graph.passes.simplify.views import MOST_PARTS


@imports("Reshape")
def reshape(call: Call) -> str:
    """Reshapes to a constant shape, in which 0 means the input's extent and -1 the remaining elements."""
    value = call.value(0)
    before = call.shape(value)
    wanted = list(call.ints("shape", 1) or ())
    if not call.attrs.get("allowzero", 0):
        wanted = [before[i] if n == 0 else n for i, n in enumerate(wanted)]
    if -1 in wanted:
        wanted[wanted.index(-1)] = math.prod(before) // -math.prod(wanted)
    return call.add("reshape", [value], shape=tuple(wanted))


@imports("Flatten")
def flatten(call: Call) -> str:
    """Flattens to a matrix whose columns begin at an axis."""
    value = call.value(0)
    shape = call.shape(value)
    axis = int(call.attrs.get("axis", 1))
    axis += len(shape) if axis < 0 else 0
    return call.add("reshape", [value], shape=(math.prod(shape[:axis]), math.prod(shape[axis:])))


@imports("Unsqueeze")
def unsqueeze(call: Call) -> str:
    """Inserts axes of extent 1."""
    value = call.value(0)
    shape = list(call.shape(value))
    axes = call.ints("axes", 1) or ()
    for axis in sorted(a % (len(shape) + len(axes)) for a in axes):
        shape.insert(axis, 1)
    return call.add("reshape", [value], shape=tuple(shape))


@imports("Squeeze")
def squeeze(call: Call) -> str:
    """Removes axes of extent 1; all by default."""
    value = call.value(0)
    shape = call.shape(value)
    axes = call.ints("axes", 1)
    gone = {a % len(shape) for a in axes} if axes is not None else {a for a, n in enumerate(shape) if n == 1}
    return call.add("reshape", [value], shape=tuple(n for a, n in enumerate(shape) if a not in gone))


@imports("Transpose")
def transpose(call: Call) -> str:
    """Permutes axes; reverses them by default."""
    value = call.value(0)
    axes = call.ints("perm", default=range(len(call.shape(value)) - 1, -1, -1))
    return call.add("transpose", [value], axes=axes)


@imports("Concat")
def concat(call: Call) -> str:
    """Concatenates along an axis; empty parts are ignored."""
    arrays = [call.array(i) for i in range(len(call.inputs))]
    parts = [call.value(i) for i, array in enumerate(arrays) if array is None or array.size]
    return concatenate_parts(call, parts, int(call.attrs["axis"]))


def concatenate_parts(call: Call, parts: Sequence[str], axis: int) -> str:
    """Concatenates values; very many in several steps."""
    while len(parts) > MOST_PARTS:
        groups = [list(parts[i : i + MOST_PARTS]) for i in range(0, len(parts), MOST_PARTS)]
        parts = [call.add("concat", group, axis=axis) for group in groups]
    return parts[0] if len(parts) == 1 else call.add("concat", parts, axis=axis)

"""Branches and loops: what they do is known when a model is read, so that nothing of them is left in the graph."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx

from autotune.graph.importer.nodes import import_subgraph
from autotune.graph.importer.registry import Call, Result, imports
from autotune.graph.importer.selection import taken
from autotune.graph.importer.shapes import joined
from autotune.graph.ir import Array

MOST_STEPS = 1024
"""Steps of a loop, each of which adds its nodes."""


@imports("If")
def branch(call: Call) -> list[Result]:
    """The branch that a constant condition chooses."""
    chosen = bool(call.known(0, "condition").reshape(-1)[0])
    return import_subgraph(call, call.attrs["then_branch" if chosen else "else_branch"], [])


@imports("Loop")
def loop(call: Call) -> list[Result]:
    """Step after step; how many there are, and whether to go on, must be known."""
    body: onnx.GraphProto = call.attrs["body"]
    trips = int(call.known(0, "trip count").reshape(-1)[0]) if call.has(0) else None
    going: Result = call.known(1, "condition") if call.has(1) else np.array(True)
    state: list[Result] = [call.context.result(name) for name in call.inputs[2:]]
    stacked: list[list[Result]] = [[] for _ in range(len(body.output) - 1 - len(state))]
    step = 0
    while step != trips:
        call.require(not isinstance(going, str), "must go on by a constant condition", f"a computed one, {going}")
        if not np.asarray(going).reshape(-1)[0]:
            break
        call.require(step < MOST_STEPS, f"must have at most {MOST_STEPS} steps", "more")
        going, *found = import_subgraph(call, body, [np.array(step, np.int64), going, *state])
        state = found[: len(state)]
        for column, value in zip(stacked, found[len(state) :], strict=True):
            column.append(value)
        step += 1
    return [*state, *(_stacked(call, column, 0) for column in stacked)]


@imports("Scan")
def scan(call: Call) -> list[Result]:
    """Step after step over the elements of sequences."""
    call.require(call.context.opset >= 9, "must be of operator set 9 or newer", f"opset={call.context.opset}")
    body: onnx.GraphProto = call.attrs["body"]
    count = int(call.attrs["num_scan_inputs"])
    results: list[Result] = [call.context.result(name) for name in call.inputs]
    state, sequences = results[: len(results) - count], results[len(results) - count :]
    shapes = [call.type(place).shape for place in range(len(state), len(results))]
    outputs = len(body.output) - len(state)
    axes = [a % len(s) for a, s in zip(call.ints("scan_input_axes", default=[0] * count) or (), shapes, strict=True)]
    reversed_inputs = call.ints("scan_input_directions", default=[0] * count) or ()
    output_axes = call.ints("scan_output_axes", default=[0] * outputs) or ()
    reversed_outputs = call.ints("scan_output_directions", default=[0] * outputs) or ()
    steps = shapes[0][axes[0]]
    call.require(steps <= MOST_STEPS, f"must have at most {MOST_STEPS} steps", steps)
    stacked: list[list[Result]] = [[] for _ in range(outputs)]
    for step in range(steps):
        places = [steps - 1 - step if backwards else step for backwards in reversed_inputs]
        parts = [_part(call, *each) for each in zip(sequences, places, axes, strict=True)]
        found = import_subgraph(call, body, [*state, *parts])
        state = found[: len(state)]
        for column, value in zip(stacked, found[len(state) :], strict=True):
            column.append(value)
    ways = zip(stacked, output_axes, reversed_outputs, strict=True)
    return [*state, *(_stacked(call, c[::-1] if back else c, axis) for c, axis, back in ways)]


def _part(call: Call, sequence: Result, place: int, axis: int) -> Result:
    """An element of a sequence."""
    if not isinstance(sequence, str):
        return np.asarray(np.take(sequence, place, axis))
    return taken(call, sequence, np.array(place), axis)


def _stacked(call: Call, parts: Sequence[Result], axis: int) -> Result:
    """Results of all steps along a new axis."""
    call.require(len(parts) > 0, "must have a step, where results of steps are read", "none")
    known: list[Array] = [part for part in parts if not isinstance(part, str)]
    if len(known) == len(parts):
        return np.stack(known, axis)
    values = [part if isinstance(part, str) else call.constant(part) for part in parts]
    shape = call.shape(values[0])
    place = axis % (len(shape) + 1)
    wide = (*shape[:place], 1, *shape[place:])
    return joined(call, [call.add("reshape", [value], shape=wide) for value in values], place)

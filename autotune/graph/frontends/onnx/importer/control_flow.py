"""Branches and loops whose number of steps and choices are constant at import.

A loop with equal steps becomes a loop of the graph (`bodies`); for any other loop, each step's nodes are added.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx

from autotune.graph.calls import Call, Result
from autotune.graph.frontends.onnx.importer.bodies import Steps, one_loop
from autotune.graph.frontends.onnx.importer.nodes import import_subgraph
from autotune.graph.frontends.onnx.importer.registry import imports
from autotune.graph.frontends.onnx.importer.selection import take_places
from autotune.graph.frontends.onnx.importer.shapes import concatenate_parts
from autotune.graph.ir import Array
from autotune.graph.ops.loops import MOST_TRIPS
from autotune.graph.unrolling import LEAST_STEPS, MOST_STEPS


@imports("If")
def branch(call: Call) -> list[Result]:
    """Imports the branch that a constant condition selects."""
    chosen = bool(call.require_array(0, "condition").reshape(-1)[0])
    return import_subgraph(call, call.attrs["then_branch" if chosen else "else_branch"], [])


@imports("Loop")
def loop(call: Call) -> Sequence[Result | None]:
    """Imports a loop with a constant number of steps, or a constant condition in each step."""
    body: onnx.GraphProto = call.attrs["body"]
    trips = int(call.require_array(0, "trip count").reshape(-1)[0]) if call.has(0) else None
    going: Result = call.require_array(1, "condition") if call.has(1) else np.array(True)
    state: list[Result] = [call.context.result(name) for name in call.inputs[2:]]
    outputs = len(body.output) - 1 - len(state)
    if (trips is None or trips >= LEAST_STEPS) and np.asarray(going).reshape(-1)[0]:
        number, condition, *names = (value.name for value in body.input)
        states = dict(zip(names, state, strict=True))
        steps = Steps(trips, states, writes_back=[False] * outputs, number=number, condition=condition)
        if (made := one_loop(call, body, steps)) is not None:
            return made
    stacked: list[list[Result]] = [[] for _ in range(outputs)]
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
    read = call.outputs[len(state) :]
    return [*state, *(_stack(call, column, 0, name) for column, name in zip(stacked, read, strict=False))]


@imports("Scan")
def scan(call: Call) -> Sequence[Result | None]:
    """Imports a loop over the elements of sequences."""
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
    call.require(steps <= MOST_TRIPS, f"must have at most {MOST_TRIPS} steps", steps)
    if steps >= LEAST_STEPS:
        names = [value.name for value in body.input]
        moved = [_axis_first(call, sequence, axis) for sequence, axis in zip(sequences, axes, strict=True)]
        elements = dict(zip(names[len(state) :], moved, strict=True))
        back = {name for name, turned in zip(elements, reversed_inputs, strict=True) if turned}
        states = dict(zip(names, state, strict=False))
        writes = [bool(turned) for turned in reversed_outputs]
        if (made := one_loop(call, body, Steps(steps, states, elements, back, writes))) is not None:
            last, whole = made[: len(state)], made[len(state) :]
            return [*last, *(_axis_at(call, value, axis) for value, axis in zip(whole, output_axes, strict=True))]
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
    ordered = [(column[::-1] if back else column, axis) for column, axis, back in ways]
    read = call.outputs[len(state) :]
    return [*state, *(_stack(call, *each, name) for each, name in zip(ordered, read, strict=False))]


def _axis_first(call: Call, sequence: Result, axis: int) -> Result:
    """Transposes a sequence so that its elements lie along the first axis."""
    if axis == 0:
        return sequence
    if not isinstance(sequence, str):
        return np.ascontiguousarray(np.moveaxis(sequence, axis, 0))
    rank = len(call.shape(sequence))
    return call.add("transpose", [sequence], axes=(axis, *(a for a in range(rank) if a != axis)))


def _axis_at(call: Call, value: Result, axis: int) -> Result:
    """Moves the first axis to another position."""
    if not isinstance(value, str):
        return np.ascontiguousarray(np.moveaxis(value, 0, axis))
    rank = len(call.shape(value))
    place = axis % rank
    axes = (*range(1, place + 1), 0, *range(place + 1, rank))
    return call.add("transpose", [value], axes=axes) if place else value


def _part(call: Call, sequence: Result, index: int, axis: int) -> Result:
    """Returns an element of a sequence."""
    if not isinstance(sequence, str):
        return np.asarray(np.take(sequence, index, axis))
    return take_places(call, sequence, np.array(index), axis)


def _stack(call: Call, parts: Sequence[Result], axis: int, name: str) -> Result | None:
    """Stacks the results of all steps along a new axis; without steps, records an error for readers of the result."""
    if not parts:
        call.context.failures[name] = (
            f"{call.op} node {call.title!r} must have a step, as {name!r} is read, but got none"
        )
        return None
    known: list[Array] = [part for part in parts if not isinstance(part, str)]
    if len(known) == len(parts):
        return np.stack(known, axis)
    values = [part if isinstance(part, str) else call.constant(part) for part in parts]
    shape = call.shape(values[0])
    place = axis % (len(shape) + 1)
    wide = (*shape[:place], 1, *shape[place:])
    return concatenate_parts(call, [call.add("reshape", [value], shape=wide) for value in values], place)

"""Recurrent layers with a static number of steps: one product for all inputs, then a loop over the steps.

Each direction is a separate loop. Its states are carried from step to step, and the products of the inputs are its
sequence. Its outputs are stacked, by a reverse loop from the last one on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from autotune.graph.calls import Call
from autotune.graph.frontends.onnx.importer.registry import imports
from autotune.graph.frontends.onnx.importer.shapes import concatenate_parts
from autotune.graph.ir import Array, GraphBuilder, TensorType
from autotune.graph.loops import Body, add_loop
from autotune.graph.ops.loops import MOST_TRIPS
from autotune.graph.ops.recurrent import FUNCTIONS

_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
_DEFAULTS = {"LSTM": ("sigmoid", "tanh", "tanh"), "GRU": ("sigmoid", "tanh"), "RNN": ("tanh",)}


@dataclass(frozen=True)
class _Direction:
    """A direction of a recurrent layer.

    Attributes:
        call: call of the layer.
        number: 0 or 1.
        functions: activations of gates and states, by their names in the graph.
        weights: recurrence weights, (width, gates * width).
        bias: bias of the recurrent product, (gates * width,); the input's bias is added to the inputs' product.
        peepholes: peephole weights, (3 * width,), or None.
    """

    call: Call
    number: int
    functions: tuple[str, ...]
    weights: Array
    bias: Array
    peepholes: Array | None

    @property
    def width(self) -> int:
        return len(self.weights)


Step = Callable[[str, list[str]], list[str]]
"""A function from the inputs' products for the gates, and the states, to new states; the first is the output."""


@imports("LSTM", "GRU", "RNN")
def recurrent(call: Call) -> list[str]:
    """Imports a recurrent layer: forward, reverse or bidirectional, from zero or given states."""
    x, first = call.value(0), bool(call.attrs.get("layout", 0))
    if first:  # samples first
        x = call.add("transpose", [x], axes=(1, 0, 2))
    steps, batch, _ = call.shape(x)
    names = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}
    asked = bytes(call.attrs.get("direction", b"forward")).decode()
    call.require(asked in names, f"must have a direction of {', '.join(names)}", f"direction={asked!r}")
    turned = names[asked]
    _check(call, steps)
    directions, given = _directions(call, len(turned)), _project_inputs(call, x)
    outputs, lasts = [], []
    for direction, backwards in zip(directions, turned, strict=True):
        output, states = _run(direction, given, steps, batch, backwards)
        outputs.append(output)
        lasts.append(states)
    width = directions[0].width
    y = concatenate_parts(
        call, [call.add("reshape", [output], shape=(steps, 1, batch, width)) for output in outputs], 1
    )
    results = [call.add("transpose", [y], axes=(2, 0, 1, 3)) if first else y]
    for parts in zip(*lasts, strict=True):
        last = concatenate_parts(call, [call.add("reshape", [part], shape=(1, batch, width)) for part in parts], 0)
        results.append(call.add("transpose", [last], axes=(1, 0, 2)) if first else last)
    return results


def _check(call: Call, steps: int) -> None:
    call.require(1 <= steps <= MOST_TRIPS, f"must have 1 to {MOST_TRIPS} steps", steps)
    call.require(not call.attrs.get("clip", 0), "must not clip", f"clip={call.attrs.get('clip')}")
    call.require(not call.attrs.get("input_forget", 0), "must have a gate to forget", "input_forget=1")
    if call.has(4):
        lengths = call.require_array(4, "length of its sequences").reshape(-1)
        whole = bool((lengths == steps).all())
        call.require(whole, f"must have sequences of all {steps} steps", f"sequence_lens={lengths.tolist()}")


def _functions(call: Call, count: int) -> list[tuple[str, ...]]:
    """Returns the activations of each direction."""
    default = _DEFAULTS[call.op]
    names = [bytes(name).decode().lower() for name in call.attrs.get("activations", ())] or list(default) * count
    known = len(names) == count * len(default) and set(names) <= set(FUNCTIONS)
    rule = f"must have {count * len(default)} activations of {', '.join(name.capitalize() for name in FUNCTIONS)}"
    call.require(known, rule, f"activations={names}")
    return [tuple(names[i * len(default) :][: len(default)]) for i in range(count)]


def _directions(call: Call, count: int) -> list[_Direction]:
    weights = call.require_array(2, "recurrence weight")
    width, gates = weights.shape[2], _GATES[call.op]
    bias = _bias(call, count, gates * width)[1]
    peepholes = call.require_array(7, "peephole weight") if call.op == "LSTM" and call.has(7) else [None] * count
    functions = _functions(call, count)
    return [
        _Direction(call, i, functions[i], np.ascontiguousarray(weights[i].T), bias[i], peepholes[i])
        for i in range(count)
    ]


def _bias(call: Call, count: int, width: int) -> Array:
    """Returns the biases of input and recurrent products, (2, directions, gates * width).

    Both add to the same sums, except where a GRU resets its product: all other biases move to the inputs.
    """
    if not call.has(3):
        return np.zeros((2, count, width), call.type(0).dtype)
    of_inputs, of_states = call.require_array(3, "bias").reshape(count, 2, width).transpose(1, 0, 2).copy()
    separate = np.zeros(width, bool)
    if call.op == "GRU" and call.attrs.get("linear_before_reset", 0):
        separate[-width // 3 :] = True
    of_inputs += np.where(separate, 0, of_states).astype(of_inputs.dtype)
    return np.stack([of_inputs, np.where(separate, of_states, 0).astype(of_states.dtype)])


def _project_inputs(call: Call, x: str) -> str:
    """Computes the products of all inputs for all gates, (steps, batch, directions * gates * width)."""
    steps, batch, size = call.shape(x)
    weights = call.require_array(1, "weight")
    call.require(
        weights.shape[2] == size, "must have a weight for each input", f"{weights.shape[2]} weights of {size} inputs"
    )
    count, width, _ = weights.shape
    flat = np.ascontiguousarray(weights.reshape(count * width, size).T)
    out = call.add("matmul", [call.add("reshape", [x], shape=(steps * batch, size)), call.constant(flat)])
    bias = _bias(call, count, width)[0].reshape(-1)
    out = call.add("add", [out, call.constant(bias)]) if bias.any() else out
    return call.add("reshape", [out], shape=(steps, batch, count * width))


def _run(
    direction: _Direction, projection: str, steps: int, batch: int, backwards: bool
) -> tuple[str, tuple[str, ...]]:
    """Runs a direction; returns outputs in input order, (steps, batch, width), and final states."""
    call, width = direction.call, direction.width
    kind = call.context.builder.type(projection)  # states of 16-bit models are float32, like all intermediate values
    states = [call.cast(_initial(direction, i, batch), kind.dtype) for i in ((5, 6) if call.op == "LSTM" else (5,))]
    body = _body(direction, batch, kind, len(states))
    outer, more = call.context.builder, len(states) - 1
    results = add_loop(
        outer,
        body,
        [*states, projection],
        steps,
        [backwards],
        [backwards] + [False] * more,
        f"{call.context.prefix}{call.title}",
    )
    last = call.add("slice", results[:1], begin=(0 if backwards else steps - 1, 0, 0), size=(1, batch, width))
    return results[0], (last, *results[1:])


def _body(direction: _Direction, batch: int, kind: TensorType, states: int) -> Body:
    """Builds the graph of a step: from states and products of all directions' gates to states, the first one stacked.

    Args:
        kind: type of the products of all steps.
    """
    call, dtype, columns = direction.call, kind.dtype, kind.shape[2]
    kinds = {f"state{i}": TensorType((batch, direction.width), dtype) for i in range(states)}
    builder = GraphBuilder(call.op.lower(), {**kinds, "given": TensorType((batch, columns), dtype)})
    inner = replace(call, context=replace(call.context, builder=builder, prefix=""))
    step = {"LSTM": _lstm, "GRU": _gru, "RNN": _rnn}[call.op](replace(direction, call=inner))
    wide = direction.weights.shape[1]
    given = "given"
    if columns > wide:
        given = inner.add("slice", [given], begin=(0, direction.number * wide), size=(batch, wide))
    made = step(given, list(kinds))
    return Body(builder.finish(made), tuple(range(states)), 1, (True, *(False for _ in made[1:])))


def _initial(direction: _Direction, index: int, batch: int) -> str:
    """Returns an initial state, given or zeros: (batch, width)."""
    call, width = direction.call, direction.width
    if not call.has(index):
        return call.constant(np.zeros((batch, width), call.type(0).dtype))
    state = call.value(index)
    if call.attrs.get("layout", 0):
        state = call.add("transpose", [state], axes=(1, 0, 2))
    one = call.add("slice", [state], begin=(direction.number, 0, 0), size=(1, batch, width))
    return call.add("reshape", [one], shape=(batch, width))


def _lstm(direction: _Direction) -> Step:
    call, (gate, new, shown) = direction.call, direction.functions
    weights = call.constant(direction.weights)
    more = [] if direction.peepholes is None else [call.constant(direction.peepholes)]

    def step(projection: str, states: list[str]) -> list[str]:
        hidden, state = states
        gates = call.add("add", [call.add("matmul", [hidden, weights]), projection])
        state = call.add("lstm_state", [gates, state, *more], functions=(gate, new))
        return [call.add("lstm_output", [gates, state, *more], functions=(gate, shown)), state]

    return step


def _rnn(direction: _Direction) -> Step:
    call, (function,) = direction.call, direction.functions
    weights = call.constant(direction.weights)

    def step(projection: str, states: list[str]) -> list[str]:
        return [call.add(function, [call.add("add", [call.add("matmul", [states[0], weights]), projection])])]

    return step


def _gru(direction: _Direction) -> Step:
    call, (gate, new), width = direction.call, direction.functions, direction.width
    if call.attrs.get("linear_before_reset", 0):
        weights, bias = call.constant(direction.weights), call.constant(direction.bias)

        def linear(projection: str, states: list[str]) -> list[str]:
            hidden = call.add("add", [call.add("matmul", [states[0], weights]), bias])
            return [call.add("gru_linear", [projection, hidden, states[0]], functions=(gate, new))]

        return linear
    of_gates, of_new = (call.constant(np.ascontiguousarray(w)) for w in np.split(direction.weights, [2 * width], 1))

    def step(projection: str, states: list[str]) -> list[str]:
        rows, (state,) = call.shape(projection)[0], states
        sides = [(0, 2 * width), (2 * width, width)]
        gates, fresh = (call.add("slice", [projection], begin=(0, b), size=(rows, n)) for b, n in sides)
        gates = call.add("add", [call.add("matmul", [state, of_gates]), gates])
        kept = call.add("gru_reset", [gates, state], functions=(gate,))
        fresh = call.add("add", [call.add("matmul", [kept, of_new]), fresh])
        return [call.add("gru_mixed", [gates, fresh, state], functions=(gate, new))]

    return step

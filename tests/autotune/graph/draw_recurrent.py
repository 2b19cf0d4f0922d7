"""Draws of recurrent layers."""

from __future__ import annotations

from tests.autotune.graph.drawing import Draw, draws

_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
_FUNCTIONS = {"LSTM": 3, "GRU": 2, "RNN": 1}


@draws("LSTM", "GRU", "RNN")
def recurrent(d: Draw, op: str) -> None:
    d.at(7, 14)
    (steps, batch, size, width), gates = d.shape(4, 4), _GATES[op]
    steps += 8 * d.chance(0.3)  # a loop, where there are any
    direction = d.pick("forward", "reverse", "bidirectional")
    count = 1 + (direction == "bidirectional")
    attributes = d.some(direction=direction) if direction == "forward" else {"direction": direction}
    if d.chance(0.3):
        names = [d.pick("Sigmoid", "Tanh", "Relu") for _ in range(count * _FUNCTIONS[op])]
        attributes["activations"] = names
    if op == "GRU":
        attributes |= d.some(linear_before_reset=d.number(0, 1))
    names = [d.add_input((steps, batch, size))]
    names += [d.floats((count, gates * width, n), -0.7, 0.7) for n in (size, width)]
    names.append(d.floats((count, 2 * gates * width), -0.5, 0.5) if d.chance() else "")
    names.append(d.add_constant([steps] * batch, "int32") if d.chance(0.3) else "")
    states = (count, batch, width)
    names.append(d.either(states) if d.chance() else "")
    if op == "LSTM":
        names.append(d.either(states) if d.chance() else "")
        names.append(d.floats((count, 3 * width), -0.5, 0.5) if d.chance(0.3) else "")
    d.node(op, names, d.number(1, 2 + (op == "LSTM")), hidden_size=width, **attributes)

"""Recurrent layers, converted to ONNX's: each direction is a loop, see `onnx.importer.recurrent`.

PyTorch and ONNX order the gates of a layer, and the axes of its outputs, differently.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from torch.fx import Node

from autotune.graph.calls import Call, Context
from autotune.graph.frontends.aten.registry import AtenCall, converts
from autotune.graph.frontends.onnx.importer.recurrent import recurrent
from autotune.graph.frontends.onnx.importer.shapes import concatenate_parts
from autotune.graph.ir import Array

_LSTM_MODE = 2
"""oneDNN's `ideep::rnn_kind::LSTM`."""


@dataclass(frozen=True)
class _Kind:
    """A kind of recurrent layer.

    Attributes:
        op: name in ONNX.
        gates: positions of ONNX's gates among PyTorch's.
        states: number of states.
        functions: activations of a direction; empty: the default ones.
    """

    op: str
    gates: tuple[int, ...]
    states: int = 1
    functions: tuple[bytes, ...] = ()


_KINDS = {
    "lstm": _Kind("LSTM", (0, 3, 1, 2), 2),  # input, forget, new, output
    "gru": _Kind("GRU", (1, 0, 2)),  # reset, update, new
    "rnn_tanh": _Kind("RNN", (0,), functions=(b"Tanh",)),
    "rnn_relu": _Kind("RNN", (0,), functions=(b"Relu",)),
}


@converts("lstm.input", "gru.input", "rnn_tanh.input", "rnn_relu.input")
def layers(call: AtenCall) -> list[str]:
    """Converts stacked layers: outputs of the last one, and the final states of all."""
    kind, count = _KINDS[call.op.partition(".")[0]], 1 + bool(call["bidirectional"])
    call.require(not (call["train"] and call["dropout"]), "must not be trained", f"dropout={call['dropout']}")
    each = 4 if call["has_biases"] else 2
    params, total = call["params"], call["num_layers"] * count * each
    call.require(len(params) == total, f"must have {total} weights and no projection", f"{len(params)} weights")
    first: Sequence[Node] = call["hx"] if kind.states == 2 else [call["hx"]]
    x = call.cast(call.value(0), "float32")
    if call["batch_first"]:
        x = call.add("transpose", [x], axes=(1, 0, 2))
    lasts = []
    for layer in range(call["num_layers"]):
        begin = layer * count * each
        weights = [params[begin + i * each : begin + (i + 1) * each] for i in range(count)]
        states = [_slice(call, node, layer * count, count) for node in first]
        x, *last = _layer(call, kind, x, weights, states, b"bidirectional" if count == 2 else b"forward")
        lasts.append(last)
    if call["batch_first"]:
        x = call.add("transpose", [x], axes=(1, 0, 2))
    return [x, *(concatenate_parts(call, parts, 0) for parts in zip(*lasts, strict=True))]


@converts("mkldnn_rnn_layer.default")
def one_layer(call: AtenCall) -> list[str | None]:
    """Converts one direction of an LSTM layer in PyTorch's form for oneDNN."""
    plain = not call["batch_first"] and not call["bidirectional"] and call["num_layers"] == 1
    call.require(call["mode"] == _LSTM_MODE and plain, "must be a direction of an LSTM", f"mode={call['mode']}")
    weights = [call[f"weight{i}"] for i in range(4 if call["has_biases"] else 2)]
    states = [_slice(call, call[name], 0, 1) for name in ("hx_", "cx_")]
    x = call.cast(call.value(0), "float32")
    y, *last = _layer(call, _KINDS["lstm"], x, [weights], states, b"reverse" if call["reverse"] else b"forward")
    return [y, *last, None]


def _layer(
    call: AtenCall,
    kind: _Kind,
    x: str,
    weights: Sequence[Sequence[Node]],
    states: Sequence[str | Array],
    direction: bytes,
) -> list[str]:
    """Converts one layer: outputs (steps, batch, directions * width), and final states (directions, batch, width)."""
    arrays = {name: _stack_weights(call, kind, weights, place) for place, name in enumerate("wr")}
    if len(weights[0]) > 2:
        arrays["b"] = np.concatenate(
            [_stack_weights(call, kind, weights, 2), _stack_weights(call, kind, weights, 3)], 1
        )
    named = dict(zip("hc", states, strict=False))
    values = {"x": x, **{name: state for name, state in named.items() if isinstance(state, str)}}
    arrays |= {name: state for name, state in named.items() if not isinstance(state, str)}
    attrs = {"direction": direction, "linear_before_reset": 1, "activations": kind.functions * len(weights)}
    width = arrays["r"].shape[2]
    found = recurrent(_call(call, kind.op, values, arrays, attrs))
    steps, count, batch, _ = call.shape(found[0])
    y = call.add("transpose", found[:1], axes=(0, 2, 1, 3))
    return [call.reshape(y, (steps, batch, count * width)), *found[1:]]


def _call(
    call: AtenCall, op: str, values: Mapping[str, str], arrays: Mapping[str, Array], attrs: Mapping[str, object]
) -> Call:
    """Builds an ONNX call whose inputs are keyed by their letters, without sequence lengths."""
    known = {*values, *arrays}
    inputs = tuple(name if name in known else "" for name in ("x", "w", "r", "b", "", "h", "c"))
    context = Context(call.context.builder, dict(values), dict(arrays), call.context.opset)
    return Call(context, op, call.title, inputs, call.outputs, attrs)


def _stack_weights(call: AtenCall, kind: _Kind, weights: Sequence[Sequence[Node]], index: int) -> Array:
    """Stacks a weight of all directions, gates in ONNX's order: (directions, gates * width, ...)."""
    reordered = []
    for nodes in weights:
        array = call.context.arrays.get(nodes[index].name)
        call.require(array is not None, "must have constant weights", nodes[index].name)
        assert array is not None
        parts = np.split(array.astype(np.float32), len(kind.gates))
        reordered.append(np.concatenate([parts[gate] for gate in kind.gates]))
    return np.stack(reordered)


def _slice(call: AtenCall, node: Node, begin: int, count: int) -> str | Array:
    """Slices the initial states of a layer: (directions, batch, width)."""
    array = call.context.arrays.get(node.name)
    if array is not None:
        part: Array = array[begin : begin + count].astype(np.float32)
        return part
    value = call.cast(call.context.value(node.name), "float32")
    _, *rest = call.shape(value)
    return call.add("slice", [value], begin=(begin, 0, 0), size=(count, *rest))

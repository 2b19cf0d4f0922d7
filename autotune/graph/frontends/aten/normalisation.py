"""Normalisation over batches, rows and groups."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from autotune.graph.frontends.aten.registry import AtenCall, converts, float32
from autotune.graph.frontends.onnx.importer import layers, normalisation
from autotune.graph.frontends.onnx.importer.activations import with_number
from autotune.graph.frontends.onnx.importer.reductions import reduce_over


@converts("_native_batch_norm_legit_no_training.default", "batch_norm.default", "native_batch_norm.default")
def batch_norm(call: AtenCall) -> str | list[str | None]:
    """Normalises by constant statistics: x * scale + shift."""
    call.require(not call.arguments.get("training"), "must not be in training mode", "training=True")
    call.require_parameters(1, 2, 3, 4)
    alone = call.op == "batch_norm.default"
    call.require(alone or not (call.reads(1) or call.reads(2)), "must have one output", "statistics that are read")
    channels = call.type(0).shape[1]
    inputs = [call.inputs[0]]
    for place, value in ((1, 1.0), (2, 0.0), (3, 0.0), (4, 1.0)):
        name = call.inputs[place]
        if not name:
            name = f"{call.title}_default{place}"
            call.context.arrays[name] = np.full(channels, value, np.float32)
        inputs.append(name)
    out = layers.batch_normalization(call.shared("BatchNormalization", inputs, epsilon=float(call["eps"])))
    return out if alone else [out, None, None]


@converts("native_layer_norm.default")
def layer_norm(call: AtenCall) -> list[str | None]:
    """Normalises over the last axes; also returns mean and 1 / deviation if they are read."""
    call.require_parameters(2, 3)
    shape = call.type(0).shape
    axis = len(shape) - len(call["normalized_shape"])
    inputs = [call.inputs[0], _scale(call, 2), call.inputs[3]]
    outputs = (call.title, *("read" if call.reads(place) else "" for place in (1, 2)))
    made = call.shared("LayerNormalization", inputs, axis=axis, epsilon=float(call["eps"]))
    found = normalisation.layer_normalization(replace(made, outputs=outputs))
    return [*found, *[None] * (3 - len(found))]


@converts("layer_norm.default")
def layer_norm_alone(call: AtenCall) -> str:
    """Normalises over the last axes."""
    call.require_parameters(2, 3)
    axis = len(call.type(0).shape) - len(call["normalized_shape"])
    inputs = [call.inputs[0], _scale(call, 2), call.inputs[3]]
    shared = call.shared("LayerNormalization", inputs, axis=axis, epsilon=float(call["eps"]))
    return normalisation.layer_normalization(shared)[0]


def _scale(call: AtenCall, index: int) -> str:
    """Returns the name of an input, or of a constant of ones if it is absent."""
    if call.inputs[index]:
        return call.inputs[index]
    name = f"{call.title}_ones"
    call.context.arrays[name] = np.ones(tuple(call["normalized_shape"]), np.float32)
    return name


@converts("native_group_norm.default")
def group_norm(call: AtenCall) -> list[str | None]:
    """Normalises groups of channels of each sample."""
    call.require(not (call.reads(1) or call.reads(2)), "must have one output", "statistics that are read")
    return [_normalise_groups(call, int(call["group"])), None, None]


@converts("group_norm.default")
def group_norm_alone(call: AtenCall) -> str:
    """Normalises groups of channels of each sample."""
    return _normalise_groups(call, int(call["num_groups"]))


@converts("_native_batch_norm_legit.no_stats")
def instance_norm(call: AtenCall) -> list[str | None]:
    """Normalises each channel over the batch and all positions."""
    call.require(not (call.reads(1) or call.reads(2)), "must have one output", "statistics that are read")
    shape = call.type(0).shape
    value = call.value(0)
    if shape[0] != 1:
        value = call.add("transpose", [value], axes=(1, 0, *range(2, len(shape))))
    out = _normalise_rows(call, value, shape[1])
    if shape[0] != 1:
        out = call.add("transpose", [out], axes=(1, 0, *range(2, len(shape))))
    return [_per_channel(call, out), None, None]


def _normalise_groups(call: AtenCall, groups: int) -> str:
    value = call.value(0)
    return _per_channel(call, _normalise_rows(call, value, call.shape(value)[0] * groups))


def _normalise_rows(call: AtenCall, value: str, rows: int) -> str:
    """Reshapes a value to `rows` rows and normalises each to mean 0 and variance 1."""
    shape = call.shape(value)
    columns = math.prod(shape) // rows
    ones, zeros = (call.constant(np.full(columns, v, np.float32)) for v in (1, 0))
    data = call.reshape(value, (rows, columns))
    out = call.add("layer_norm", [data, ones, zeros], epsilon=float32(call["eps"]))
    return call.reshape(out, shape)


def _per_channel(call: AtenCall, value: str) -> str:
    """Multiplies by the weight and adds the bias, each with one element per channel."""
    names = list(call.arguments)
    call.require_parameters(names.index("weight"), names.index("bias"))
    shape = call.shape(value)
    for argument, op in (("weight", "multiply"), ("bias", "add")):
        if call[argument] is not None:
            parameter = call.context.value(call[argument].name)
            value = call.add(op, [value, call.reshape(parameter, (shape[1], *[1] * (len(shape) - 2)))])
    return value


@converts("rms_norm.default", "_fused_rms_norm.default")
def rms_norm(call: AtenCall) -> str | list[str | None]:
    """Divides x by the root mean square over the last axes, and multiplies it by a weight."""
    value = call.value(0)
    rank = len(call.shape(value))
    axes = tuple(range(rank - len(call["normalized_shape"]), rank))
    squares = reduce_over(call, call.add("multiply", [value, value]), axes, "mean", True)
    epsilon = call["eps"] if call["eps"] is not None else float(np.finfo(np.float32).eps)
    out = call.add("multiply", [value, call.add("rsqrt", [with_number(call, "add", squares, epsilon)])])
    out = call.add("multiply", [out, call.context.value(call["weight"].name)]) if call["weight"] is not None else out
    return out if call.op == "rms_norm.default" else [out, None]

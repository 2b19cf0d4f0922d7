"""Normalisation over rows, groups and instances, as the operation `layer_norm` on a matrix."""

from __future__ import annotations

import math

import numpy as np

from autotune.graph.calls import Call
from autotune.graph.frontends.onnx.importer.activations import with_number
from autotune.graph.frontends.onnx.importer.reductions import moments
from autotune.graph.frontends.onnx.importer.registry import imports


def _rows(call: Call, value: str, rows: int) -> str:
    """Each row brought to mean 0 and variance 1."""
    shape = call.shape(value)
    columns = math.prod(shape) // rows
    ones, zeros = (call.constant(np.full(columns, v, np.float32)) for v in (1, 0))
    data = call.add("reshape", [value], shape=(rows, columns))
    out = call.add("layer_norm", [data, ones, zeros], epsilon=float(call.attrs.get("epsilon", 1e-5)))
    return call.add("reshape", [out], shape=shape)


@imports("LayerNormalization")
def layer_normalization(call: Call) -> list[str]:
    """Over the axes from one on; mean and 1 / deviation are added where they are asked for."""
    value = call.value(0)
    shape = call.shape(value)
    axis = int(call.attrs.get("axis", -1)) % len(shape)
    tail = shape[axis:]
    columns = math.prod(tail)
    parameters = []
    for place in (1, 2):
        array = call.array(place) if call.has(place) else np.zeros(tail, np.float32)
        if array is not None:
            parameters.append(call.constant(np.broadcast_to(array, tail).reshape(columns).copy()))
        else:
            full = call.add("broadcast_to", [call.value(place)], shape=tail)
            parameters.append(call.add("reshape", [full], shape=(columns,)))
    rows = call.add("reshape", [value], shape=(math.prod(shape[:axis]), columns))
    out = call.add("layer_norm", [rows, *parameters], epsilon=float(call.attrs.get("epsilon", 1e-5)))
    found = [call.add("reshape", [out], shape=shape)]
    if any(call.outputs[1:]):
        kept = tuple(range(axis, len(shape)))
        mean, variance = moments(call, value, kept)
        variance = with_number(call, "add", variance, float(call.attrs.get("epsilon", 1e-5)))
        found += [mean, call.add("rsqrt", [variance])]
    return found


def _per_channel(call: Call, value: str) -> str:
    """Times scale plus bias, (c,) or, in old operator sets, a value a group."""
    shape = call.shape(value)
    for place, op in ((1, "multiply"), (2, "add")):
        parameter = call.known(place, "scale and bias")
        full = np.repeat(parameter, shape[1] // parameter.size).reshape(-1, *[1] * (len(shape) - 2))
        value = call.add(op, [value, call.constant(full)])
    return value


@imports("InstanceNormalization")
def instance_normalization(call: Call) -> str:
    """Each channel of each sample by itself."""
    shape = call.type(0).shape
    return _per_channel(call, _rows(call, call.value(0), shape[0] * shape[1]))


@imports("GroupNormalization")
def group_normalization(call: Call) -> str:
    """Groups of channels of each sample."""
    rows = call.type(0).shape[0] * int(call.attrs["num_groups"])
    return _per_channel(call, _rows(call, call.value(0), rows))

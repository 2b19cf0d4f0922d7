"""Normalisation over rows, groups and instances, as the operation `layer_norm` on a matrix."""

from __future__ import annotations

import math

import numpy as np

from autotune.graph.calls import Call
from autotune.graph.frontends.onnx.importer.activations import with_number
from autotune.graph.frontends.onnx.importer.reductions import moments
from autotune.graph.frontends.onnx.importer.registry import imports


def _rows(call: Call, value: str, rows: int) -> str:
    """Normalises each row to mean 0 and variance 1."""
    shape = call.shape(value)
    columns = math.prod(shape) // rows
    ones, zeros = (call.constant(np.full(columns, v, np.float32)) for v in (1, 0))
    data = call.add("reshape", [value], shape=(rows, columns))
    out = call.add("layer_norm", [data, ones, zeros], epsilon=float(call.attrs.get("epsilon", 1e-5)))
    return call.add("reshape", [out], shape=shape)


@imports("LayerNormalization")
def layer_normalization(call: Call) -> list[str]:
    """Normalises over the axes from `axis` on; returns mean and 1 / deviation, too, if they are read."""
    value = call.value(0)
    shape = call.shape(value)
    axis = int(call.attrs.get("axis", -1)) % len(shape)
    tail = shape[axis:]
    columns = math.prod(tail)
    parameters = []
    for index in (1, 2):
        array = call.array(index) if call.has(index) else np.zeros(tail, np.float32)
        if array is not None:
            parameters.append(call.constant(np.broadcast_to(array, tail).reshape(columns).copy()))
        else:
            full = call.add("broadcast_to", [call.value(index)], shape=tail)
            parameters.append(call.add("reshape", [full], shape=(columns,)))
    rows = call.add("reshape", [value], shape=(math.prod(shape[:axis]), columns))
    out = call.add("layer_norm", [rows, *parameters], epsilon=float(call.attrs.get("epsilon", 1e-5)))
    results = [call.add("reshape", [out], shape=shape)]
    if any(call.outputs[1:]):
        kept = tuple(range(axis, len(shape)))
        mean, variance = moments(call, value, kept)
        variance = with_number(call, "add", variance, float(call.attrs.get("epsilon", 1e-5)))
        results += [mean, call.add("rsqrt", [variance])]
    return results


def _per_channel(call: Call, value: str) -> str:
    """Multiplies by the scale and adds the bias, (c,) or, in old opsets, one value per group."""
    shape = call.shape(value)
    for place, op in ((1, "multiply"), (2, "add")):
        parameter = call.require_array(place, "scale and bias")
        full = np.repeat(parameter, shape[1] // parameter.size).reshape(-1, *[1] * (len(shape) - 2))
        value = call.add(op, [value, call.constant(full)])
    return value


@imports("InstanceNormalization")
def instance_normalization(call: Call) -> str:
    """Normalises each channel of each sample."""
    shape = call.type(0).shape
    return _per_channel(call, _rows(call, call.value(0), shape[0] * shape[1]))


@imports("GroupNormalization")
def group_normalization(call: Call) -> str:
    """Normalises groups of channels of each sample."""
    rows = call.type(0).shape[0] * int(call.attrs["num_groups"])
    return _per_channel(call, _rows(call, call.value(0), rows))

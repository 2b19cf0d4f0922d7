"""Normalisations and softmax."""

from __future__ import annotations

import math

import numpy as np

from autotune.graph.importer.call import Call
from autotune.graph.importer.elementwise import broadcast
from autotune.graph.importer.reductions import reduced
from autotune.graph.importer.registry import imports


@imports("BatchNormalization")
def batch_normalization(call: Call) -> list[str | None]:
    """With constant statistics, as inference has it: x * scale + shift, both computed in float64."""
    training = call.attr("training_mode", 0) if call.opset >= 14 else call.outputs > 1 and call.opset < 7
    call.require(not training, "must be in inference mode", "training_mode=1")
    call.require(call.attr("spatial", 1) == 1, "must normalise channels", "spatial=0")
    names = ("scale", "B", "mean", "var")
    scale, bias, mean, var = (call.array(i, name).astype(np.float64) for i, name in enumerate(names, 1))
    factor = scale / np.sqrt(var + call.attr("epsilon", 1e-5))
    shift = bias - mean * factor
    weights = [
        call.constant(array.astype(np.float32), f"{call.output}/{name}")
        for name, array in (("scale", factor), ("shift", shift))
    ]
    out = call.channels_first(call.add("affine", call.channels_last(call.value(0)), *weights))
    return [out, *[None] * (call.outputs - 1)]


@imports("LRN")
def lrn(call: Call) -> str:
    """Over channels, the last axis within."""
    given = {"size": call.attr("size"), "alpha": call.attr("alpha", 1e-4)}
    given |= {"beta": call.attr("beta", 0.75), "bias": call.attr("bias", 1.0)}
    return call.channels_first(call.add("lrn", call.channels_last(call.value(0)), **given))


@imports("Softmax", "LogSoftmax")
def softmax(call: Call) -> str:
    """Before opset 13 of everything from `axis` on as one row, since then along `axis`."""
    op = "softmax" if call.op == "Softmax" else "log_softmax"
    data, shape = call.value(0), call.shape()
    rank = len(shape)
    if call.opset < 13:
        axis = call.axis(call.attr("axis", 1), rank)
        rows = math.prod(shape[:axis])
        return call.reshape(call.in_float32(op, call.reshape(data, (rows, math.prod(shape[axis:])))), shape)
    axis = call.axis(call.attr("axis", -1), rank)
    order = [a for a in range(rank) if a != axis] + [axis]
    turned = call.transpose(data, order)
    moved = call.type_of(turned).shape
    out = call.reshape(call.in_float32(op, call.reshape(turned, (math.prod(moved[:-1]), moved[-1]))), moved)
    return call.transpose(out, [order.index(a) for a in range(rank)])


@imports("LayerNormalization")
def layer_normalization(call: Call) -> list[str | None]:
    """Of everything from `axis` on; the mean and one over the deviation are further outputs."""
    shape = call.shape()
    axis, epsilon = call.axis(call.attr("axis", -1), len(shape)), call.attr("epsilon", 1e-5)
    rows, columns = math.prod(shape[:axis]), math.prod(shape[axis:])
    data = call.reshape(call.value(0), (rows, columns))
    gamma = call.reshape(call.expand(call.value(1), shape[axis:]), (columns,))
    if call.has(2):
        beta = call.reshape(call.expand(call.value(2), shape[axis:]), (columns,))
    else:
        beta = call.constant(np.zeros(columns, np.float32))
    outputs: list[str | None] = [call.reshape(call.add("layer_norm", data, gamma, beta, epsilon=epsilon), shape)]
    if call.outputs > 1:
        mean, inverse = _statistics(call, data, epsilon)
        kept = (*shape[:axis], *[1] * (len(shape) - axis))
        outputs += [call.reshape(mean, kept), call.reshape(inverse, kept)]
    return outputs


def _statistics(call: Call, data: str, epsilon: float) -> tuple[str, str]:
    """Mean and one over the deviation of each row, (rows, 1)."""
    mean = reduced(call, data, "mean", (1,), True)
    centred = call.add("subtract", data, mean)
    variance = reduced(call, call.add("multiply", centred, centred), "mean", (1,), True)
    return mean, call.add("rsqrt", call.add("add", variance, call.scalar(epsilon, variance)))


def _normal_rows(call: Call, data: str, columns: int, epsilon: float) -> str:
    """Each row brought to mean 0 and variance 1."""
    ones, zeros = call.constant(np.ones(columns, np.float32)), call.constant(np.zeros(columns, np.float32))
    return call.add("layer_norm", data, ones, zeros, epsilon=epsilon)


@imports("InstanceNormalization")
def instance_normalization(call: Call) -> str:
    """Each channel of each sample, then scaled and shifted."""
    batch, channels, *extent = shape = call.shape()
    columns = math.prod(extent)
    data = call.reshape(call.value(0), (batch * channels, columns))
    normal = call.reshape(_normal_rows(call, data, columns, call.attr("epsilon", 1e-5)), shape)
    scale, bias = (call.reshape(call.value(i), (channels, *[1] * len(extent))) for i in (1, 2))
    return call.add("affine", normal, scale, bias)


@imports("GroupNormalization")
def group_normalization(call: Call) -> str:
    """Scale and bias are one a group before opset 21, one a channel since then."""
    batch, channels, *extent = shape = call.shape()
    groups = call.attr("num_groups")
    columns = channels // groups * math.prod(extent)
    data = call.reshape(call.value(0), (batch * groups, columns))
    normal = _normal_rows(call, data, columns, call.attr("epsilon", 1e-5))
    if call.opset < 21:
        scale, bias = (call.reshape(call.value(i), (groups, 1)) for i in (1, 2))
        return call.reshape(call.add("affine", call.reshape(normal, (batch, groups, columns)), scale, bias), shape)
    scale, bias = (call.reshape(call.value(i), (channels, *[1] * len(extent))) for i in (1, 2))
    return call.add("affine", call.reshape(normal, shape), scale, bias)


@imports("RMSNormalization")
def rms_normalization(call: Call) -> str:
    """Divided by the root of the mean square from `axis` on, times the scale."""
    x, rank = call.value(0), len(call.shape())
    axes = tuple(range(call.axis(call.attr("axis", -1), rank), rank))
    mean = reduced(call, call.add("multiply", x, x), "mean", axes, True)
    inverse = call.add("rsqrt", broadcast(call, "add", mean, call.scalar(call.attr("epsilon", 1e-5), mean)))
    return call.add("multiply", call.add("multiply", x, inverse), call.value(1))


@imports("MeanVarianceNormalization")
def mean_variance_normalization(call: Call) -> str:
    """(x - mean) / (deviation + 1e-9) over some axes."""
    x, rank = call.value(0), len(call.shape())
    axes = tuple(sorted(call.axis(a, rank) for a in call.attr("axes", (0, 2, 3))))
    centred = call.add("subtract", x, reduced(call, x, "mean", axes, True))
    variance = reduced(call, call.add("multiply", centred, centred), "mean", axes, True)
    deviation = call.add("sqrt", variance)
    return call.add("divide", centred, call.add("add", deviation, call.scalar(1e-9, deviation)))

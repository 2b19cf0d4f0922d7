"""Normalisations and softmax."""

from __future__ import annotations

import math

import numpy as np

from autotune.graph.importer.call import Call
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


@imports("Softmax", "LogSoftmax", "Hardmax")
def softmax(call: Call) -> str:
    """Before opset 13 of everything from `axis` on as one row, since then along `axis`."""
    call.require(call.op != "Hardmax", "must be Softmax or LogSoftmax", call.op)
    op = "softmax" if call.op == "Softmax" else "log_softmax"
    data, shape = call.value(0), call.shape()
    rank = len(shape)
    if call.opset < 13:
        axis = call.axis(call.attr("axis", 1), rank)
        rows = math.prod(shape[:axis])
        return call.reshape(call.add(op, call.reshape(data, (rows, math.prod(shape[axis:])))), shape)
    axis = call.axis(call.attr("axis", -1), rank)
    order = [a for a in range(rank) if a != axis] + [axis]
    turned = call.transpose(data, order)
    moved = call.type_of(turned).shape
    out = call.reshape(call.add(op, call.reshape(turned, (math.prod(moved[:-1]), moved[-1]))), moved)
    return call.transpose(out, [order.index(a) for a in range(rank)])

"""Scaled dot-product attention as products and a softmax, which become one kernel if that is faster on the machine."""

from __future__ import annotations

import math

import numpy as np

from autotune.graph.frontends.aten.registry import AtenCall, converts
from autotune.graph.frontends.onnx.importer.reductions import reduce_over
from search_space.dtypes import NARROW
from search_space.ir.expr import BOOL


@converts("scaled_dot_product_attention.default")
def attention(call: AtenCall) -> str:
    """Computes softmax(scale * q k^T + mask) v; heads of keys and values are repeated if there are fewer."""
    return _attention(call)


@converts("_scaled_dot_product_flash_attention_for_cpu.default")
def flash_attention(call: AtenCall) -> list[str | None]:
    """Computes attention; the log-sum-exp output, which only gradients need, is left out."""
    call.require(not call.reads(1), "must not be asked for sums", "an output that is read")
    return [_attention(call), None]


def _attention(call: AtenCall) -> str:
    call.require(not call["dropout_p"], "must not drop anything", f"dropout_p={call['dropout_p']}")
    call.require_same_type(0, 1, 2)
    queries, keys, values = (call.value(place) for place in range(3))
    *batch, m, k = call.shape(queries)
    n, d = call.shape(keys)[-2], call.shape(values)[-1]
    keys, values = (_repeat_heads(call, each, batch) for each in (keys, values))
    whole = (*batch, n, k) == call.shape(keys) and (*batch, n, d) == call.shape(values)
    call.require(whole, f"must have keys of {[*batch, 'n', k]}", list(call.shape(keys)))
    scale = 1 / math.sqrt(k) if call["scale"] is None else float(call["scale"])
    call.require(scale > 0, "must have a positive scale", f"scale={scale}")
    count = math.prod(batch)
    turned = call.add("transpose", [keys], axes=(*range(len(batch)), len(batch) + 1, len(batch)))
    queries, turned = (_scale(call, each, math.sqrt(scale)) for each in (queries, turned))
    left, right = call.reshape(queries, (count, m, k)), call.reshape(turned, (count, k, n))
    scores = call.reshape(call.add("batch_matmul", [left, right]), (*batch, m, n))
    empty = ""
    if call["is_causal"]:
        above = np.triu(np.full((m, n), -np.inf, np.float32), 1)
        scores = call.add("add", [scores, call.constant(above)])
    if call["attn_mask"] is not None:
        scores, empty = _add_mask(call, scores)
    rows = call.reshape(scores, (count * m, n))
    weights = call.add("softmax", [rows])
    if empty:
        weights = call.reshape(weights, (*batch, m, n))
        weights = call.add("where", [empty, call.scalar(0.0, weights), weights])
    weights = call.reshape(weights, (count, m, n))
    out = call.add("batch_matmul", [weights, call.reshape(values, (count, n, d))])
    return call.reshape(out, (*batch, m, d))


def _scale(call: AtenCall, value: str, factor: float) -> str:
    """Scales by the root of the scale, as PyTorch's ONNX export does, so that tasks and records are the same."""
    out = call.add("multiply", [value, call.constant(np.full(1, factor, np.float32))])
    return call.cast(out, call.type(0).dtype) if call.type(0).dtype in NARROW else out


def _add_mask(call: AtenCall, scores: str) -> tuple[str, str]:
    """Adds the mask to scores; returns them and the rows that it masks entirely, "" if there are certainly none."""
    mask = call["attn_mask"].name
    array = call.context.arrays.get(mask)
    truths = call["attn_mask"].meta["val"].dtype.itemsize == 1
    if array is not None:
        added = np.where(array, 0.0, -np.inf) if truths else np.asarray(array, np.float32)
        full = np.isneginf(added).all(-1)
        if not full.any():
            if not added.any():
                return scores, ""
            return call.add("add", [scores, call.constant(added.astype(np.float32))]), ""
    value = call.context.value(mask)
    visible = value if call.context.builder.type(value).dtype == BOOL else ""
    if visible:
        scores = call.add("where", [visible, scores, call.scalar(-math.inf, scores)])
        visible = call.cast(visible, "int32")
        some = reduce_over(call, visible, (len(call.shape(visible)) - 1,), "max", True)
        return scores, call.add("equal", [some, call.number(0, "int32")])
    scores = call.add("add", [scores, value])
    largest = reduce_over(call, value, (len(call.shape(value)) - 1,), "max", True)
    return scores, call.add("equal", [largest, call.scalar(-math.inf, largest)])


def _repeat_heads(call: AtenCall, value: str, batch: list[int]) -> str:
    """Repeats each head so that there are as many as of queries."""
    *lead, own, n, d = call.shape(value)
    if not batch or own == batch[-1] or batch[-1] % own or lead != batch[:-1]:
        return value
    wide = call.add("reshape", [value], shape=(*lead, own, 1, n, d))
    full = call.add("broadcast_to", [wide], shape=(*lead, own, batch[-1] // own, n, d))
    return call.add("reshape", [full], shape=(*batch, n, d))

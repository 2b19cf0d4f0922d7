"""Operations that move elements: views, transpositions, concatenation, slices, padding."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from autotune.graph.ops.base import GraphOp, Kind, Tensors, Types, at, freeze, register
from autotune.graph.types import Array, Attributes
from search_space import te
from search_space.ir.expr import Expr, lift


def _reshape_attributes(attributes: Attributes, types: Types) -> dict[str, Any]:
    shape = freeze(attributes["shape"])
    if math.prod(shape) != types[0].size:
        raise ValueError(f"`shape` must keep the {types[0].size} elements, but got shape={list(shape)}")
    return {"shape": shape}


def _reshape(attrs: Attributes, tensors: Tensors) -> te.Tensor:
    (source,) = tensors
    shape = attrs["shape"]

    def body(*index: Any) -> Expr:
        flat: Any = lift(0)
        for i, extent in zip(index, shape, strict=True):
            flat = flat * extent + i
        position = []
        for extent in reversed(source.shape):
            position.append(flat % extent)
            flat = flat // extent
        return source[tuple(reversed(position))]

    return te.compute(shape, body, name="reshape")


def _transpose_attributes(attributes: Attributes, types: Types) -> dict[str, Any]:
    axes = freeze(attributes["axes"])
    if sorted(axes) != list(range(len(types[0].shape))):
        raise ValueError(f"`axes` must be a permutation of {len(types[0].shape)} axes, but got axes={list(axes)}")
    return {"axes": axes}


def _transpose(attrs: Attributes, tensors: Tensors) -> te.Tensor:
    (source,) = tensors
    axes = attrs["axes"]

    def body(*index: Any) -> Expr:
        position = dict(zip(axes, index, strict=True))
        return source[tuple(position[a] for a in range(len(axes)))]

    return te.compute([source.shape[a] for a in axes], body, name="transpose")


def _concat_attributes(attributes: Attributes, types: Types) -> dict[str, Any]:
    axis, rank = attributes["axis"], len(types[0].shape)
    if not -rank <= axis < rank:
        raise ValueError(f"`axis` must be one of {rank}, but got axis={axis}")
    axis %= rank
    rest = {(t.shape[:axis], t.shape[axis + 1 :], t.dtype) for t in types}
    if len(rest) != 1:
        shown = ", ".join(map(str, types))
        raise ValueError(f"inputs must agree but for axis {axis}, but got {shown}")
    return {"axis": axis}


def _concat(attrs: Attributes, tensors: Tensors) -> te.Tensor:
    axis = attrs["axis"]
    shape = list(tensors[0].shape)
    shape[axis] = sum(t.shape[axis] for t in tensors)

    def body(*index: Any) -> Expr:
        stop = shape[axis]
        out: Any = None
        for tensor in reversed(tensors):
            start = stop - tensor.shape[axis]
            here = tensor[(*index[:axis], index[axis] - start, *index[axis + 1 :])]
            out = here if out is None else te.if_then_else(index[axis] < stop, here, out)
            stop = start
        return lift(out)

    return te.compute(shape, body, name="concat")


def _slice_attributes(attributes: Attributes, types: Types) -> dict[str, Any]:
    begin, size = freeze(attributes["begin"]), freeze(attributes["size"])
    step = freeze(attributes.get("step", (1,) * len(begin)))
    for b, n, s, extent in zip(begin, size, step, types[0].shape, strict=True):
        if n < 1 or s == 0 or not 0 <= b < extent or not 0 <= b + (n - 1) * s < extent:
            raise ValueError(
                f"a slice must lie within {types[0]}, but got begin={list(begin)}, size={list(size)}, step={list(step)}"
            )
    return {"begin": begin, "size": size, "step": step}


def _slice(attrs: Attributes, tensors: Tensors) -> te.Tensor:
    (source,) = tensors

    def body(*index: Any) -> Expr:
        return source[tuple(i * s + b for i, b, s in zip(index, attrs["begin"], attrs["step"], strict=True))]

    return te.compute(attrs["size"], body, name="slice")


def _pad_attributes(attributes: Attributes, types: Types) -> dict[str, Any]:
    before, after = freeze(attributes["before"]), freeze(attributes["after"])
    if len(before) != len(types[0].shape) or len(after) != len(before) or min(*before, *after) < 0:
        raise ValueError(f"padding must not be negative, but got before={list(before)}, after={list(after)}")
    return {"before": before, "after": after, "value": float(attributes.get("value", 0.0))}


def _pad_with_attributes(attributes: Attributes, types: Types) -> dict[str, Any]:
    if len(types) != 2 or (types[1].size, types[1].dtype) != (1, types[0].dtype):
        shown = ", ".join(map(str, types)) or "none"
        raise ValueError(f"inputs must be data and a number of their dtype to pad with, but got {shown}")
    attrs = _pad_attributes(attributes, types[:1])
    del attrs["value"]
    return attrs


def _pad(attrs: Attributes, tensors: Tensors) -> te.Tensor:
    """Pads with the attribute `value`, or with a second input of one element."""
    source, *given = tensors
    value = given[0][(0,) * len(given[0].shape)] if given else attrs["value"]
    before, extents = attrs["before"], source.shape
    shape = [b + e + a for b, e, a in zip(before, extents, attrs["after"], strict=True)]

    def body(*index: Any) -> Expr:
        position = [i - b for i, b in zip(index, before, strict=True)]
        sides = zip(index, before, extents, shape, strict=True)
        inside = [c for i, b, e, s in sides if s != e for c in (i >= b, i < b + e)]
        return te.if_then_else(te.all(*inside), source[tuple(position)], value) if inside else source[index]

    return te.compute(shape, body, name="pad")


def _broadcast_attributes(attributes: Attributes, types: Types) -> dict[str, Any]:
    shape = freeze(attributes["shape"])
    if np.broadcast_shapes(types[0].shape, shape) != shape:
        raise ValueError(f"`shape` must be one that {types[0]} is brought to, but got shape={list(shape)}")
    return {"shape": shape}


def _broadcast(attrs: Attributes, tensors: Tensors) -> te.Tensor:
    return te.compute(attrs["shape"], lambda *index: at(tensors[0], index), name="broadcast_to")


def _compute_slice(attrs: Attributes, x: Array) -> Array:
    for axis, (begin, size, step) in enumerate(zip(attrs["begin"], attrs["size"], attrs["step"], strict=True)):
        x = np.take(x, np.arange(size) * step + begin, axis)
    return x


def _compute_pad(attrs: Attributes, x: Array, value: float) -> Array:
    return np.pad(x, list(zip(attrs["before"], attrs["after"], strict=True)), constant_values=value)


register(
    GraphOp(
        "broadcast_to",
        Kind.injective,
        _broadcast_attributes,
        _broadcast,
        compute=lambda attrs, x: np.broadcast_to(x, attrs["shape"]),
    ),
    GraphOp("reshape", Kind.view, _reshape_attributes, _reshape, compute=lambda attrs, x: x.reshape(attrs["shape"])),
    GraphOp(
        "transpose",
        Kind.injective,
        _transpose_attributes,
        _transpose,
        compute=lambda attrs, x: x.transpose(attrs["axes"]),
    ),
    GraphOp(
        "concat",
        Kind.injective,
        _concat_attributes,
        _concat,
        compute=lambda attrs, *x: np.concatenate(x, attrs["axis"]),
    ),
    GraphOp("slice", Kind.injective, _slice_attributes, _slice, compute=_compute_slice),
    GraphOp(
        "pad",
        Kind.injective,
        _pad_attributes,
        _pad,
        compute=lambda attrs, x: _compute_pad(attrs, x, attrs["value"]),
    ),
    GraphOp(  # padding by an input, so that nodes that differ in its value alone share a workload
        "pad_with",
        Kind.injective,
        _pad_with_attributes,
        _pad,
        compute=lambda attrs, x, value: _compute_pad(attrs, x, value.item()),
    ),
)

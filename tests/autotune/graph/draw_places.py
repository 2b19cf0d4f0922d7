"""Draws of operators that choose, convert and move elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import helper

from tests.autotune.graph.drawing import Draw, draws


@draws("ArgMax", "ArgMin")
def place_of_extreme(d: Draw, op: str) -> None:
    d.at(11, 12, 13)
    shape = d.shape()
    attributes = d.some(axis=d.number(-len(shape), len(shape) - 1), keepdims=d.number(0, 1))
    if d.opset >= 12:
        attributes |= d.some(select_last_index=d.number(0, 1))
    d.node(op, [d.add_input(shape, -1, 1, d.pick("float32", "int32"))], **attributes)


@draws("CumSum")
def running_sum(d: Draw, op: str) -> None:
    d.at(11, 14)
    shape = list(d.shape(1, 3))
    axis = d.number(0, len(shape) - 1)
    if d.chance(0.3):
        shape[axis] = d.number(250, 700)
    shown = axis - len(shape) if d.chance() else axis
    names = [
        d.add_input(shape, -2, 2, d.pick("float32", "int32", "int64")),
        d.add_constant(d.pick(shown, [shown]), np.int64),
    ]
    d.node(op, names, **d.some(exclusive=d.number(0, 1), reverse=d.number(0, 1)))


@draws("And", "Or", "Xor")
def logic(d: Draw, op: str) -> None:
    shape = d.shape()
    d.node(op, [d.add_input(shape, 0, 1, "bool"), d.add_input(d.broadcast(shape), 0, 1, "bool")])


@draws("Not")
def negation(d: Draw, op: str) -> None:
    d.node(op, [d.add_input(d.shape(), 0, 1, "bool")])


@draws("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")
def comparison(d: Draw, op: str) -> None:
    d.at(12, 13, 16)
    shape, dtype = d.shape(), d.pick("float32", "int32", "int64")
    d.node(op, [d.add_input(shape, -1, 1, dtype), d.add_input(d.broadcast(shape), -1, 1, dtype)])


@draws("IsNaN")
def no_number(d: Draw, op: str) -> None:
    d.at(13, 17)
    if d.chance(0.3):
        d.node(op, [d.add_input(d.shape())])
        return
    odd = np.array([np.nan, np.inf, -np.inf, 0.0, 1.0])
    d.node(op, [d.add_constant(d.rng.choice(odd, d.shape()), np.float32)])


@draws("Where")
def where(d: Draw, op: str) -> None:
    shape = d.shape()
    d.node(
        op,
        [d.add_input(d.broadcast(shape), 0, 1, "bool"), d.add_input(shape), d.either(d.broadcast(shape, within=True))],
    )


_KINDS = ("float32", "int32", "int64", "int8", "uint8", "bool", "float16")


@draws("Cast")
def cast(d: Draw, op: str) -> None:
    source, to = d.pick("float32", "int32", "int64", "bool", "uint8"), d.pick(*_KINDS)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(to))
    d.node(op, [d.add_input(d.shape(), 0, 1 if source == "bool" else 9, source)], to=kind)


@draws("CastLike")
def cast_like(d: Draw, op: str) -> None:
    source, to = d.pick("float32", "int32", "int64", "bool", "uint8"), d.pick(*_KINDS)
    d.node(op, [d.add_input(d.shape(), 0, 1 if source == "bool" else 9, source), d.add_constant(np.zeros(1), to)])


@draws("Pow")
def power(d: Draw, op: str) -> None:
    d.at(7, 13, 15)
    shape = d.shape()
    if d.chance():
        d.node(op, [d.add_input(shape, 0.2, 2), d.add_constant(d.pick(-2, -1, -0.5, 0, 0.5, 1, 2, 3, 2.5), np.float32)])
    elif d.opset > 7 and d.chance():
        d.node(op, [d.add_input(shape), d.add_constant(d.pick(0, 1, 2, 3, 4), d.pick(np.int64, np.int32))])
    else:
        d.node(op, [d.add_input(shape, 0.2, 2), d.either(d.broadcast(shape))])


@draws("Expand")
def expand(d: Draw, op: str) -> None:
    d.at(8, 13)
    shape = d.shape(1, 3)
    wanted = [d.pick(1, n) if n > 1 else d.number(1, 4) for n in shape]
    extra = list(d.shape(0, 1))
    d.node(op, [d.add_input(shape), d.add_constant([*extra, *wanted], np.int64)])


@draws("Tile")
def tile(d: Draw, op: str) -> None:
    d.at(6, 13)
    shape = d.shape()
    d.node(op, [d.add_input(shape), d.add_constant([d.number(1, 3) for _ in shape], np.int64)])


@draws("Gather")
def gather(d: Draw, op: str) -> None:
    d.at(7, 11, 13)
    shape, axis = d.shape(), 0
    if d.chance(0.8):
        axis = d.number(-len(shape) if d.opset > 7 else 0, len(shape) - 1)
    extent = shape[axis]
    low, kind, many = (0 if d.opset == 7 else -extent), d.pick("int32", "int64"), d.shape(0, 2)
    if d.chance():
        places = d.add_input(many, low, extent - 1, kind)
    else:
        places = d.add_constant(d.rng.integers(low, extent, many), kind)
    d.node(op, [d.add_input(shape), places], **({"axis": axis} if axis else {}))


@draws("Slice")
def part(d: Draw, op: str) -> None:
    d.at(9, 10, 11, 13)
    shape = d.shape(1, 4, 6)
    axes = sorted(d.rng.permutation(len(shape))[: d.number(1, len(shape))].tolist())
    if d.opset > 10 and d.chance():
        axes = axes[::-1]
    starts, ends, steps = [], [], []
    for axis in axes:
        n = shape[axis]
        a, step = d.number(0, n - 1), d.number(1, 3)
        if d.opset > 9 and d.chance(0.3):
            b = d.number(0, a)
            starts.append(d.pick(a, a - n))
            ends.append(b - 1 if b > 0 and d.chance() else b - 1 - n)
            steps.append(-step)
        else:
            b = d.number(a + 1, n)
            starts.append(d.pick(a, a - n, *([-n - 3] if a == 0 else [])))
            ends.append(d.pick(b, *([b - n] if b < n else [n + 2, (1 << 31) - 1])))
            steps.append(step)
    shown = [a - len(shape) if d.opset > 9 and d.chance(0.3) else a for a in axes]
    if d.opset == 9:
        d.node(op, [d.add_input(shape)], starts=starts, ends=ends, axes=axes)
        return
    kind = d.pick(np.int64, np.int32)
    names = [d.add_input(shape), *(d.add_constant(v, kind) for v in (starts, ends, shown, steps))]
    plain = set(steps) == {1}
    d.node(op, names[:4] if plain and d.chance() else names)


@draws("Split")
def split(d: Draw, op: str) -> None:
    d.at(7, 11, 13, 18)
    shape = list(d.shape())
    axis = d.number(-len(shape) if d.opset > 7 else 0, len(shape) - 1)
    sizes = [d.number(1, 3) for _ in range(d.number(1, 3))]
    attributes: dict[str, Any] = {"axis": axis}
    if d.chance():
        shape[axis] = sum(sizes)
        names = [d.add_input(shape)]
        if d.opset < 13:
            attributes["split"] = sizes
        else:
            names.append(d.add_constant(sizes, np.int64))
    else:
        width = d.number(1, 3)
        shape[axis] = width * len(sizes) - (d.number(0, min(width - 1, 1)) if d.opset == 18 and len(sizes) > 1 else 0)
        names = [d.add_input(shape)]
        if d.opset == 18:
            attributes["num_outputs"] = len(sizes)
    d.node(op, names, len(sizes), **attributes)


@draws("Concat")
def concat(d: Draw, op: str) -> None:
    d.at(7, 11, 13)
    shape = d.shape()
    axis = d.number(-len(shape) if d.opset > 7 else 0, len(shape) - 1)
    place, names = axis % len(shape), []
    for _ in range(d.number(1, 4)):
        one = [d.number(1, 4) if a == place else n for a, n in enumerate(shape)]
        names.append(d.add_input(one) if not names else d.either(one))
    d.node(op, names, axis=axis)


@draws("Flatten")
def flatten(d: Draw, op: str) -> None:
    d.at(9, 11, 13)
    shape = d.shape()
    d.node(op, [d.add_input(shape)], **d.some(axis=d.number(-len(shape) if d.opset > 9 else 0, len(shape))))


@draws("Reshape")
def reshape(d: Draw, op: str) -> None:
    d.at(7, 13, 14, 19)
    shape = d.shape(1, 3)
    wanted = [0 if d.chance(0.2) else n for n in shape]
    if d.chance():  # two neighbours in one, or everything in another order
        wanted = list(d.rng.permutation(shape)) if d.chance() else [int(np.prod(shape[:2])), *shape[2:]]
    if d.chance() and 0 not in wanted:
        wanted[d.number(0, len(wanted) - 1)] = -1
    attributes = d.some(allowzero=0 if 0 in wanted else 1) if d.opset >= 14 else {}
    d.node(op, [d.add_input(shape), d.add_constant(wanted, np.int64)], **attributes)


@draws("Squeeze")
def squeeze(d: Draw, op: str) -> None:
    d.at(9, 11, 13)
    shape = [1 if d.chance() else n for n in d.shape()]
    ones = [a for a, n in enumerate(shape) if n == 1]
    axes = [a for a in ones if d.chance()]
    shown = [a - len(shape) if d.opset > 9 and d.chance(0.3) else a for a in axes]
    if not axes:
        d.node(op, [d.add_input(shape)])
    elif d.opset < 13:
        d.node(op, [d.add_input(shape)], axes=shown)
    else:
        d.node(op, [d.add_input(shape), d.add_constant(shown, np.int64)])


@draws("Unsqueeze")
def unsqueeze(d: Draw, op: str) -> None:
    d.at(9, 11, 13)
    shape, more = d.shape(0, 3), d.number(1, 2)
    rank = len(shape) + more
    axes = d.rng.permutation(rank)[:more].tolist()
    axes = [a - rank if d.opset > 9 and d.chance(0.3) else a for a in axes]
    if d.opset < 13:
        d.node(op, [d.add_input(shape)], axes=axes if d.opset > 9 else sorted(axes))
    else:
        d.node(op, [d.add_input(shape), d.add_constant(axes, np.int64)])


@draws("Transpose")
def transpose(d: Draw, op: str) -> None:
    shape = d.shape()
    d.node(op, [d.add_input(shape)], **d.some(perm=d.rng.permutation(len(shape)).tolist()))


@draws("Pad")
def pad(d: Draw, op: str) -> None:
    d.at(7, 11, 13, 18, 19)
    shape = d.shape(1, 4, 6)
    mode = d.pick("constant", "constant", "edge", "reflect", *(["wrap"] if d.opset == 19 else []))
    axes = list(range(len(shape)))
    chosen = sorted(d.rng.permutation(len(shape))[: d.number(1, len(shape))].tolist()) if d.opset >= 18 else axes

    def side(axis: int) -> int:
        most = 3 if mode in ("constant", "edge") else shape[axis] - 1
        return 0 if d.chance(0.3) else d.number(0, most)

    pads = [side(a) for a in chosen * 2]
    if mode == "constant" and d.chance(0.3):
        place = d.number(0, len(chosen) - 1)
        if shape[chosen[place]] + pads[place + len(chosen)] > 1:
            pads[place] = -1
    attributes: dict[str, Any] = {"mode": mode} if mode != "constant" or d.chance() else {}
    if d.opset == 7:
        d.node(op, [d.add_input(shape)], pads=pads, **attributes, **d.some(value=float(d.rng.uniform(-2, 2))))
        return
    names = [d.add_input(shape), d.add_constant(pads, np.int64)]
    fill = d.floats(()) if mode == "constant" and d.chance() else ""
    if d.opset >= 18 and (chosen != axes or d.chance()):
        shown = [a - len(shape) if d.chance(0.3) else a for a in chosen]
        names += [fill, d.add_constant(shown, np.int64)]
    elif fill:
        names.append(fill)
    d.node(op, names, **attributes)


@draws("DepthToSpace", "SpaceToDepth")
def blocks(d: Draw, op: str) -> None:
    d.at(*((7, 11, 13) if op == "DepthToSpace" else (7, 13)))
    b, (n, c, h, w) = d.number(1, 3), d.shape(4, 4, 3)
    if op == "SpaceToDepth":
        d.node(op, [d.add_input((n, c, h * b, w * b))], blocksize=b)
        return
    modes = d.some(mode=d.pick("DCR", "CRD")) if d.opset > 7 else {}
    d.node(op, [d.add_input((n, c * b * b, h, w))], blocksize=b, **modes)


@draws("Upsample")
def upsample(d: Draw, op: str) -> None:
    d.at(7, 9)
    scales = [1.0, 1.0, *(d.pick(1.0, 1.5, 2.0, 2.5, 3.0) for _ in range(2))]
    value = d.add_input(d.shape(4, 4))
    attributes = d.some(mode=d.pick("nearest", "linear"))
    if d.opset == 7:
        d.node(op, [value], scales=scales, **attributes)
    else:
        d.node(op, [value, d.add_constant(scales, np.float32)], **attributes)


_TRANSFORMATIONS = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")


def _interpolation(d: Draw) -> dict[str, Any]:
    """Attributes of the mode, as far as ONNX Runtime has them."""
    more = ("half_pixel_symmetric",) if d.opset == 19 else ()
    mode = d.pick("nearest", "linear", "cubic")
    crops = ("tf_crop_and_resize",) if mode == "linear" else ()  # ONNX Runtime crops no axis of scale 1 by "nearest"
    attributes = d.some(
        nearest_mode=d.pick("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"),
        coordinate_transformation_mode=d.pick(*_TRANSFORMATIONS, *more, *crops),
        extrapolation_value=1.5,
    )
    if mode != "nearest" or d.chance():
        attributes["mode"] = mode
    if mode == "cubic":
        attributes |= d.some(cubic_coeff_a=d.pick(-0.5, -0.75), exclude_outside=d.number(0, 1))
    if mode != "nearest" and d.opset >= 18 and "coordinate_transformation_mode" not in attributes:
        attributes |= d.some(antialias=1)
    return attributes


@draws("Resize")
def resize(d: Draw, op: str) -> None:
    d.at(10, 11, 13, 18, 19)
    shape = d.shape(4, 4)
    scales = [1.0, 1.0, *(d.pick(0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 3.0) for _ in range(2))]
    scales[2:] = [s if int(n * s) > 0 else 1.0 for n, s in zip(shape[2:], scales[2:], strict=True)]
    value = d.add_input(shape)
    if d.opset == 10:
        d.node(op, [value, d.add_constant(scales, np.float32)], **d.some(mode=d.pick("nearest", "linear")))
        return
    attributes = _interpolation(d)
    chosen = list(range(4))
    if d.opset >= 18 and d.chance():
        chosen = d.pick([2, 3], [3, 2], [-2, -1], [3])
        attributes["axes"] = chosen
    roi = d.add_constant([], np.float32) if d.opset < 13 else ""
    if attributes.get("coordinate_transformation_mode") == "tf_crop_and_resize":
        begin, end = (
            [{2: a, 3: b}.get(axis % 4, default) for axis in chosen]
            for default, a, b in ((0.0, 0.23, -0.13), (1.0, 0.81, d.pick(0.71, 1.17)))
        )
        roi = d.add_constant([*begin, *end], np.float32)
    if d.chance():
        d.node(op, [value, roi, d.add_constant([scales[a] for a in chosen], np.float32)], **attributes)
        return
    sizes = [max(1, int(shape[a] * scales[a])) for a in chosen]
    if d.opset >= 18 and min(attributes.get("axes", [-1])) >= 0 and d.chance():  # ONNX Runtime forgets negative axes
        attributes["keep_aspect_ratio_policy"] = d.pick("stretch", "not_larger", "not_smaller")
    empty = d.add_constant([], np.float32) if d.opset < 13 else ""
    d.node(op, [value, roi, empty, d.add_constant(sizes, np.int64)], **attributes)


def _draw_indices(d: Draw, shape: Sequence[int], extent: int, computed: bool = True) -> str:
    """Indices within an extent: an input or constants."""
    kind = "int64"
    if computed and d.chance():
        return d.add_input(shape, -extent, extent - 1, kind)
    return d.add_constant(d.rng.integers(-extent, extent, tuple(shape)), kind)


@draws("GatherElements")
def gather_elements(d: Draw, op: str) -> None:
    d.at(11, 13)
    shape = d.shape()
    axis = d.number(-len(shape), len(shape) - 1)
    extents = [d.number(1, n) for n in shape]
    extents[axis] = d.number(1, 6)
    d.node(op, [d.add_input(shape), _draw_indices(d, extents, shape[axis])], **({"axis": axis} if axis else {}))


@draws("GatherND")
def gather_nd(d: Draw, op: str) -> None:
    d.at(11, 12, 13)
    shape = d.shape()
    batch = d.number(0, len(shape) - 1) if d.opset > 11 and d.chance() else 0
    depth = d.number(1, len(shape) - batch)
    extents = [*shape[:batch], *d.shape(0 if batch else 1, 2), depth]
    names = [d.add_input(shape), _draw_indices(d, extents, min(shape[batch : batch + depth]))]
    d.node(op, names, **({"batch_dims": batch} if batch else {}))


def _reduction(d: Draw) -> dict[str, Any]:
    kinds = {16: ("none", "add", "mul"), 18: ("none", "add", "mul", "max", "min")}.get(d.opset)
    return {"reduction": d.pick(*kinds)} if kinds and d.chance(0.7) else {}


@draws("ScatterND")
def scatter_nd(d: Draw, op: str) -> None:
    d.at(11, 13, 16, 18)
    shape = d.shape()
    depth, attributes, outer = d.number(1, len(shape)), _reduction(d), d.shape(1, 2, 3)
    computed = attributes.get("reduction", "none") == "none"
    names = [d.add_input(shape), _draw_indices(d, [*outer, depth], min(shape[:depth]), computed)]
    d.node(op, [*names, d.either([*outer, *shape[depth:]])], **attributes)


@draws("ScatterElements")
def scatter_elements(d: Draw, op: str) -> None:
    d.at(11, 13, 16, 18)
    shape = d.shape()
    axis, attributes = d.number(-len(shape), len(shape) - 1), _reduction(d)
    extents = [d.number(1, n) for n in shape]
    computed = attributes.get("reduction", "none") == "none"
    names = [d.add_input(shape), _draw_indices(d, extents, shape[axis], computed), d.either(extents)]
    d.node(op, names, **attributes, **({"axis": axis} if axis else {}))

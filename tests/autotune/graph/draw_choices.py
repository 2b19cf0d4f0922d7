"""Draws of operators that choose by order or place, sample images, go round loops, and of circular functions."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto, helper

from tests.autotune.graph.drawing import Draw, draws

DOMAINS = {
    **dict.fromkeys(("Sin", "Cos"), (-9.0, 9.0)),
    **dict.fromkeys(("Tan", "Atan", "Sinh", "Cosh", "Asinh"), (-1.3, 1.3)),
    **dict.fromkeys(("Asin", "Acos", "Atanh"), (-0.95, 0.95)),
    "Acosh": (1.0, 9.0),
}
"""Function → where it is drawn: steep functions multiply the roundings of 16-bit floats."""


@draws(*DOMAINS)
def circular(d: Draw, op: str) -> None:
    d.node(op, [d.add_input(d.shape(), *DOMAINS[op])])


@draws("TopK")
def largest(d: Draw, op: str) -> None:
    shape = d.shape()
    axis = d.number(0, len(shape) - 1)
    attributes: dict[str, Any] = {"axis": d.pick(axis, axis - len(shape)), **d.some(largest=d.number(0, 1))}
    count = d.add_constant([d.number(1, shape[axis])], np.int64)
    d.node(op, [d.add_input(shape, -2, 2, d.pick("float32", "int32", "int64")), count], 2, **attributes)


@draws("OneHot")
def one_hot(d: Draw, op: str) -> None:
    shape, depth = d.shape(1, 3), d.number(1, 6)
    indices = d.add_input(shape, -depth, depth - 1, "int64")
    names = [indices, d.add_constant(depth, np.int64), d.add_input((2,))]
    d.node(op, names, **d.some(axis=d.number(-len(shape) - 1, len(shape))))


@draws("Hardmax")
def hardmax(d: Draw, op: str) -> None:
    d.at(11, 13)
    shape = d.shape(2)
    d.node(op, [d.add_input(shape)], **d.some(axis=d.number(-len(shape), len(shape) - 1)))


@draws("Trilu")
def triangle(d: Draw, op: str) -> None:
    names = [d.add_input(d.shape(2, 4), -2, 2, d.pick("float32", "int64"))]
    names += [d.add_constant(d.number(-4, 4), np.int64)] if d.chance(0.7) else []
    d.node(op, names, **d.some(upper=d.number(0, 1)))


@draws("EyeLike")
def eye(d: Draw, op: str) -> None:
    attributes = d.some(k=d.number(-3, 3), dtype=d.pick(TensorProto.FLOAT, TensorProto.INT64))
    d.node(op, [d.add_input(d.shape(2, 2))], **attributes)


@draws("IsInf")
def infinite(d: Draw, op: str) -> None:
    d.opset = 10
    shape = d.shape()
    odd = np.array([np.nan, np.inf, -np.inf, 0.0, 1.0])
    array = d.rng.choice(odd, shape)
    d.node(
        op,
        [d.add_constant(array, np.float32)],
        **d.some(detect_positive=d.number(0, 1), detect_negative=d.number(0, 1)),
    )


@draws("Compress")
def compress(d: Draw, op: str) -> None:
    shape = d.shape()
    axis = d.number(0, len(shape) - 1)
    along = d.chance()
    condition = d.rng.random(shape[axis] if along else int(np.prod(shape))) < 0.5
    condition[-1] = True
    attributes = {"axis": d.pick(axis, axis - len(shape))} if along else {}
    d.node(op, [d.add_input(shape), d.add_constant(condition, bool)], **attributes)


@draws("ReverseSequence")
def reverse_sequence(d: Draw, op: str) -> None:
    shape, batch = d.shape(2, 4), d.number(0, 1)
    lengths = d.add_input((shape[batch],), 1, shape[1 - batch], "int64")
    d.node(op, [d.add_input(shape), lengths], batch_axis=batch, time_axis=1 - batch)


@draws("Scatter")
def scatter(d: Draw, op: str) -> None:
    d.opset = 9
    shape = d.shape(2, 3)
    axis = d.number(0, len(shape) - 1)
    places = np.argsort(d.rng.random(shape), axis)
    d.node(op, [d.add_input(shape), d.add_constant(places, np.int64), d.add_input(shape)], axis=axis)


@draws("TensorScatter")
def written_cache(d: Draw, op: str) -> None:
    d.opset = 24
    shape = (d.number(1, 3), d.number(1, 3), d.number(2, 6), d.number(1, 4))
    steps = d.number(1, shape[2])
    circular = d.chance()
    begins = d.add_input((shape[0],), 0, shape[2] - 1 if circular else shape[2] - steps, "int64")
    names = [d.add_input(shape), d.add_input((*shape[:2], steps, shape[3])), begins]
    d.node(op, names, mode="circular" if circular else "linear")


@draws("LpNormalization")
def unit_length(d: Draw, op: str) -> None:
    shape = d.shape()
    d.node(op, [d.add_input(shape, 0.5, 2)], **d.some(axis=d.number(-len(shape), len(shape) - 1), p=d.number(1, 2)))


@draws("LpPool")
def power_pool(d: Draw, op: str) -> None:
    d.opset = 18
    rank = d.number(1, 3)
    kernel = [d.number(1, 3) for _ in range(rank)]
    shape = (d.number(1, 2), d.number(1, 3), *(d.number(k, k + 5) for k in kernel))
    attributes: dict[str, Any] = d.some(strides=[d.number(1, 2) for _ in kernel], p=d.number(1, 3))
    attributes |= d.some(pads=[d.number(0, k - 1) for k in kernel] * 2)
    d.node(op, [d.add_input(shape)], kernel_shape=kernel, **attributes)


@draws("MaxUnpool")
def max_unpool(d: Draw, op: str) -> None:
    shape = (d.number(1, 2), d.number(1, 2), d.number(1, 3), d.number(1, 3))
    size = 4 * int(np.prod(shape))
    places = d.rng.permutation(size)[: size // 4].reshape(shape)
    places = (
        d.add_constant(places, np.int64)
        if d.chance()
        else d.add_constant(np.sort(places, None).reshape(shape), np.int64)
    )
    d.node(op, [d.add_input(shape), places], kernel_shape=[2, 2], strides=[2, 2])


@draws("GridSample")
def grid_sample(d: Draw, op: str) -> None:
    d.opset = 20
    rank = d.pick(2, 2, 3)
    image = (d.number(1, 2), d.number(1, 3), *(d.number(2, 5) for _ in range(rank)))
    grid = d.add_input((image[0], *(d.number(1, 4) for _ in range(rank)), rank), -1.4, 1.4)
    attributes = d.some(
        padding_mode=d.pick("zeros", "border", "reflection"),
        align_corners=d.number(0, 1),
    )
    mode = d.pick("linear", "nearest", "cubic" if rank == 2 else "linear")
    if rank == 2 and d.chance():
        d.opset = 16
        mode = {"linear": "bilinear", "cubic": "bicubic"}.get(mode, mode)
    d.node(op, [d.add_input(image), grid], mode=mode, **attributes)


@draws("RoiAlign")
def region_align(d: Draw, op: str) -> None:
    d.opset = 16
    image, count = (d.number(1, 3), d.number(1, 3), d.number(3, 8), d.number(3, 8)), d.number(1, 4)
    low, high = d.rng.uniform(0, 3, (count, 2)), d.rng.uniform(3, 9, (count, 2))
    places = d.add_constant(np.concatenate([low, high], 1), np.float32)
    attributes = d.some(
        output_height=d.number(1, 3),
        output_width=d.number(1, 3),
        spatial_scale=d.pick(0.5, 1.0),
        coordinate_transformation_mode=d.pick("half_pixel", "output_half_pixel"),
    )
    names = [d.add_input(image), places, d.add_input((count,), 0, image[0] - 1, "int64")]
    d.node(op, names, sampling_ratio=d.number(1, 3), mode="avg", **attributes)


def _body(d: Draw, name: str, nodes: list[Any], inputs: list[Any], outputs: list[Any]) -> Any:
    return helper.make_graph(nodes, name, inputs, outputs)


def _value(name: str, kind: int = TensorProto.FLOAT, shape: tuple[int, ...] | None = None) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


@draws("If")
def branch(d: Draw, op: str) -> None:
    x = d.add_input(d.shape())
    graphs = {
        f"{name}_branch": _body(d, name, [helper.make_node(kind, [x], [f"{name}_out"])], [], [_value(f"{name}_out")])
        for name, kind in (("then", "Relu"), ("else", "Neg"))
    }
    d.node(op, [d.add_constant(d.chance(), bool)], **graphs)


@draws("Loop")
def loop(d: Draw, op: str) -> None:
    shape = d.shape()
    nodes = [
        helper.make_node("Identity", ["going"], ["on"]),
        helper.make_node("Add", ["state", "state"], ["doubled"]),
        helper.make_node("Neg", ["state"], ["seen"]),
    ]
    inputs = [
        _value("step", TensorProto.INT64, ()),
        _value("going", TensorProto.BOOL, ()),
        _value("state", TensorProto.FLOAT, shape),
    ]
    outputs = [_value("on", TensorProto.BOOL, ()), _value("doubled", shape=shape), _value("seen", shape=shape)]
    names = [d.add_constant(d.number(1, 4), np.int64), d.add_constant(True, bool), d.add_input(shape)]
    d.node(op, names, 2, body=_body(d, "body", nodes, inputs, outputs))


@draws("Scan")
def scan(d: Draw, op: str) -> None:
    shape, steps = d.shape(1, 2), d.number(1, 5)
    nodes = [
        helper.make_node("Add", ["state", "element"], ["total"]),
        helper.make_node("Mul", ["total", "element"], ["seen"]),
    ]
    inputs, outputs = (
        [_value(name, shape=shape) for name in names] for names in (("state", "element"), ("total", "seen"))
    )
    attributes = d.some(scan_input_directions=[d.number(0, 1)], scan_output_directions=[d.number(0, 1)])
    names = [d.add_input(shape, -1, 1), d.add_input((steps, *shape), -1, 1)]
    d.node(op, names, 2, num_scan_inputs=1, body=_body(d, "body", nodes, inputs, outputs), **attributes)

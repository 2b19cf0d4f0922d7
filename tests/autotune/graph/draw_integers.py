"""Draws of operators on integers: remainders, shifts, bytes from and to floats, and their products."""

from __future__ import annotations

import numpy as np

from tests.autotune.graph.drawing import Draw, draws


@draws("Mod")
def remainder(d: Draw, op: str) -> None:
    shape, dtype = d.shape(), d.pick("float32", "int32", "int64", "int8")
    divisors = d.rng.choice([-3, -2, 1, 2, 5], d.broadcast(shape, within=True))
    fmod = 1 if dtype == "float32" else d.number(0, 1)
    d.node(op, [d.add_input(shape, -9, 9, dtype), d.add_constant(divisors, dtype)], fmod=fmod)


@draws("BitShift")
def shift(d: Draw, op: str) -> None:
    shape = d.shape()
    names = [d.add_input(shape, 0, 255, "uint8"), d.add_input(shape, 0, 7, "uint8")]
    d.node(op, names, direction=d.pick("LEFT", "RIGHT"))


@draws("BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor")
def bits(d: Draw, op: str) -> None:
    d.opset = 18
    shape, dtype = d.shape(), d.pick("int8", "uint8", "int32")
    limits = np.iinfo(dtype)
    names = [d.add_input(shape, limits.min, limits.max, dtype)]
    if op != "BitwiseNot":
        names.append(d.add_input(d.broadcast(shape), limits.min, limits.max, dtype))
    d.node(op, names)


def _byte(d: Draw, dtype: str, count: int = 0) -> str:
    """A zero, or one for each of so many."""
    low, high = (0, 255) if dtype == "uint8" else (-128, 127)
    return d.add_constant(d.rng.integers(low, high + 1, (count,) if count else ()), dtype)


def _scale(d: Draw, count: int = 0) -> str:
    return d.add_constant(d.rng.uniform(0.02, 0.1, (count,) if count else ()), np.float32)


@draws("QuantizeLinear", "DequantizeLinear")
def bytes_and_floats(d: Draw, op: str) -> None:
    d.opset = 19
    shape, dtype = d.shape(), d.pick("uint8", "int8")
    axis = d.number(0, len(shape) - 1)
    count = shape[axis] if d.chance() else 0
    data = d.add_input(shape) if op == "QuantizeLinear" else d.add_input(shape, 0, 100, dtype)
    names = [data, _scale(d, count), _byte(d, dtype, count)]
    d.node(op, names, **({"axis": axis} if count else {}))


@draws("MatMulInteger")
def integer_product(d: Draw, op: str) -> None:
    m, k, n = (d.number(1, 6) for _ in range(3))
    batch = (d.number(1, 3),) if d.chance() else ()
    right = d.pick("uint8", "int8")
    # where there are no dot products of bytes, ONNX Runtime adds two products in 16 bits, which saturate
    most = 255 if right == "uint8" else 127
    names = [d.add_input((*batch, m, k), 0, most, "uint8"), d.add_input((k, n), 0, 127, right)]
    names += [_byte(d, "uint8"), _byte(d, right, n if d.chance() else 0)] if d.chance(0.7) else []
    d.node(op, names)


@draws("QLinearMatMul")
def quantised_product(d: Draw, op: str) -> None:
    m, k, n = (d.number(1, 6) for _ in range(3))
    shapes = ((m, k), (k, n))
    given = [name for s in shapes for name in (d.add_input(s, 0, 255, "uint8"), _scale(d), _byte(d, "uint8"))]
    d.node(op, [*given, d.add_constant(5.0, np.float32), _byte(d, "uint8")])


def _image(d: Draw) -> tuple[str, str, int, dict[str, list[int]]]:
    channels, filters = d.number(1, 4), d.number(1, 5)
    kernel = [d.number(1, 3), d.number(1, 3)]
    data = d.add_input((d.number(1, 2), channels, d.number(3, 7), d.number(3, 7)), 0, 255, "uint8")
    weight = d.add_constant(d.rng.integers(0, 256, (filters, channels, *kernel)), np.uint8)
    attributes = d.some(strides=[d.number(1, 2)] * 2, pads=[d.number(0, 1) for _ in range(4)])
    return data, weight, filters, attributes


@draws("ConvInteger")
def integer_convolution(d: Draw, op: str) -> None:
    data, weight, _, attributes = _image(d)
    names = [data, weight] + ([_byte(d, "uint8"), _byte(d, "uint8")] if d.chance(0.7) else [])
    d.node(op, names, **attributes)


@draws("QLinearConv")
def quantised_convolution(d: Draw, op: str) -> None:
    data, weight, filters, attributes = _image(d)
    names = [data, _scale(d), _byte(d, "uint8"), weight, _scale(d), _byte(d, "uint8")]
    names += [d.add_constant(5.0, np.float32), _byte(d, "uint8")]
    names += [d.add_constant(d.rng.integers(-99, 99, filters), np.int32)] if d.chance() else []
    d.node(op, names, **attributes)

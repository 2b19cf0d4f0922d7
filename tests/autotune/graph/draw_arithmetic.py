"""Draws of element-wise operators, layers and reductions."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.autotune.graph.drawing import Draw, draws


@draws("Relu", "Sigmoid", "Tanh", "Exp", "Erf", "Floor", "Softplus", "Softsign", "HardSwish", "Mish", "Ceil", "Round")
def unary(d: Draw, op: str) -> None:
    d.at(*((14, 17) if op == "HardSwish" else (18, 21) if op == "Mish" else (13, 17, 21)))
    d.node(op, [d.add_input(d.shape(), -4, 4)])


@draws("Abs", "Neg", "Sign", "Identity")
def unary_of_any_number(d: Draw, op: str) -> None:
    d.at(13, 17)
    dtype = d.pick("float32", "int32")
    d.node(op, [d.add_input(d.shape(), -4, 4, dtype)])


@draws("Log", "Sqrt", "Reciprocal")
def unary_of_positive_numbers(d: Draw, op: str) -> None:
    d.node(op, [d.add_input(d.shape(), 0.1, 4)])


@draws("Celu", "Elu", "HardSigmoid", "LeakyRelu", "Selu", "ThresholdedRelu", "Gelu")
def parametric(d: Draw, op: str) -> None:
    value = d.rng.uniform
    found: dict[str, dict[str, Any]] = {
        "HardSigmoid": {"alpha": value(-1, 1), "beta": value(-1, 1)},
        "Selu": {"alpha": value(0.5, 2), "gamma": value(0.5, 2)},
        "Gelu": {"approximate": d.pick("none", "tanh")},
        "LeakyRelu": {"alpha": value(-1, 2)},
    }
    d.at(*((20, 21) if op == "Gelu" else (12, 17)))
    d.node(op, [d.add_input(d.shape(), -4, 4)], **d.some(**found.get(op, {"alpha": value(0.2, 2)})))


@draws("PRelu")
def prelu(d: Draw, op: str) -> None:
    d.at(9, 17)
    shape = d.shape()
    d.node(op, [d.add_input(shape), d.either(d.broadcast(shape, within=True))])


@draws("Add", "Sub", "Mul", "Div")
def binary(d: Draw, op: str) -> None:
    d.at(7, 13, 14)
    shape = d.shape()
    other = d.broadcast(shape)
    if op != "Div" and d.chance(0.3):
        d.node(op, [d.add_input(shape, -9, 9, "int32"), d.add_input(other, -9, 9, "int32")])
        return
    names = [d.add_input(shape, 0.5, 2), d.either(other, 0.5, 2)]
    d.node(op, names if d.chance() else names[::-1])


@draws("Max", "Min", "Sum", "Mean")
def variadic(d: Draw, op: str) -> None:
    d.at(8, 13)
    shape = d.shape()
    names = [d.add_input(shape), *(d.either(d.broadcast(shape, within=True)) for _ in range(d.number(0, 2)))]
    d.node(op, list(d.rng.permutation(names)))


@draws("Clip")
def clip(d: Draw, op: str) -> None:
    d.at(6, 11, 13)
    low, high = sorted(d.rng.uniform(-2, 2, 2))
    if d.opset == 6:
        d.node(op, [d.add_input(d.shape())], **d.some(min=low, max=high))
        return
    dtype = d.pick("float32", "int32") if d.opset == 13 else "float32"
    ends = [d.add_constant(np.array(v), dtype) if d.chance(0.7) else "" for v in (low, high)]
    d.node(op, [d.add_input(d.shape(), -4, 4, dtype), *ends])


@draws("Dropout")
def dropout(d: Draw, op: str) -> None:
    d.at(7, 10, 12, 13)
    value = d.add_input(d.shape())
    if d.opset < 12:
        d.node(op, [value], **d.some(ratio=0.3))
        return
    ratio = d.add_constant(0.3, np.float32)
    d.node(op, [value, ratio, d.add_constant(False)] if d.chance() else [value, ratio] if d.chance() else [value])


def _window(d: Draw, rank: int) -> tuple[list[int], list[int], list[int], list[int]]:
    """Kernel, strides, pads smaller than the kernel, and extents that hold a window."""
    kernel = [d.number(1, 4) for _ in range(rank)]
    strides = [d.number(1, 3) for _ in range(rank)]
    pads = [d.number(0, max(0, k - 1)) if d.chance(0.6) else 0 for k in kernel * 2]
    extent = [k + d.number(0, 6) for k in kernel]
    return kernel, strides, pads, extent


def _padding(d: Draw, pads: list[int]) -> dict[str, Any]:
    kind = d.pick("NOTSET", "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")
    return {"pads": pads} if kind == "NOTSET" and d.chance(0.8) else {"auto_pad": kind}


@draws("MaxPool", "AveragePool")
def pool(d: Draw, op: str) -> None:
    d.at(*((8, 10, 12) if op == "MaxPool" else (7, 10, 19)))
    rank = d.pick(1, 2, 2)
    kernel, strides, pads, extent = _window(d, rank)
    attributes = {"kernel_shape": kernel, **_padding(d, pads), **d.some(strides=strides)}
    if str(attributes.get("auto_pad", "")).startswith("SAME") and "strides" in attributes:
        attributes["strides"] = [min(s, k) for s, k in zip(strides, kernel, strict=True)]  # padding is not negative
    if d.opset >= 10:
        attributes |= d.some(ceil_mode=d.number(0, 1))
    if op == "AveragePool":
        attributes |= d.some(count_include_pad=d.number(0, 1))
    d.node(op, [d.add_input((d.number(1, 2), d.number(1, 3), *extent))], **attributes)


@draws("GlobalAveragePool", "GlobalMaxPool")
def global_pool(d: Draw, op: str) -> None:
    d.node(op, [d.add_input(d.shape(3, 5))])


@draws("Conv")
def conv(d: Draw, op: str) -> None:
    d.at(7, 11)
    rank = d.pick(1, 2, 2, 3)
    kernel, strides, pads, extent = _window(d, rank)
    dilations = [d.number(1, 2) for _ in range(rank)]
    group = d.number(1, 3)
    width, outs = d.number(1, 3), d.number(1, 3) * group
    padding = _padding(d, pads)
    attributes = {**padding, **d.some(strides=strides, dilations=dilations, kernel_shape=kernel)}
    if group > 1:
        attributes["group"] = group
    if "auto_pad" in padding and str(padding["auto_pad"]).startswith("SAME"):
        attributes.pop("dilations", None)  # ONNX Runtime refuses the two together
    extent = [e + k for e, k in zip(extent, kernel, strict=True)]
    names = [d.add_input((d.number(1, 2), width * group, *extent)), d.floats((outs, width, *kernel))]
    d.node(op, [*names, d.either((outs,))] if d.chance() else names, **attributes)


@draws("ConvTranspose")
def conv_transpose(d: Draw, op: str) -> None:
    d.at(7, 11)
    rank = d.pick(1, 2, 2)
    kernel, strides = [d.number(1, 4) for _ in range(rank)], [d.number(1, 3) for _ in range(rank)]
    extent, dilations = [d.number(2, 5) for _ in range(rank)], [d.pick(1, 1, 2) for _ in range(rank)]
    group = d.number(1, 3)
    width, outs = d.number(1, 3), d.number(1, 3)
    reach = [(k - 1) * n + 1 for k, n in zip(kernel, dilations, strict=True)]
    full = [(n - 1) * s + r for n, s, r in zip(extent, strides, reach, strict=True)]
    attributes: dict[str, Any] = {"strides": strides, "dilations": dilations, **d.some(kernel_shape=kernel)}
    more = [d.number(0, max(0, s - 1)) for s in strides]
    kind = d.pick("pads", "pads", "SAME_UPPER", "SAME_LOWER", "VALID", "output_shape")
    if kind == "pads":
        pads = [d.number(0, max(0, min(r, f) - 1) // 2) for r, f in zip(reach * 2, full * 2, strict=True)]
        attributes |= d.some(pads=pads, output_padding=more)
    elif kind == "output_shape":
        attributes["output_shape"] = [max(1, f - d.number(0, 2)) for f in full]
        attributes |= d.some(auto_pad=d.pick("SAME_UPPER", "SAME_LOWER"))
    else:
        attributes |= {"auto_pad": kind, **d.some(output_padding=more)}
    if group > 1:
        attributes["group"] = group
    names = [d.add_input((d.number(1, 2), width * group, *extent)), d.floats((width * group, outs, *kernel))]
    d.node(op, [*names, d.either((outs * group,))] if d.chance() else names, **attributes)


@draws("Gemm")
def gemm(d: Draw, op: str) -> None:
    d.at(7, 9, 11, 13)
    m, n, k = (d.number(1, 5) for _ in range(3))
    transposed = d.number(0, 1), d.number(0, 1)
    left, right = ((k, m) if transposed[0] else (m, k)), ((n, k) if transposed[1] else (k, n))
    names = [d.add_input(left), d.either(right)]
    if d.opset < 11 or d.chance(0.7):
        names.append(d.either(d.broadcast((m, n), within=True)))
    factors = {"alpha": float(d.rng.uniform(-2, 2)), "beta": float(d.rng.uniform(-2, 2))}
    d.node(op, names, transA=transposed[0], transB=transposed[1], **d.some(**factors))


@draws("MatMul")
def matmul(d: Draw, op: str) -> None:
    m, n, k = (d.number(1, 5) for _ in range(3))
    batch = d.shape(0, 2, 3)
    left, right = (*batch, m, k), (*(d.broadcast(batch) if batch else ()), k, n)
    if d.chance(0.2):
        left = (k,)
    if d.chance(0.2):
        right = (k,)
    d.node(op, [d.add_input(left), d.either(right)])


@draws("Softmax", "LogSoftmax")
def softmax(d: Draw, op: str) -> None:
    d.at(7, 11, 13)
    shape = d.shape()
    low = -len(shape) if d.opset > 7 else 0
    attributes = d.some(axis=d.number(low, len(shape) - 1)) if len(shape) > 1 else {"axis": 0}
    d.node(op, [d.add_input(shape, -4, 4)], **attributes)


@draws("LRN")
def lrn(d: Draw, op: str) -> None:
    factors = {"alpha": float(d.rng.uniform(0.1, 1)), "beta": 0.6, "bias": float(d.rng.uniform(0.5, 2))}
    d.node(op, [d.add_input(d.shape(4, 4))], size=d.pick(1, 3, 5), **d.some(**factors))


@draws("BatchNormalization")
def batch_normalization(d: Draw, op: str) -> None:
    d.at(7, 9, 14, 15)
    shape = d.shape(2, 4)
    c = shape[1:2]
    statistics = [d.floats(c), d.floats(c), d.floats(c), d.floats(c, 0.5, 2)]
    d.node(op, [d.add_input(shape), *statistics], **d.some(epsilon=1e-2, momentum=0.5))


@draws("InstanceNormalization")
def instance_normalization(d: Draw, op: str) -> None:
    shape = d.shape(3, 4)
    d.node(op, [d.add_input(shape), d.floats(shape[1:2]), d.floats(shape[1:2])], **d.some(epsilon=1e-2))


@draws("GroupNormalization")
def group_normalization(d: Draw, op: str) -> None:
    d.at(18, 21)
    groups, width = d.number(1, 3), d.number(1, 3)
    shape = (d.number(1, 2), groups * width, *d.shape(1, 2))
    size = (groups if d.opset == 18 else groups * width,)
    d.node(op, [d.add_input(shape), d.floats(size), d.floats(size)], num_groups=groups, **d.some(epsilon=1e-2))


@draws("LayerNormalization")
def layer_normalization(d: Draw, op: str) -> None:
    shape = d.shape(1, 4)
    axis = d.number(-len(shape), len(shape) - 1)
    tail = shape[axis % len(shape) :]
    names = [d.add_input(shape), d.either(tail)]
    outputs = d.pick(1, 1, 2, 3)
    names += [d.either(tail)] if d.chance() else []
    d.node(op, names, outputs, **({} if axis == -1 and d.chance() else {"axis": axis}), **d.some(epsilon=1e-2))


_REDUCERS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")


@draws(*(f"Reduce{name}" for name in _REDUCERS))
def reduce(d: Draw, op: str) -> None:
    d.at(11, 13, 18)
    shape = d.shape()
    axes = sorted(d.rng.permutation(len(shape))[: d.number(0, len(shape))].tolist())
    axes = [a - len(shape) if d.chance(0.3) else a for a in axes]
    low = 0.1 if op == "ReduceLogSum" else -2.0
    attributes = d.some(keepdims=d.number(0, 1))
    if d.opset < (13 if op == "ReduceSum" else 18):
        d.node(op, [d.add_input(shape, low)], **attributes, **({"axes": axes} if axes else {}))
        return
    attributes |= d.some(noop_with_empty_axes=d.number(0, 1))
    names = [d.add_constant(np.array(axes), np.int64)] if axes or d.chance() else []
    dtype = "int32" if op in ("ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd") and d.chance(0.3) else "float32"
    d.node(op, [d.add_input(shape, low, 2.0, dtype), *names], **attributes)


@draws("Einsum")
def einsum(d: Draw, op: str) -> None:
    d.opset = 12
    extents = {letter: d.number(1, 4) for letter in "aBcde"}
    around = d.shape(0, 2, 3)
    used, terms, shapes = set[str](), [], []
    for _ in range(d.pick(1, 2, 2, 2, 3)):
        letters = [str(c) for c in d.rng.permutation(list(extents))[: d.number(1, 3)]]
        if d.chance(0.2):  # a diagonal
            letters.insert(d.number(0, len(letters)), letters[0])
        place = d.number(0, len(letters)) if around and d.chance() else -1
        dots = [n if d.chance(0.7) else 1 for n in around]
        terms.append("".join(letters) if place < 0 else f"{''.join(letters[:place])}...{''.join(letters[place:])}")
        shape = [extents[c] for c in letters]
        shapes.append(shape if place < 0 else [*shape[:place], *dots, *shape[place:]])
        used.update(letters)
    equation = d.pick(", ", ",").join(terms)
    if d.chance(0.2):  # without an arrow ONNX Runtime refuses upper case
        equation = equation.lower()
    else:
        kept = [str(c) for c in d.rng.permutation(sorted(used)) if d.chance(0.6)]
        kept.insert(d.number(0, len(kept)), "..." if "..." in equation else "")
        equation += d.pick("->", " -> ") + "".join(kept)
    d.node(op, [d.add_input(shapes[0]), *(d.either(shape) for shape in shapes[1:])], equation=equation)

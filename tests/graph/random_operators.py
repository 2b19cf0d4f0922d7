"""ONNX models of one operator with random legal attributes, for every operator that is imported.

`random_model(rng)` draws one, `random_feeds(model, rng)` its inputs: what they may hold stands in their `doc_string`,
as "low high". Values that the importer wants to know are initialisers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

Array = NDArray[Any]
Shape = Sequence[int]


class Draw:
    """A node on its way to a model.

    Attributes:
        rng: of all that is drawn.
        opset: of the model.
    """

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng, self.opset = rng, 17
        self._inputs: list[onnx.ValueInfoProto] = []
        self._constants: list[onnx.TensorProto] = []
        self._node = onnx.NodeProto()

    def pick(self, *choices: Any) -> Any:
        """One of them."""
        return choices[int(self.rng.integers(len(choices)))]

    def number(self, low: int, high: int) -> int:
        """A whole number from `low` to `high`, both included."""
        return int(self.rng.integers(low, high + 1))

    def chance(self, share: float = 0.5) -> bool:
        return bool(self.rng.random() < share)

    def at(self, *opsets: int) -> int:
        """The operator set is one of these."""
        self.opset = int(self.pick(*opsets))
        return self.opset

    def shape(self, low: int = 1, high: int = 4, largest: int = 5) -> tuple[int, ...]:
        """Of `low` to `high` dimensions."""
        return tuple(self.number(1, largest) for _ in range(self.number(low, high)))

    def given(self, shape: Shape, low: float = -2.0, high: float = 2.0, dtype: str = "float32") -> str:
        """An input; its name."""
        name = f"x{len(self._inputs)}"
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        value = helper.make_tensor_value_info(name, kind, list(shape), doc_string=f"{low} {high}")
        self._inputs.append(value)
        return name

    def known(self, array: Any, dtype: Any = None) -> str:
        """A constant; its name."""
        name = f"c{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(np.asarray(array, dtype), name))
        return name

    def floats(self, shape: Shape, low: float = -2.0, high: float = 2.0) -> str:
        """A constant of random numbers; its name."""
        return self.known(self.rng.uniform(low, high, tuple(shape)), np.float32)

    def either(self, shape: Shape, low: float = -2.0, high: float = 2.0) -> str:
        """An input or a constant; its name."""
        return self.given(shape, low, high) if self.chance() else self.floats(shape, low, high)

    def some(self, **attributes: Any) -> dict[str, Any]:
        """Each of these attributes, or not: then its default holds."""
        return {name: value for name, value in attributes.items() if self.chance(0.7)}

    def broadcast(self, shape: Shape, within: bool = False) -> tuple[int, ...]:
        """A shape that goes with `shape`; `within`: it is brought to `shape`."""
        ones = tuple(1 if self.chance(0.3) else n for n in shape)
        kept = ones[self.number(0, len(ones) - 1) :]
        return kept if within or self.chance() else (self.number(1, 3), *ones)[-4:]

    def node(self, op: str, names: Sequence[str], outputs: int = 1, **attributes: Any) -> None:
        """What the model computes."""
        self._node = helper.make_node(op, names, [f"y{i}" for i in range(outputs)], name="only", **attributes)

    def model(self) -> onnx.ModelProto:
        outputs = [helper.make_empty_tensor_value_info(name) for name in self._node.output]
        graph = helper.make_graph([self._node], "random", self._inputs, outputs, self._constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8)


def random_model(rng: np.random.Generator, op: str | None = None) -> onnx.ModelProto:
    """A model of one node.

    Args:
        rng: of all draws.
        op: the operator; a random one by default.
    """
    draw = Draw(rng)
    GENERATORS[op or draw.pick(*sorted(GENERATORS))](draw)
    return draw.model()


def random_feeds(model: onnx.ModelProto, rng: np.random.Generator) -> dict[str, Array]:
    """Inputs of a model that `random_model` drew."""
    feeds: dict[str, Array] = {}
    for value in model.graph.input:
        kind = value.type.tensor_type
        dtype = helper.tensor_dtype_to_np_dtype(kind.elem_type)
        shape = tuple(dim.dim_value for dim in kind.shape.dim)
        low, high = map(float, value.doc_string.split())
        if dtype.kind == "f":
            feeds[value.name] = rng.uniform(low, high, shape).astype(dtype)
        else:
            feeds[value.name] = rng.integers(int(low), int(high), shape, endpoint=True).astype(dtype)
    return feeds


Generator = Callable[[Draw], None]
GENERATORS: dict[str, Generator] = {}
"""Operator → what draws a node of it."""


def draws(*ops: str) -> Callable[[Callable[[Draw, str], None]], Callable[[Draw, str], None]]:
    """Registers a function of the draw and the operator."""

    def register(function: Callable[[Draw, str], None]) -> Callable[[Draw, str], None]:
        for op in ops:
            assert op not in GENERATORS, op
            GENERATORS[op] = lambda draw, op=op: function(draw, op)  # type: ignore[misc]
        return function

    return register


@draws("Relu", "Sigmoid", "Tanh", "Exp", "Erf", "Floor", "Softplus", "Softsign", "HardSwish", "Mish", "Ceil", "Round")
def unary(d: Draw, op: str) -> None:
    d.at(*((14, 17) if op == "HardSwish" else (18, 21) if op == "Mish" else (13, 17, 21)))
    d.node(op, [d.given(d.shape(), -4, 4)])


@draws("Abs", "Neg", "Sign", "Identity")
def unary_of_any_number(d: Draw, op: str) -> None:
    d.at(13, 17)
    dtype = d.pick("float32", "int32")
    d.node(op, [d.given(d.shape(), -4, 4, dtype)])


@draws("Log", "Sqrt", "Reciprocal")
def unary_of_positive_numbers(d: Draw, op: str) -> None:
    d.node(op, [d.given(d.shape(), 0.1, 4)])


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
    d.node(op, [d.given(d.shape(), -4, 4)], **d.some(**found.get(op, {"alpha": value(0.2, 2)})))


@draws("PRelu")
def prelu(d: Draw, op: str) -> None:
    d.at(9, 17)
    shape = d.shape()
    d.node(op, [d.given(shape), d.either(d.broadcast(shape, within=True))])


@draws("Add", "Sub", "Mul", "Div")
def binary(d: Draw, op: str) -> None:
    d.at(7, 13, 14)
    shape = d.shape()
    other = d.broadcast(shape)
    if op != "Div" and d.chance(0.3):
        d.node(op, [d.given(shape, -9, 9, "int32"), d.given(other, -9, 9, "int32")])
        return
    names = [d.given(shape, 0.5, 2), d.either(other, 0.5, 2)]
    d.node(op, names if d.chance() else names[::-1])


@draws("Max", "Min", "Sum", "Mean")
def variadic(d: Draw, op: str) -> None:
    d.at(8, 13)
    shape = d.shape()
    names = [d.given(shape), *(d.either(d.broadcast(shape, within=True)) for _ in range(d.number(0, 2)))]
    d.node(op, list(d.rng.permutation(names)))


@draws("Clip")
def clip(d: Draw, op: str) -> None:
    d.at(6, 11, 13)
    low, high = sorted(d.rng.uniform(-2, 2, 2))
    if d.opset == 6:
        d.node(op, [d.given(d.shape())], **d.some(min=low, max=high))
        return
    dtype = d.pick("float32", "int32") if d.opset == 13 else "float32"
    ends = [d.known(np.array(v), dtype) if d.chance(0.7) else "" for v in (low, high)]
    d.node(op, [d.given(d.shape(), -4, 4, dtype), *ends])


@draws("Dropout")
def dropout(d: Draw, op: str) -> None:
    d.at(7, 10, 12, 13)
    value = d.given(d.shape())
    if d.opset < 12:
        d.node(op, [value], **d.some(ratio=0.3))
        return
    ratio = d.known(0.3, np.float32)
    d.node(op, [value, ratio, d.known(False)] if d.chance() else [value, ratio] if d.chance() else [value])


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
    d.node(op, [d.given((d.number(1, 2), d.number(1, 3), *extent))], **attributes)


@draws("GlobalAveragePool", "GlobalMaxPool")
def global_pool(d: Draw, op: str) -> None:
    d.node(op, [d.given(d.shape(3, 5))])


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
    names = [d.given((d.number(1, 2), width * group, *extent)), d.floats((outs, width, *kernel))]
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
    names = [d.given((d.number(1, 2), width * group, *extent)), d.floats((width * group, outs, *kernel))]
    d.node(op, [*names, d.either((outs * group,))] if d.chance() else names, **attributes)


@draws("Gemm")
def gemm(d: Draw, op: str) -> None:
    d.at(7, 9, 11, 13)
    m, n, k = (d.number(1, 5) for _ in range(3))
    transposed = d.number(0, 1), d.number(0, 1)
    left, right = ((k, m) if transposed[0] else (m, k)), ((n, k) if transposed[1] else (k, n))
    names = [d.given(left), d.either(right)]
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
    d.node(op, [d.given(left), d.either(right)])


@draws("Softmax", "LogSoftmax")
def softmax(d: Draw, op: str) -> None:
    d.at(7, 11, 13)
    shape = d.shape()
    low = -len(shape) if d.opset > 7 else 0
    attributes = d.some(axis=d.number(low, len(shape) - 1)) if len(shape) > 1 else {"axis": 0}
    d.node(op, [d.given(shape, -4, 4)], **attributes)


@draws("LRN")
def lrn(d: Draw, op: str) -> None:
    factors = {"alpha": float(d.rng.uniform(0.1, 1)), "beta": 0.6, "bias": float(d.rng.uniform(0.5, 2))}
    d.node(op, [d.given(d.shape(4, 4))], size=d.pick(1, 3, 5), **d.some(**factors))


@draws("BatchNormalization")
def batch_normalization(d: Draw, op: str) -> None:
    d.at(7, 9, 14, 15)
    shape = d.shape(2, 4)
    c = shape[1:2]
    statistics = [d.floats(c), d.floats(c), d.floats(c), d.floats(c, 0.5, 2)]
    d.node(op, [d.given(shape), *statistics], **d.some(epsilon=1e-2, momentum=0.5))


@draws("InstanceNormalization")
def instance_normalization(d: Draw, op: str) -> None:
    shape = d.shape(3, 4)
    d.node(op, [d.given(shape), d.floats(shape[1:2]), d.floats(shape[1:2])], **d.some(epsilon=1e-2))


@draws("GroupNormalization")
def group_normalization(d: Draw, op: str) -> None:
    d.at(18, 21)
    groups, width = d.number(1, 3), d.number(1, 3)
    shape = (d.number(1, 2), groups * width, *d.shape(1, 2))
    size = (groups if d.opset == 18 else groups * width,)
    d.node(op, [d.given(shape), d.floats(size), d.floats(size)], num_groups=groups, **d.some(epsilon=1e-2))


@draws("LayerNormalization")
def layer_normalization(d: Draw, op: str) -> None:
    shape = d.shape(1, 4)
    axis = d.number(-len(shape), len(shape) - 1)
    tail = shape[axis % len(shape) :]
    names = [d.given(shape), d.either(tail)]
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
        d.node(op, [d.given(shape, low)], **attributes, **({"axes": axes} if axes else {}))
        return
    attributes |= d.some(noop_with_empty_axes=d.number(0, 1))
    names = [d.known(np.array(axes), np.int64)] if axes or d.chance() else []
    dtype = "int32" if op in ("ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd") and d.chance(0.3) else "float32"
    d.node(op, [d.given(shape, low, 2.0, dtype), *names], **attributes)


@draws("ArgMax", "ArgMin")
def place_of_extreme(d: Draw, op: str) -> None:
    d.at(11, 12, 13)
    shape = d.shape()
    attributes = d.some(axis=d.number(-len(shape), len(shape) - 1), keepdims=d.number(0, 1))
    if d.opset >= 12:
        attributes |= d.some(select_last_index=d.number(0, 1))
    d.node(op, [d.given(shape, -1, 1, d.pick("float32", "int32"))], **attributes)


@draws("And", "Or", "Xor")
def logic(d: Draw, op: str) -> None:
    shape = d.shape()
    d.node(op, [d.given(shape, 0, 1, "bool"), d.given(d.broadcast(shape), 0, 1, "bool")])


@draws("Not")
def negation(d: Draw, op: str) -> None:
    d.node(op, [d.given(d.shape(), 0, 1, "bool")])


@draws("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")
def comparison(d: Draw, op: str) -> None:
    d.at(12, 13, 16)
    shape, dtype = d.shape(), d.pick("float32", "int32", "int64")
    d.node(op, [d.given(shape, -1, 1, dtype), d.given(d.broadcast(shape), -1, 1, dtype)])


@draws("Where")
def where(d: Draw, op: str) -> None:
    shape = d.shape()
    d.node(op, [d.given(d.broadcast(shape), 0, 1, "bool"), d.given(shape), d.either(d.broadcast(shape, within=True))])


_KINDS = ("float32", "int32", "int64", "int8", "uint8", "bool", "float16")


@draws("Cast")
def cast(d: Draw, op: str) -> None:
    source, to = d.pick("float32", "int32", "int64", "bool", "uint8"), d.pick(*_KINDS)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(to))
    d.node(op, [d.given(d.shape(), 0, 1 if source == "bool" else 9, source)], to=kind)


@draws("CastLike")
def cast_like(d: Draw, op: str) -> None:
    source, to = d.pick("float32", "int32", "int64", "bool", "uint8"), d.pick(*_KINDS)
    d.node(op, [d.given(d.shape(), 0, 1 if source == "bool" else 9, source), d.known(np.zeros(1), to)])


@draws("Pow")
def power(d: Draw, op: str) -> None:
    d.at(7, 13, 15)
    shape = d.shape()
    if d.chance():
        d.node(op, [d.given(shape, 0.2, 2), d.known(d.pick(-2, -1, -0.5, 0, 0.5, 1, 2, 3, 2.5), np.float32)])
    elif d.opset > 7 and d.chance():
        d.node(op, [d.given(shape), d.known(d.pick(0, 1, 2, 3, 4), d.pick(np.int64, np.int32))])
    else:
        d.node(op, [d.given(shape, 0.2, 2), d.either(d.broadcast(shape))])


@draws("Expand")
def expand(d: Draw, op: str) -> None:
    d.at(8, 13)
    shape = d.shape(1, 3)
    wanted = [d.pick(1, n) if n > 1 else d.number(1, 4) for n in shape]
    extra = list(d.shape(0, 1))
    d.node(op, [d.given(shape), d.known([*extra, *wanted], np.int64)])


@draws("Tile")
def tile(d: Draw, op: str) -> None:
    d.at(6, 13)
    shape = d.shape()
    d.node(op, [d.given(shape), d.known([d.number(1, 3) for _ in shape], np.int64)])


@draws("Gather")
def gather(d: Draw, op: str) -> None:
    d.at(7, 11, 13)
    shape, axis = d.shape(), 0
    if d.chance(0.8):
        axis = d.number(-len(shape) if d.opset > 7 else 0, len(shape) - 1)
    extent = shape[axis]
    low, kind, many = (0 if d.opset == 7 else -extent), d.pick("int32", "int64"), d.shape(0, 2)
    if d.chance():
        places = d.given(many, low, extent - 1, kind)
    else:
        places = d.known(d.rng.integers(low, extent, many), kind)
    d.node(op, [d.given(shape), places], **({"axis": axis} if axis else {}))


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
        d.node(op, [d.given(shape)], starts=starts, ends=ends, axes=axes)
        return
    kind = d.pick(np.int64, np.int32)
    names = [d.given(shape), *(d.known(v, kind) for v in (starts, ends, shown, steps))]
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
        names = [d.given(shape)]
        if d.opset < 13:
            attributes["split"] = sizes
        else:
            names.append(d.known(sizes, np.int64))
    else:
        width = d.number(1, 3)
        shape[axis] = width * len(sizes) - (d.number(0, min(width - 1, 1)) if d.opset == 18 and len(sizes) > 1 else 0)
        names = [d.given(shape)]
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
        names.append(d.given(one) if not names else d.either(one))
    d.node(op, names, axis=axis)


@draws("Flatten")
def flatten(d: Draw, op: str) -> None:
    d.at(9, 11, 13)
    shape = d.shape()
    d.node(op, [d.given(shape)], **d.some(axis=d.number(-len(shape) if d.opset > 9 else 0, len(shape))))


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
    d.node(op, [d.given(shape), d.known(wanted, np.int64)], **attributes)


@draws("Squeeze")
def squeeze(d: Draw, op: str) -> None:
    d.at(9, 11, 13)
    shape = [1 if d.chance() else n for n in d.shape()]
    ones = [a for a, n in enumerate(shape) if n == 1]
    axes = [a for a in ones if d.chance()]
    shown = [a - len(shape) if d.opset > 9 and d.chance(0.3) else a for a in axes]
    if not axes:
        d.node(op, [d.given(shape)])
    elif d.opset < 13:
        d.node(op, [d.given(shape)], axes=shown)
    else:
        d.node(op, [d.given(shape), d.known(shown, np.int64)])


@draws("Unsqueeze")
def unsqueeze(d: Draw, op: str) -> None:
    d.at(9, 11, 13)
    shape, more = d.shape(0, 3), d.number(1, 2)
    rank = len(shape) + more
    axes = d.rng.permutation(rank)[:more].tolist()
    axes = [a - rank if d.opset > 9 and d.chance(0.3) else a for a in axes]
    if d.opset < 13:
        d.node(op, [d.given(shape)], axes=axes if d.opset > 9 else sorted(axes))
    else:
        d.node(op, [d.given(shape), d.known(axes, np.int64)])


@draws("Transpose")
def transpose(d: Draw, op: str) -> None:
    shape = d.shape()
    d.node(op, [d.given(shape)], **d.some(perm=d.rng.permutation(len(shape)).tolist()))


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
        d.node(op, [d.given(shape)], pads=pads, **attributes, **d.some(value=float(d.rng.uniform(-2, 2))))
        return
    names = [d.given(shape), d.known(pads, np.int64)]
    fill = d.floats(()) if mode == "constant" and d.chance() else ""
    if d.opset >= 18 and (chosen != axes or d.chance()):
        shown = [a - len(shape) if d.chance(0.3) else a for a in chosen]
        names += [fill, d.known(shown, np.int64)]
    elif fill:
        names.append(fill)
    d.node(op, names, **attributes)


@draws("DepthToSpace", "SpaceToDepth")
def blocks(d: Draw, op: str) -> None:
    d.at(*((7, 11, 13) if op == "DepthToSpace" else (7, 13)))
    b, (n, c, h, w) = d.number(1, 3), d.shape(4, 4, 3)
    if op == "SpaceToDepth":
        d.node(op, [d.given((n, c, h * b, w * b))], blocksize=b)
        return
    modes = d.some(mode=d.pick("DCR", "CRD")) if d.opset > 7 else {}
    d.node(op, [d.given((n, c * b * b, h, w))], blocksize=b, **modes)


@draws("Upsample")
def upsample(d: Draw, op: str) -> None:
    d.at(7, 9)
    scales = [1.0, 1.0, *(d.pick(1.0, 1.5, 2.0, 2.5, 3.0) for _ in range(2))]
    value = d.given(d.shape(4, 4))
    if d.opset == 7:
        d.node(op, [value], scales=scales, **d.some(mode="nearest"))
    else:
        d.node(op, [value, d.known(scales, np.float32)], **d.some(mode="nearest"))


_TRANSFORMATIONS = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")


@draws("Resize")
def resize(d: Draw, op: str) -> None:
    d.at(10, 11, 13, 18, 19)
    shape = d.shape(4, 4)
    scales = [1.0, 1.0, *(d.pick(0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 3.0) for _ in range(2))]
    scales[2:] = [s if int(n * s) > 0 else 1.0 for n, s in zip(shape[2:], scales[2:], strict=True)]
    value = d.given(shape)
    if d.opset == 10:
        d.node(op, [value, d.known(scales, np.float32)], **d.some(mode="nearest"))
        return
    more = ("half_pixel_symmetric",) if d.opset == 19 else ()
    attributes = d.some(
        mode="nearest",
        nearest_mode=d.pick("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"),
        coordinate_transformation_mode=d.pick(*_TRANSFORMATIONS, *more),
    )
    chosen = list(range(4))
    if d.opset >= 18 and d.chance():
        chosen = d.pick([2, 3], [3, 2], [-2, -1], [3])
        attributes["axes"] = chosen
    roi = d.known([], np.float32) if d.opset < 13 else ""
    if d.chance():
        d.node(op, [value, roi, d.known([scales[a] for a in chosen], np.float32)], **attributes)
        return
    sizes = [max(1, int(shape[a] * scales[a])) for a in chosen]
    if d.opset >= 18 and min(attributes.get("axes", [-1])) >= 0 and d.chance():  # ONNX Runtime forgets negative axes
        attributes["keep_aspect_ratio_policy"] = d.pick("stretch", "not_larger", "not_smaller")
    empty = d.known([], np.float32) if d.opset < 13 else ""
    d.node(op, [value, roi, empty, d.known(sizes, np.int64)], **attributes)

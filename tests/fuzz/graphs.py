"""Random ONNX graphs of imported operators, with odd shapes and attributes.

`GROW` holds what a graph may grow by; `GENERATORS` what makes whole models, `name -> model of a generator`: a module
that makes models of its own is one line more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper, shape_inference

from tests.autotune.graph import random_operators

OPSET, IR = 17, 8
EXTENTS = (1, 1, 2, 3, 4, 5, 7, 8, 9, 13)
CHANNELS = (1, 2, 3, 4, 6, 8, 16)
LARGEST = 200.0
"""Largest value: beyond it, differences of the size of the rounding grow with later operations."""

Array = NDArray[Any]
Grow = Callable[["Growing", str], Any]


class Unfit(Exception):
    """A drawn operator that does not fit the value."""


class Growing:
    """A model that grows by nodes on values picked at random; float32 values alone are built upon."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.inputs: list[onnx.ValueInfoProto] = []
        rank = self.among((4, 4, 4, 3, 2, 5))
        self.input([self.among((1, 1, 2)), self.among(CHANNELS), *(self.among(EXTENTS) for _ in range(rank - 2))])

    def among(self, options: Sequence[Any]) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def flag(self, share: float = 0.5) -> bool:
        return bool(self.rng.random() < share)

    def number(self, low: float, high: float) -> float:
        return float(np.float32(self.rng.uniform(low, high)))

    def input(self, shape: Sequence[int]) -> str:
        name = f"x{len(self.inputs)}"
        self.inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
        self.shapes[name] = tuple(shape)
        return name

    def weight(self, *shape: int, low: float = -1.0, high: float = 1.0) -> str:
        return self.constant(self.rng.uniform(low, high, shape).astype(np.float32))

    def integers(self, *values: int) -> str:
        return self.constant(np.array(values, np.int64))

    def constant(self, array: Array) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def node(self, op: str, names: Sequence[str], outputs: int = 1, **attributes: Any) -> list[str]:
        """Outputs of one more node; those of 32-bit floats may be built upon.

        Raises:
            Unfit: ONNX finds it invalid, or its result is empty or large.
        """
        made = [f"v{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op, list(names), made, **attributes))
        try:
            inferred = shape_inference.infer_shapes(self.model(made), strict_mode=True)
        except shape_inference.InferenceError as error:
            self.nodes.pop()
            raise Unfit(str(error)) from None
        for value in inferred.graph.output:
            kind = value.type.tensor_type
            shape = tuple(d.dim_value for d in kind.shape.dim)
            if min(shape, default=1) < 1 or math.prod(shape) > 1 << 14 or len(shape) > 5:
                self.nodes.pop()
                raise Unfit(f"shape {shape}")
            if kind.elem_type == TensorProto.FLOAT and shape:
                self.shapes[value.name] = shape
        return made

    def model(self, outputs: Sequence[str]) -> onnx.ModelProto:
        """Returns the model as drawn so far."""
        made = [helper.make_empty_tensor_value_info(name) for name in outputs]
        graph = helper.make_graph(self.nodes, "graph", self.inputs, made, self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR)


UNARY = ("Abs", "Neg", "Relu", "Sigmoid", "Tanh", "Erf", "Softplus", "Softsign", "Identity", "Selu", "Elu")
UNARY += ("HardSwish", "Mish", "LeakyRelu")


def unary(g: Growing, x: str) -> None:
    op = g.among(UNARY)
    more = {"alpha": g.number(0.05, 1.5)} if op in ("LeakyRelu", "Elu") and g.flag() else {}
    if op == "Mish":  # of a later opset; what exporters write in its place
        (soft,) = g.node("Softplus", [x])
        (turned,) = g.node("Tanh", [soft])
        g.node("Mul", [x, turned])
    else:
        g.node(op, [x], **more)


def parametric(g: Growing, x: str) -> None:
    """Functions with numbers of their own."""
    kind = g.among(
        ("HardSigmoid", "Clip", "Celu", "PRelu", "Sqrt", "Log", "Exp", "Reciprocal", "Pow", "ThresholdedRelu")
    )
    if kind == "Clip":
        low, high = g.number(-1, 0), g.number(0, 2)
        ends = [g.constant(np.array(v, np.float32)) if g.flag(0.8) else "" for v in (low, high)]
        g.node("Clip", [x, *ends] if ends[1] else [x, ends[0]] if ends[0] else [x])
    elif kind == "PRelu":
        shape = g.shapes[x]
        g.node("PRelu", [x, g.weight(*(e if g.flag() else 1 for e in shape[1:]), low=0.0)])
    elif kind in ("Sqrt", "Log", "Reciprocal", "Pow"):  # of numbers that are not near 0
        (size,) = g.node("Abs", [x])
        (more,) = g.node("Add", [size, g.constant(np.array(g.number(0.5, 2), np.float32))])
        g.node(kind, [more, g.constant(np.float32([g.among((0.5, 2.0, -1.0, 3.0, 1.7))]))] if kind == "Pow" else [more])
    elif kind == "Exp":
        (flat,) = g.node("Tanh", [x])
        g.node("Exp", [flat])
    elif kind == "ThresholdedRelu":
        if not x.startswith("x"):  # a computed number near the threshold may lie on either side
            raise Unfit(kind)
        g.node(kind, [x], alpha=g.number(0.1, 1))
    elif kind == "HardSigmoid":
        g.node(kind, [x], **({"alpha": g.number(0.1, 0.5), "beta": g.number(0.2, 0.7)} if g.flag() else {}))
    else:
        g.node(kind, [x], alpha=g.number(0.3, 1.5))


def exact(g: Growing, x: str) -> None:
    """Functions with steps, of the inputs alone."""
    if not x.startswith("x"):
        raise Unfit("a computed number near a step may lie on either side of it")
    op = g.among(("Floor", "Ceil", "Round", "Sign", "Where", "Greater", "ArgMax", "Cast"))
    if op == "Where":
        (chosen,) = g.node(g.among(("Greater", "Less", "GreaterOrEqual")), [x, g.constant(np.float32(g.number(-1, 1)))])
        g.node("Where", [chosen, x, g.weight(*g.shapes[x][g.among((0, 1)) :])])
    elif op == "Greater":
        (chosen,) = g.node("Greater", [x, g.weight(*(1 for _ in g.shapes[x]))])
        (turned,) = g.node("Not", [chosen])
        g.node("Cast", [turned], to=TensorProto.FLOAT)
    elif op == "ArgMax":
        axis = g.among(range(-len(g.shapes[x]), len(g.shapes[x])))
        (found,) = g.node(g.among(("ArgMax", "ArgMin")), [x], axis=axis, keepdims=g.among((0, 1)))
        g.node("Cast", [found], to=TensorProto.FLOAT)
    elif op == "Cast":
        (found,) = g.node("Cast", [x], to=g.among((TensorProto.INT32, TensorProto.INT64)))
        g.node("Cast", [found], to=TensorProto.FLOAT)
    else:
        g.node(op, [x])


def binary(g: Growing, x: str) -> None:
    shape = list(g.shapes[x])
    for axis in range(len(shape)):
        if g.flag(0.3):
            shape[axis] = 1 if shape[axis] > 1 else g.among(EXTENTS)
    shape = shape[g.among(range(len(shape))) if g.flag(0.4) else 0 :]
    alike = [v for v, s in g.shapes.items() if s == tuple(shape)]
    y = g.among(alike) if alike and g.flag(0.6) else g.weight(*shape) if g.flag(0.7) else g.input(shape)
    op = g.among(("Add", "Sub", "Mul", "Max", "Min", "Div", "Sum", "Mean"))
    names = [x, y] if g.flag(0.7) else [y, x]
    if op == "Div":
        (size,) = g.node("Abs", [names[1]])
        (names[1],) = g.node("Add", [size, g.constant(np.float32([0.5]))])
    g.node(op, names)


def product(g: Growing, x: str) -> None:
    shape = g.shapes[x]
    n = g.among((1, 1, 2, 3, 5, 16, 17, 33))
    if len(shape) == 2 and g.flag():
        turn_a, turn_b = int(g.flag(0.3)), int(g.flag())
        k = shape[0] if turn_a else shape[1]
        m = shape[1] if turn_a else shape[0]
        names = [x, g.weight(*((n, k) if turn_b else (k, n)))]
        if g.flag(0.7):
            names.append(g.weight(*g.among(((n,), (1,), (1, n), (m, 1), (m, n), ()))))
        more = {"alpha": g.number(0.3, 2)} if g.flag(0.3) else {}
        more |= {"beta": g.number(0.3, 2)} if g.flag(0.3) else {}
        g.node("Gemm", names, transA=turn_a, transB=turn_b, **more)
    else:
        batch = shape[:-2] if g.flag(0.3) else ()
        w = g.weight(*batch, shape[-1], n) if g.flag(0.8) else g.input((*batch, shape[-1], n))
        (made,) = g.node("MatMul", [x, w])
        if g.flag():
            g.node("Add", [made, g.weight(n)])


def _window(g: Growing, x: str, transposed: bool = False) -> dict[str, Any]:
    rank = len(g.shapes[x]) - 2
    if not 1 <= rank <= 3:
        raise Unfit("no image")
    found: dict[str, Any] = {"kernel_shape": [g.among((1, 2, 3, 3)) for _ in range(rank)]}
    if g.flag(0.6):
        found["strides"] = [g.among((1, 2, 3)) for _ in range(rank)]
    if g.flag(0.3):
        found["dilations"] = [g.among((1, 2)) for _ in range(rank)]
    kind = g.among(("none", "pads", "pads", "auto"))
    if kind == "pads":
        found["pads"] = [g.among(range(k)) for k in found["kernel_shape"] * 2]
    elif kind == "auto":
        found["auto_pad"] = g.among(("SAME_UPPER", "SAME_LOWER", "VALID"))
    return found


def convolution(g: Growing, x: str) -> None:
    window, c = _window(g, x), g.shapes[x][1]
    groups = g.among([d for d in range(1, c + 1) if c % d == 0])
    out = groups * g.among((1, 1, 2, 4, 8))
    names = [x, g.weight(out, c // groups, *window["kernel_shape"])]
    if g.flag():
        names.append(g.weight(out))
    (made,) = g.node("Conv", names, group=groups, **window)
    if g.flag(0.3):
        g.node("BatchNormalization", [made, g.weight(out), g.weight(out), g.weight(out), g.weight(out, low=0.3)])
    elif g.flag(0.5):
        g.node(g.among(("Relu", "HardSwish", "Sigmoid")), [made])


def transposed_convolution(g: Growing, x: str) -> None:
    window, c = _window(g, x), g.shapes[x][1]
    if window.get("auto_pad", "").startswith("SAME"):
        window.pop("dilations", None)
    groups = g.among([d for d in range(1, c + 1) if c % d == 0]) if g.flag(0.3) else 1
    out = g.among((1, 2, 3, 5))
    names = [x, g.weight(c, out, *window["kernel_shape"])]
    if "strides" in window and "auto_pad" not in window and g.flag(0.4):
        window["output_padding"] = [g.among(range(s)) for s in window["strides"]]
    if g.flag():
        names.append(g.weight(out * groups))
    g.node("ConvTranspose", names, group=groups, **window)


def pool(g: Growing, x: str) -> None:
    window, op = _window(g, x), g.among(("MaxPool", "AveragePool"))
    window["ceil_mode"] = int(g.flag(0.3))
    if window.get("auto_pad", "").startswith("SAME"):  # ONNX Runtime leaves dilations out there
        window.pop("dilations", None)
        strides = window.get("strides", window["kernel_shape"])
        if "strides" in window:
            window["strides"] = [min(s, k) for s, k in zip(strides, window["kernel_shape"], strict=True)]
    if op == "AveragePool":
        window.pop("dilations", None)
        window["count_include_pad"] = int(g.flag())
    g.node(op, [x], **window)


def global_pool(g: Growing, x: str) -> None:
    if len(g.shapes[x]) < 3:
        raise Unfit("no image")
    g.node(g.among(("GlobalAveragePool", "GlobalMaxPool")), [x])


def normalisation(g: Growing, x: str) -> None:
    shape, op = g.shapes[x], g.among(("InstanceNormalization", "LayerNormalization", "LRN", "BatchNormalization"))
    c = shape[1] if len(shape) > 1 else 1
    if op == "LayerNormalization":
        axis = g.among(range(-len(shape), 0))
        over = shape[axis:]
        g.node(
            op, [x, g.weight(*over), *([g.weight(*over)] if g.flag() else [])], axis=axis, epsilon=g.among((1e-5, 1e-2))
        )
    elif op == "BatchNormalization":
        g.node(op, [x, g.weight(c), g.weight(c), g.weight(c), g.weight(c, low=0.3)], epsilon=g.among((1e-5, 1e-2)))
    elif len(shape) < 3:
        raise Unfit("no image")
    elif op == "LRN":
        g.node(op, [x], size=g.among((1, 2, 3, 5)), alpha=g.number(0.01, 0.5), beta=0.75, bias=1.0)
    else:
        g.node(op, [x, g.weight(c), g.weight(c)], epsilon=1e-2)


def softmax(g: Growing, x: str) -> None:
    rank = len(g.shapes[x])
    g.node(g.among(("Softmax", "LogSoftmax")), [x], axis=g.among(range(-rank, rank)))


REDUCERS = ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "SumSquare", "LogSum", "LogSumExp")


def reduction(g: Growing, x: str) -> None:
    rank = len(g.shapes[x])
    op, axes = g.among(REDUCERS), [a - g.among((0, rank)) for a in range(rank) if g.flag()]
    if op == "LogSum":
        (x,) = g.node("Add", [*g.node("Abs", [x]), g.constant(np.float32(0.5))])
    if op == "Prod" and math.prod(g.shapes[x][a] for a in axes or range(rank)) > 24:
        raise Unfit("the product of many")
    more: dict[str, Any] = {"keepdims": int(g.flag())} if g.flag(0.7) else {}
    if op == "Sum":
        more |= {"noop_with_empty_axes": 1} if g.flag(0.2) else {}
        g.node("ReduceSum", [x, g.integers(*axes)] if axes or g.flag() else [x], **more)
    else:
        g.node(f"Reduce{op}", [x], **more, **({"axes": axes} if axes else {}))


def transpose(g: Growing, x: str) -> None:
    g.node("Transpose", [x], perm=g.rng.permutation(len(g.shapes[x])).tolist())


def reshape(g: Growing, x: str) -> None:
    shape = list(g.shapes[x])
    kind, at = g.among(("join", "split", "flatten", "squeeze", "unsqueeze", "guess")), g.among(range(len(shape)))
    if kind == "flatten":
        g.node("Flatten", [x], axis=g.among(range(-len(shape), len(shape) + 1)))
    elif kind == "squeeze":
        ones = [a for a, e in enumerate(shape) if e == 1]
        if not ones or len(shape) == 1:
            raise Unfit("no axis of 1")
        g.node("Squeeze", [x, g.integers(g.among(ones))])
    elif kind == "unsqueeze":
        g.node("Unsqueeze", [x, g.integers(g.among(range(-len(shape) - 1, len(shape) + 1)))])
    else:
        if kind == "join" and at + 1 < len(shape):
            shape[at : at + 2] = [shape[at] * shape[at + 1]]
        elif kind == "split":
            f = g.among([f for f in (1, 2, 3, 4, 5, 7) if shape[at] % f == 0])
            shape[at : at + 1] = [f, shape[at] // f]
        elif kind == "guess":
            shape[at] = -1
            shape = [0 if e > 0 and g.flag(0.3) else e for e in shape]
        g.node("Reshape", [x, g.integers(*shape)])


def movement(g: Growing, x: str) -> None:
    """Adds an operator that moves elements."""
    shape, op = g.shapes[x], g.among(("Concat", "Split", "Slice", "Pad", "Expand", "Tile", "Gather", "Resize", "Depth"))
    axis = g.among(range(len(shape)))
    if op == "Concat":
        other = list(shape)
        other[axis] = g.among(EXTENTS)
        rest = [*shape[:axis], *shape[axis + 1 :]]
        alike = [v for v, s in g.shapes.items() if len(s) == len(shape) and [*s[:axis], *s[axis + 1 :]] == rest]
        parts = [x, g.among(alike) if g.flag() else g.weight(*other)]
        g.node("Concat", parts if g.flag(0.7) else [*parts, x], axis=axis - g.among((0, len(shape))))
    elif op == "Split":
        first = g.among(range(1, shape[axis] + 1))
        if first == shape[axis]:
            raise Unfit("nothing to split")
        g.node("Split", [x, g.integers(first, shape[axis] - first)], outputs=2, axis=axis)
    elif op == "Slice":
        step = g.among((1, 1, 2, 3, -1, -2))
        begin, end = (g.among(range(-shape[axis] - 1, shape[axis] + 2)) for _ in "be")
        g.node("Slice", [x, g.integers(begin), g.integers(end), g.integers(axis), g.integers(step)])
    elif op == "Pad":
        mode = g.among(("constant", "reflect", "edge"))
        widths = [g.among(range(min(3, e))) if mode == "reflect" else g.among((0, 0, 1, 2)) for e in shape * 2]
        more = [g.constant(np.float32(g.number(-1, 1)))] if mode == "constant" and g.flag() else []
        g.node("Pad", [x, g.integers(*widths), *more], mode=mode)
    elif op == "Expand":
        wide = [g.among((e, 1)) if e > 1 else g.among((1, 2, 5)) for e in shape]
        g.node("Expand", [x, g.integers(*([2] if g.flag(0.2) else []), *wide)])
    elif op == "Tile":
        g.node("Tile", [x, g.integers(*(g.among((1, 1, 2, 3)) for _ in shape))])
    elif op == "Gather":
        count = g.among(((), (1,), (3,), (2, 2)))
        places = g.rng.integers(-shape[axis], shape[axis], count)
        g.node("Gather", [x, g.constant(np.asarray(places, np.int64))], axis=axis)
    elif op == "Depth":
        if len(shape) != 4:
            raise Unfit("no image")
        if g.flag():
            g.node("SpaceToDepth", [x], blocksize=2)
        else:
            g.node("DepthToSpace", [x], blocksize=2, mode=g.among(("DCR", "CRD")))
    else:
        _resize(g, x)


def _resize(g: Growing, x: str) -> None:
    shape = g.shapes[x]
    if len(shape) != 4:
        raise Unfit("no image")
    sizes = [*shape[:2], *(g.among((e, 2 * e, 3 * e, max(1, e // 2))) for e in shape[2:])]
    mode = g.among(("nearest", "linear"))
    more: dict[str, Any] = {"coordinate_transformation_mode": g.among(("asymmetric", "half_pixel", "align_corners"))}
    if mode == "nearest":
        more["nearest_mode"] = g.among(("floor", "round_prefer_floor", "ceil", "round_prefer_ceil"))
    if g.flag():
        g.node("Resize", [x, "", "", g.integers(*sizes)], mode=mode, **more)
    else:
        scales = g.constant(np.float32([1, 1, *(n / e for n, e in zip(sizes[2:], shape[2:], strict=True))]))
        g.node("Resize", [x, "", scales], mode=mode, **more)


GROW: tuple[Grow, ...] = (
    *(
        unary,
        unary,
        parametric,
        exact,
        binary,
        binary,
        product,
        product,
        convolution,
        convolution,
        transposed_convolution,
        pool,
    ),
    *(global_pool, normalisation, softmax, reduction, reduction, transpose, reshape, movement, movement),
)


def random_model(rng: np.random.Generator, most: int = 7) -> onnx.ModelProto:
    """A model of up to `most` operators and one to three outputs."""
    growing, wanted = Growing(rng), 1 + int(rng.integers(most))
    for _ in range(6 * wanted):
        if len(growing.nodes) >= wanted:
            break
        values = list(growing.shapes)
        nodes, weights, shapes = len(growing.nodes), len(growing.weights), dict(growing.shapes)
        inputs = list(growing.inputs)
        try:
            growing.among(GROW)(growing, values[max(rng.integers(len(values), size=3))])
        except Unfit:  # back to what there was
            del growing.nodes[nodes:], growing.weights[weights:]
            growing.shapes, growing.inputs = shapes, inputs
    if not any(name.startswith("v") for name in growing.shapes):
        growing.node("Relu", ["x0"])
    made = [name for name in growing.shapes if name.startswith("v")]
    outputs = dict.fromkeys([made[-1], *(growing.among(made) for _ in range(int(rng.integers(3))))])
    return growing.model(list(outputs))


GENERATORS: dict[str, Callable[[np.random.Generator], onnx.ModelProto]] = {
    "graph": random_model,
    "operator": random_operators.random_model,
}
"""Generators of complete models, by name."""

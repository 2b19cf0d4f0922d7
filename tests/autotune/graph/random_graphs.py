"""Random small graphs of valid nodes, for properties of passes and searches."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from autotune.graph.evaluate import evaluate
from autotune.graph.ir import Array, Graph, GraphBuilder, GraphError, TensorType
from autotune.graph.ops import find
from autotune.graph.passes.layout import inverse

Grow = Callable[["Growing"], str]


class Growing:
    """A graph that grows by nodes on values picked at random."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        n, h, w, c = 1 + int(rng.integers(2)), 4, 1 + int(rng.integers(5)), 1 + int(rng.integers(4))
        self.builder = GraphBuilder("random", {"x": TensorType((n, c, h, w)), "y": TensorType((n, h, w, c))})
        self.values = ["x", "y"]

    def pick(self, rank: int | None = None) -> str:
        """A value; later ones are likelier, so that graphs grow deep."""
        fitting = [v for v in self.values if rank is None or len(self.shape(v)) == rank]
        if not fitting:
            raise GraphError(f"no value of rank {rank}")
        return fitting[max(self.rng.integers(len(fitting), size=2))]

    def shape(self, name: str) -> tuple[int, ...]:
        return self.builder.type(name).shape

    def weight(self, *shape: int) -> str:
        """Random numbers, or often all ones or zeros."""
        kind = self.rng.integers(5)
        array = np.full(shape, kind) if kind < 2 else self.rng.uniform(-1, 1, shape)
        return self.builder.constant(array.astype(np.float32))

    def channels_last(self, name: str) -> str:
        return self.builder.add("transpose", [name], axes=(0, 2, 3, 1))

    def channels_first(self, name: str) -> str:
        return self.builder.add("transpose", [name], axes=(0, 3, 1, 2))


def unary(g: Growing) -> str:
    return g.builder.add(str(g.rng.choice(["relu", "relu6", "abs", "negative", "sigmoid", "tanh"])), [g.pick()])


def limits(g: Growing) -> str:
    if g.rng.integers(2):
        low, high = ((0.0, np.inf), (0.0, 6.0), (-1.0, 1.0), (-np.inf, 0.5))[g.rng.integers(4)]
        return g.builder.add("clip", [g.pick()], low=low, high=high)
    op = str(g.rng.choice(["maximum", "minimum"]))
    return g.builder.add(op, [g.pick(), g.builder.constant(np.full((1,), g.rng.integers(-1, 2), np.float32))])


def with_constant(g: Growing) -> str:
    x = g.pick()
    shape = list(g.shape(x))
    for axis in range(len(shape)):
        if g.rng.integers(2):
            shape[axis] = 1
    shape = shape[int(g.rng.integers(len(shape))) :]
    if g.rng.integers(3) == 0:
        return g.builder.add("affine", [x, g.weight(*shape), g.weight(*shape)])
    operands = [x, g.weight(*shape)]
    if g.rng.integers(3) == 0:
        operands.reverse()
    return g.builder.add(str(g.rng.choice(["add", "subtract", "multiply"])), operands)


def binary(g: Growing) -> str:
    return g.builder.add(str(g.rng.choice(["add", "subtract", "multiply", "maximum"])), [g.pick(), g.pick()])


def transpose(g: Growing) -> str:
    x = g.pick()
    return g.builder.add("transpose", [x], axes=tuple(g.rng.permutation(len(g.shape(x))).tolist()))


def back_and_forth(g: Growing) -> str:
    """An operation in another layout, as importers write it."""
    x = g.pick(4)
    axes = tuple(g.rng.permutation(4).tolist())
    turned = g.builder.add("transpose", [x], axes=axes)
    g.values.append(g.builder.add("relu", [turned]))
    return g.builder.add("transpose", [g.values[-1]], axes=inverse(axes))


def reshape(g: Growing) -> str:
    x = g.pick()
    shape, size = list(g.shape(x)), g.builder.type(x).size
    choice = g.rng.integers(4)
    if choice == 0:
        shape = [shape[0], size // shape[0]]
    elif choice == 1:
        shape.insert(int(g.rng.integers(len(shape) + 1)), 1)
    elif choice == 2 and len(shape) > 1:
        at = int(g.rng.integers(len(shape) - 1))
        shape[at : at + 2] = [shape[at] * shape[at + 1]]
    else:
        at = int(g.rng.integers(len(shape)))
        shape[at : at + 1] = [2, shape[at] // 2] if shape[at] % 2 == 0 else [shape[at], 1]
    return g.builder.add("reshape", [x], shape=shape[:6] if len(shape) <= 6 else [size])


def concat(g: Growing) -> str:
    x = g.pick()
    alike = [v for v in g.values if g.shape(v) == g.shape(x)]
    parts = [x, *(str(v) for v in g.rng.choice(alike, int(g.rng.integers(3))))]
    return g.builder.add("concat", parts, axis=int(g.rng.integers(len(g.shape(x)))))


def cut(g: Growing) -> str:
    x = g.pick()
    begin = [int(g.rng.integers(e)) if g.rng.integers(3) == 0 else 0 for e in g.shape(x)]
    return g.builder.add("slice", [x], begin=begin, size=[e - b for e, b in zip(g.shape(x), begin, strict=True)])


def pad(g: Growing) -> str:
    x = g.pick()
    before, after = ([int(n) for n in g.rng.integers(0, 2, len(g.shape(x)))] for _ in range(2))
    if g.rng.integers(2) and len(g.shape(x)) == 4:
        before = after = [0, 1, 1, 0]
    return g.builder.add("pad", [x], before=before, after=after, value=float(g.rng.integers(2)))


def reduce(g: Growing) -> str:
    x = g.pick()
    axis = int(g.rng.integers(len(g.shape(x))))
    out = g.builder.add("reduce", [x], axes=(axis,), reducer=str(g.rng.choice(["sum", "mean", "max"])))
    if g.rng.integers(2):
        g.values.append(out)
        return out
    shape = list(g.shape(x))
    shape[axis] = 1
    return g.builder.add("reshape", [out], shape=shape)


def convolution(g: Growing) -> str:
    """Adds a convolution, half of the time between transpositions to and from channels last, often with a bias."""
    first = bool(g.rng.integers(2))
    x = g.channels_last(g.pick(4)) if first else g.pick(4)
    c = g.shape(x)[-1]
    kernel = int(g.rng.choice([1, 3]))
    padding = int(g.rng.integers(2)) if kernel > 1 else 0
    if g.rng.integers(3) == 0:
        out = g.builder.add("depthwise_conv2d", [x, g.weight(kernel, kernel, c)], padding=padding)
    else:
        weight = g.weight(kernel, kernel, c, 1 + int(g.rng.integers(4)))
        out = g.builder.add("conv2d", [x, weight], padding=padding, stride=1 + int(g.rng.integers(2)))
    if g.rng.integers(2):
        out = g.builder.add("add", [out, g.weight(g.shape(out)[-1])])
    return g.channels_first(out) if first else out


def pool(g: Growing) -> str:
    x = g.pick(4)
    op = str(g.rng.choice(["max_pool2d", "avg_pool2d"]))
    attrs = {"kernel": 2, "stride": 1, "padding": int(g.rng.integers(2))}
    if g.rng.integers(2):
        return g.builder.add(op, [x], **attrs)
    return g.channels_first(g.builder.add(op, [g.channels_last(x)], **attrs))


def product(g: Growing) -> str:
    x = g.pick()
    shape = g.shape(x)
    rows = g.builder.add("reshape", [x], shape=(shape[0], g.builder.type(x).size // shape[0]))
    out = g.builder.add("matmul", [rows, g.weight(g.shape(rows)[1], 3)])
    return g.builder.add("multiply", [out, g.weight(3)]) if g.rng.integers(2) else out


def of_constants(g: Growing) -> str:
    return g.builder.add("add", [g.weight(2, 3), g.weight(3)])


GROW: tuple[Grow, ...] = (
    *(unary, limits, with_constant, with_constant, binary, transpose, back_and_forth, reshape, concat, cut, pad),
    *(reduce, convolution, convolution, convolution, pool, product, of_constants),
)


def random_graph(seed: int, size: int = 12) -> Graph:
    """A graph of about `size` nodes, and one to three outputs; the last value is among them."""
    rng = np.random.default_rng(seed)
    growing = Growing(rng)
    for _ in range(size):
        grow = GROW[rng.integers(len(GROW))]
        try:
            growing.values.append(grow(growing))
        except GraphError:
            continue  # what was drawn does not fit: a window larger than the data, shapes that do not broadcast
    outputs = [growing.values[-1], *(str(v) for v in rng.choice(growing.values, int(rng.integers(3))))]
    return growing.builder.finish(dict.fromkeys(outputs))


def draw_inputs(graph: Graph, seed: int = 0) -> dict[str, Array]:
    """Random inputs."""
    rng = np.random.default_rng(seed)
    return {name: rng.uniform(-1, 1, kind.shape).astype(kind.dtype) for name, kind in graph.inputs.items()}


def compute_outputs(graph: Graph, seed: int = 0) -> list[Array]:
    """Outputs in order, on random inputs."""
    values = evaluate(graph, draw_inputs(graph, seed))
    return [values[name] for name in graph.outputs]


def assert_equal_outputs(new: Graph, old: Graph, rtol: float = 2e-4) -> None:
    """Asserts equal outputs, up to the rounding of float32 that another order of operations brings."""
    assert [new.type(name) for name in new.outputs] == [old.type(name) for name in old.outputs]
    for got, want in zip(compute_outputs(new), compute_outputs(old), strict=True):
        size = float(np.max(np.abs(want), where=np.isfinite(want), initial=1.0))
        np.testing.assert_allclose(got, want, rtol=rtol, atol=rtol * size)


def count(graph: Graph, *ops: str) -> int:
    """Counts the nodes of these operations."""
    return sum(find(node.op).name in ops for node in graph.nodes)

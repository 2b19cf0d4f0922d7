"""Random tensor programs, drawn node by node, and their values in NumPy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from search_space import te
from search_space.dtypes import numpy_dtype
from search_space.ir.expr import FLOATS
from search_space.schedule.state import operations
from tests.fuzz.nodes import BINARY, INTEGER_UNARY, OPS, REDUCERS, UNARY, Array

Program = dict[str, Any]
"""`inputs`: shape, dtype, constant of each; `nodes`: op, `of` (places among inputs and nodes), attrs; the last is the
output."""

EXTENTS = (1, 1, 2, 3, 4, 5, 7, 8, 9, 13, 16, 17, 24, 31, 33)
DTYPES = ("float32",) * 8 + ("float16", "bfloat16", "int8", "uint8", "int32", "int64")
MOST_ELEMENTS, MOST_WORK = 1 << 13, 1 << 19
LARGEST = {"float32": 500.0, "float16": 100.0, "bfloat16": 50.0}
"""Beyond it a difference of the size of the rounding could be a mistake, or one mistake could pass for rounding."""


def tensors(program: Program) -> list[te.Tensor]:
    """Inputs..., output; every input is read."""
    found = [te.placeholder(i["shape"], i["dtype"], f"x{n}", i["constant"]) for n, i in enumerate(program["inputs"])]
    for n, node in enumerate(program["nodes"]):
        found.append(OPS[node["op"]].expression(f"n{n}", node["attrs"], *(found[p] for p in node["of"])))
    return [*found[: len(program["inputs"])], found[-1]]


def inputs(program: Program, seed: int) -> list[Array]:
    """Random values, exact in every dtype."""
    rng = np.random.default_rng(seed)
    found = []
    for given in program["inputs"]:
        low, high = (0, 5) if given["dtype"] == "uint8" else (-4, 5)
        numbers = rng.integers(low, high, given["shape"])
        found.append((numbers * (0.5 if given["dtype"] in FLOATS else 1)).astype(numpy_dtype(given["dtype"])))
    return found


def evaluate(program: Program, arrays: Sequence[Array], wide: bool = False) -> list[Array]:
    """Every value; with `wide` in float64 throughout."""
    found = [a.astype(np.float64) if wide and a.dtype.kind not in "iub" else a for a in arrays]
    for node in program["nodes"]:
        attrs = node["attrs"]
        if wide and node["op"] == "cast" and attrs["dtype"] in FLOATS:
            found.append(found[node["of"][0]].astype(np.float64))
        else:
            with np.errstate(all="ignore"):
                found.append(OPS[node["op"]].evaluate(attrs, *(found[p] for p in node["of"])))
    return found


def prune(program: Program) -> Program:
    """Removes inputs and nodes that the last node does not read."""
    count, nodes = len(program["inputs"]), program["nodes"]
    needed, stack = set(), [count + len(nodes) - 1]
    while stack:
        place = stack.pop()
        if place not in needed:
            needed.add(place)
            stack += nodes[place - count]["of"] if place >= count else []
    order = sorted(needed)
    new = {old: n for n, old in enumerate(order)}
    kept = [{**nodes[p - count], "of": [new[q] for q in nodes[p - count]["of"]]} for p in order if p >= count]
    return {"inputs": [program["inputs"][p] for p in order if p < count], "nodes": kept}


def smaller(program: Program) -> Iterator[Program]:
    """Programs with less in them: an earlier node is the output, or an input stands for a node."""
    count, nodes = len(program["inputs"]), program["nodes"]
    for last in range(1, len(nodes)):
        yield prune({"inputs": program["inputs"], "nodes": nodes[:last]})
    values = evaluate(program, inputs(program, 0))
    for n in range(len(nodes) - 1):
        value = values[count + n]
        given = {"shape": list(value.shape), "dtype": str(value.dtype), "constant": False}
        if str(value.dtype) != "bool":
            rest = [{**x, "of": [p + (count <= p) for p in x["of"]]} for x in nodes]
            for x in rest:
                x["of"] = [count if p == count + 1 + n else p for p in x["of"]]
            yield prune({"inputs": [*program["inputs"], given], "nodes": rest})


class Growing:
    """A program that grows by nodes on values picked at random."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.inputs: list[dict[str, Any]] = []
        self.nodes: list[dict[str, Any]] = []
        self.dtype = str(rng.choice(DTYPES))
        self.input(self.shape(int(rng.integers(1, 5))))

    @property
    def program(self) -> Program:
        """Program so far, inputs first; until then, nodes refer to later inputs by negative places."""
        count = len(self.inputs)
        nodes = [{**n, "of": [-p - 1 if p < 0 else count + p for p in n["of"]]} for n in self.nodes]
        return {"inputs": list(self.inputs), "nodes": nodes}

    def shape(self, rank: int) -> list[int]:
        while True:
            shape = [int(e) for e in self.rng.choice(EXTENTS, rank)]
            if np.prod(shape) <= 2048:
                return shape

    def input(self, shape: Sequence[int], constant: bool | None = None, dtype: str | None = None) -> int:
        fixed = bool(self.rng.integers(2)) if constant is None else constant
        self.inputs.append(
            {"shape": list(shape), "dtype": dtype or self.dtype, "constant": fixed and len(self.inputs) > 0}
        )
        return -len(self.inputs)

    def values(self) -> dict[int, Array]:
        """Evaluates all values, by place; inputs have negative places."""
        program = self.program
        found = evaluate(program, inputs(program, 0))
        count = len(self.inputs)
        return {**{-n - 1: found[n] for n in range(count)}, **{n: found[count + n] for n in range(len(self.nodes))}}

    def pick(self, values: dict[int, Array]) -> int:
        """The newest, mostly."""
        places = sorted(values)
        return places[max(self.rng.integers(len(places), size=3))]

    def flag(self, share: float = 0.5) -> bool:
        return bool(self.rng.random() < share)

    def small(self, high: int) -> int:
        return int(self.rng.integers(high))

    def among(self, options: Sequence[Any]) -> Any:
        return options[self.small(len(options))]

    def grow(self) -> None:
        """Tries one more node; what is too large, or no number, is left out."""
        before = list(self.inputs)
        values = self.values()
        x = self.pick(values)
        found = self.node(x, values[x])
        if found is None or not self.fits(found):
            self.inputs = before

    def fits(self, node: dict[str, Any]) -> bool:
        self.nodes.append(node)
        program = self.program
        arrays = inputs(program, 0)
        value, exact = evaluate(program, arrays)[-1], evaluate(program, arrays, wide=True)[-1]
        largest = LARGEST.get(str(value.dtype), np.inf)
        good = 0 < value.size <= MOST_ELEMENTS and len(value.shape) <= 5
        if good and (not np.isfinite(exact).all() or np.abs(exact.astype(float)).max() > largest):
            good = False
        if not good:
            self.nodes.pop()
        return good

    def node(self, x: int, value: Array) -> dict[str, Any] | None:
        """A node on a value, or None where what was drawn does not fit it."""
        op = self.among((*OPS, "unary", "binary", "binary", "binary", "reduce", "reduce", "matmul", "matmul", "conv"))
        found = getattr(self, f"_{op}")(x, value)
        if found is None:
            return None
        others, attrs = found
        return {"op": op, "of": [x, *others], "attrs": attrs}

    def _other(self, value: Array, shape: Sequence[int], constant: bool | None = None) -> int:
        """An operand of a shape: a value that has it, or a new input."""
        alike = [p for p, v in self.values().items() if v.shape == tuple(shape) and v.dtype == value.dtype]
        if alike and self.flag():
            return int(self.among(alike))
        return self.input(shape, constant, str(value.dtype))

    def _unary(self, x: int, value: Array) -> Any:
        known = list(UNARY) if str(value.dtype) in FLOATS else list(INTEGER_UNARY)
        f = self.among(known)
        if (f == "floor" and x >= 0) or (value.dtype.kind == "u" and f != "relu"):
            return None
        return [], {"f": f}

    def _cast(self, x: int, value: Array) -> Any:
        if x >= 0 and value.dtype.kind not in "iub":
            return [], {"dtype": "float32"}
        return [], {"dtype": self.among(("float32", "int32", "int64", "float16"))}

    def _binary(self, x: int, value: Array) -> Any:
        shape = list(value.shape)
        for axis, extent in enumerate(shape):
            if self.flag(0.3):
                shape[axis] = 1 if extent > 1 else self.among(EXTENTS[:8])
        shape = shape[self.small(len(shape)) if self.flag(0.4) else 0 :]
        f = self.among([f for f in BINARY if f != "divide" or str(value.dtype) in FLOATS])
        return [self._other(value, shape)], {"f": f}

    def _reduce(self, x: int, value: Array) -> Any:
        axes = [d for d in range(value.ndim) if self.flag()] or [value.ndim - 1]
        return [], {"f": self.among((*REDUCERS, "sum", "sum")), "axes": axes, "keep": self.flag()}

    def _matmul(self, x: int, value: Array) -> Any:
        if not 2 <= value.ndim <= 3:
            return None
        turns = {"turn_left": self.flag(0.3), "turn_right": self.flag(0.3)}
        k, n = value.shape[-2 if turns["turn_left"] else -1], int(self.among(EXTENTS))
        shape = [n, k] if turns["turn_right"] else [k, n]
        batch = list(value.shape[:-2]) if self.flag() else []
        if value.size * n > MOST_WORK:
            return None
        return [self._other(value, [*batch, *shape])], turns

    def _window(self, value: Array) -> Any:
        if value.ndim != 3:
            return None
        kernel, stride, dilation = ([1 + self.small(3) for _ in "hw"] for _ in "ksd")
        reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
        return None if any(r > e for r, e in zip(reach, value.shape[:2], strict=True)) else (kernel, stride, dilation)

    def _conv(self, x: int, value: Array) -> Any:
        found = self._window(value)
        if found is None:
            return None
        kernel, stride, dilation = found
        weight = self._other(value, [*kernel, value.shape[2], int(self.among(EXTENTS))], constant=self.flag(0.8))
        return [weight], {"stride": stride, "dilation": dilation}

    def _pool(self, x: int, value: Array) -> Any:
        found = self._window(value)
        names = ("kernel", "stride", "dilation")
        return (
            None
            if found is None
            else ([], {"f": self.among(("max", "min", "sum")), **dict(zip(names, found, strict=True))})
        )

    def _transpose(self, x: int, value: Array) -> Any:
        return [], {"axes": self.rng.permutation(value.ndim).tolist()}

    def _slice(self, x: int, value: Array) -> Any:
        parts = []
        for extent in value.shape:
            begin, step = (self.small(extent), 1 + self.small(2)) if self.flag() else (0, 1)
            parts.append([begin, (extent - begin - 1) // step + 1, step])
        return [], {"parts": parts}

    def _flip(self, x: int, value: Array) -> Any:
        return [], {"axis": self.small(value.ndim)}

    def _reshape(self, x: int, value: Array) -> Any:
        shape = list(value.shape)
        at = self.small(len(shape))
        if self.flag() and at + 1 < len(shape):
            shape[at : at + 2] = [shape[at] * shape[at + 1]]
        else:
            fits = [f for f in (1, 2, 3, 4, 5, 7) if shape[at] % f == 0]
            f = self.among(fits)
            shape[at : at + 1] = [f, shape[at] // f]
        return [], {"shape": shape}

    def _pad(self, x: int, value: Array) -> Any:
        widths = [[self.small(3), self.small(3)] if self.flag() else [0, 0] for _ in value.shape]
        return [], {"widths": widths, "value": self.small(3)}

    def _concat(self, x: int, value: Array) -> Any:
        axis, shape = self.small(value.ndim), list(value.shape)
        shape[axis] = int(self.among(EXTENTS[:8]))
        return [self._other(value, shape)], {"axis": axis}

    def _choose(self, x: int, value: Array) -> Any:
        if x >= 0:  # a computed number near the limit may lie on either side
            return None
        return [self._other(value, value.shape), self._other(value, value.shape)], {"above": self.small(2)}

    def _mask(self, x: int, value: Array) -> Any:
        if value.ndim < 2:
            return None
        modulo = 2 + self.small(5)
        return [], {"by": self.small(4), "modulo": modulo, "below": 1 + self.small(modulo), "value": self.small(2)}


def draw(seed: int) -> Program:
    """A program of one to six nodes, which reads all its inputs."""
    rng = np.random.default_rng(seed)
    while True:
        program = _draw_program(Growing(rng))
        if len(operations(tensors(program)[-1:])) == len(program["inputs"]) + len(program["nodes"]):
            return program  # an expression that is 0 whatever an input is does not read it


def _draw_program(growing: Growing) -> Program:
    wanted = 1 + growing.small(6)
    for _ in range(8 * wanted):
        if len(growing.nodes) == wanted:
            break
        growing.grow()
    if not growing.nodes:
        growing.nodes.append({"op": "unary", "of": [-1], "attrs": {"f": "relu"}})
    return prune(growing.program)

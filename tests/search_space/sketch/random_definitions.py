"""Random definitions of a few stages: sums, products, windows and element-wise work on axes of one element and of more.

Stages read others at their own indices, mirrored, transposed, at a fixed place, or at 0 as a broadcast does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from search_space import te
from search_space.ir.expr import Expr

EXTENTS = (1, 1, 2, 3, 5, 17)
UNARY: tuple[Callable[[Expr], Expr], ...] = (
    lambda x: te.maximum(x, 0),
    lambda x: te.minimum(te.maximum(x, 0), 6),
    te.tanh,
    lambda x: x * 2 - 1,
)
BINARY: tuple[Callable[[Expr, Expr], Expr], ...] = (
    lambda x, y: x + y,
    lambda x, y: x - y,
    lambda x, y: x * y,
    te.maximum,
)
PRODUCTS = {
    "float32": ("float32", "float32", "float32"),
    "bfloat16": ("bfloat16", "bfloat16", "float32"),
    "float16": ("float16", "float16", "float32"),
    "int8": ("uint8", "int8", "int32"),
}
"""Dtypes of both factors and of their sum."""


class Random:
    """A generator of one definition.

    Args:
        seed: seed of the generator; equal seeds give equal definitions.
    """

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.inputs: list[te.Tensor] = []
        self.tensors: list[te.Tensor] = []

    def pick(self, options: Sequence[Any]) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def definition(self) -> list[te.Tensor]:
        """Inputs that are read, then the output."""
        rank = self.pick((1, 2, 2, 3))
        shape = tuple(self.pick(EXTENTS) for _ in range(rank))
        self.tensors.append(self.product(shape) if self.chance(0.5) and rank > 1 else self.placeholder(shape))
        for _ in range(self.pick((1, 2, 3, 4))):
            self.tensors.append(self.pick((self.unary, self.binary, self.binary, self.reduction, self.window))())
        if self.tensors[-1] in self.inputs:
            self.tensors.append(self.unary())
        return [*self._read(self.tensors[-1]), self.tensors[-1]]

    def _read(self, output: te.Tensor) -> list[te.Tensor]:
        seen: list[te.Tensor] = []

        def visit(tensor: te.Tensor) -> None:
            if tensor not in seen:
                seen.append(tensor)
                for source in tensor.op.inputs:
                    visit(source)

        visit(output)
        return [tensor for tensor in self.inputs if tensor in seen]

    def placeholder(self, shape: Sequence[int], dtype: str = "float32", constant: bool = False) -> te.Tensor:
        self.inputs.append(te.placeholder(tuple(shape), dtype, f"x{len(self.inputs)}", constant))
        return self.inputs[-1]

    def name(self) -> str:
        return f"t{len(self.tensors)}"

    # ------------------------------------------------------------------ stages
    def product(self, shape: tuple[int, ...]) -> te.Tensor:
        """Rows times a matrix, maybe behind an element-wise stage, and brought to float32."""
        left, right, wide = PRODUCTS[self.pick(tuple(PRODUCTS))]
        depth, columns = self.pick((1, 2, 4, 8)), shape[-1]
        a = self.placeholder((*shape[:-1], depth), left)
        b = self.placeholder((depth, columns), right, self.chance(0.7))
        if self.chance(0.5):
            function = self.pick(UNARY[:2] if left == "uint8" else UNARY)
            source = a
            a = te.compute(a.shape, lambda *i: function(source[i]).astype(left), name="prologue")
        r = te.reduce_axis((0, depth), "r")
        sums = te.compute(
            shape,
            lambda *i: te.sum(a[(*i[:-1], r)].astype(wide) * b[r, i[-1]].astype(wide), axis=r),
            name="product",
        )
        if wide == "float32":
            return sums
        return te.compute(shape, lambda *i: sums[i].astype("float32") * 0.001, name="scaled")

    def unary(self) -> te.Tensor:
        source, function = self.tensors[-1], self.pick(UNARY)
        return te.compute(source.shape, lambda *i: function(self.read(source, i)), name=self.name())

    def binary(self) -> te.Tensor:
        """The last tensor with another one, or with itself, in the shape that both are broadcast to."""
        left = self.tensors[-1]
        fitting = [t for t in self.tensors if _broadcast(left.shape, t.shape) is not None]
        right = self.pick((*fitting, None))
        if right is None:
            right = self.placeholder([self.pick((1, e)) for e in left.shape], constant=self.chance(0.5))
        shape, function = _broadcast(left.shape, right.shape), self.pick(BINARY)
        assert shape is not None
        return te.compute(shape, lambda *i: function(self.read(left, i), self.read(right, i)), name=self.name())

    def reduction(self) -> te.Tensor:
        """Reduces one axis, which stays as one of one element or goes."""
        source = self.tensors[-1]
        if not source.shape:
            return self.unary()
        axis, kept = int(self.rng.integers(len(source.shape))), self.chance(0.5)
        r = te.reduce_axis((0, source.shape[axis]), "r")
        reducer = self.pick((te.sum, te.max, te.min))
        after = axis + kept
        shape = (*source.shape[:axis], *(1,) * kept, *source.shape[axis + 1 :])
        return te.compute(shape, lambda *i: reducer(source[(*i[:axis], r, *i[after:])], axis=r), name=self.name())

    def window(self) -> te.Tensor:
        """Sums of three neighbours along one axis, zeros beyond its ends."""
        source = self.tensors[-1]
        if not source.shape:
            return self.unary()
        axis = int(self.rng.integers(len(source.shape)))
        extent = source.shape[axis]
        tag = self.pick(("", "pad"))

        def inside(*i: Any) -> Expr:
            at = (*i[:axis], i[axis] - 1, *i[axis + 1 :])
            return te.if_then_else(te.all(i[axis] >= 1, i[axis] < extent + 1), source[at], 0)

        shape = (*source.shape[:axis], extent + 2, *source.shape[axis + 1 :])
        padded = te.compute(shape, inside, name=f"{self.name()}_pad", tag=tag)
        r = te.reduce_axis((0, 3), "r")
        return te.compute(
            source.shape, lambda *i: te.sum(padded[(*i[:axis], i[axis] + r, *i[axis + 1 :])], axis=r), name=self.name()
        )

    def read(self, tensor: te.Tensor, index: Sequence[Any]) -> Expr:
        """An element of a tensor that is broadcast to what `index` runs over."""
        own = list(index[len(index) - len(tensor.shape) :])
        place = [0 if extent == 1 else i for extent, i in zip(tensor.shape, own, strict=True)]
        square = len(place) > 1 and tensor.shape[-1] == tensor.shape[-2]
        how = self.pick(("own", "own", "own", "mirrored", "turned", "fixed"))
        if how == "turned" and square:
            place[-2:] = place[:-3:-1]
        elif how in ("mirrored", "fixed") and place:
            axis = int(self.rng.integers(len(place)))
            last = tensor.shape[axis] - 1
            place[axis] = last - own[axis] if how == "mirrored" and last else last // 2
        return tensor[tuple(place)]


def _broadcast(left: Sequence[int], right: Sequence[int]) -> tuple[int, ...] | None:
    """The shape that both are brought to, as NumPy has it; None where they do not go together."""
    try:
        return tuple(np.broadcast_shapes(tuple(left), tuple(right)))
    except ValueError:
        return None

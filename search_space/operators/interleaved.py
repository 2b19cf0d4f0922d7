"""Algorithms of strided transposed convolutions that multiply no zeros between the elements of the input.

Output rows y with equal remainders (y + padding) % stride are a phase. A phase reads one position in `stride` of each
filter, and these positions are the same for all of its rows.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import reduce
from itertools import product as pairs_of
from math import prod
from typing import Any, NamedTuple

from search_space import te
from search_space.ir.expr import Expr, lift
from search_space.operators.arithmetic import OPERANDS, product, zero
from search_space.operators.base import Args
from search_space.operators.epilogue import with_epilogue
from search_space.operators.naming import over
from search_space.tags import Tag

PHASES, COLUMNS = "phases", "columns"
"""Names of the algorithms."""
MOST_TERMS = 32
"""Greatest number of products that `columns` adds up for an output element, all in one expression."""


class _Side(NamedTuple):
    """One of the two axes of an image.

    Attributes:
        extent: number of input elements; outputs: number of output elements.
        kernel, stride, padding: numbers of the operator for this axis.
    """

    extent: int
    outputs: int
    kernel: int
    stride: int
    padding: int

    @property
    def taps(self) -> int:
        """Greatest number of input elements that an output element reads."""
        return -(-self.kernel // self.stride)

    @property
    def first(self) -> int:
        """Block of the first output element, see `split`."""
        return self.padding // self.stride

    @property
    def blocks(self) -> int:
        """Number of blocks of `stride` output elements, the first and the last one cut off by the padding."""
        return (self.outputs - 1 + self.padding) // self.stride - self.first + 1

    def split(self, index: Expr) -> tuple[Expr, Expr]:
        """Returns the block of an output element and its phase: block b reads inputs b, b - 1 and so on."""
        shifted = lift(index) + self.padding
        return shifted // self.stride, shifted % self.stride

    @property
    def terms(self) -> int:
        """Number of terms of `list_terms`."""
        return min(self.taps, self.extent)

    def list_terms(self, index: Expr) -> list[tuple[Expr, Expr, list[Expr]]]:
        """Lists the input elements that an output element reads, each with its position in the filter.

        Returns:
            Input element, position, and tests; where a test is false the output element does not read it.
        """
        terms = []
        for step in range(self.terms):
            if self.extent < self.taps:
                element, position = lift(step), lift(index) + (self.padding - self.stride * step)
                tests = [position >= 0, position < self.kernel]
            else:
                block, phase = self.split(index)
                element, position = block - step, phase + self.stride * step
                tests = [element >= 0, element < self.extent, position < self.kernel]
            terms.append((element, position, tests))
        return terms


def list_sides(args: Args, counts: Sequence[int]) -> list[_Side]:
    """Lists the two axes of an image, for outputs of `counts` elements."""
    extents = (args["height"], args["width"])
    return [_Side(*each) for each in zip(extents, counts, args["kernel"], args["stride"], args["padding"], strict=True)]


def is_available(args: Args, algorithm: str) -> bool:
    """Tells whether an algorithm is defined: `phases` for strides that divide the kernel.

    Other kernels have phases with fewer positions. To fill these with zeros is wrong where an input is infinite.
    `columns` is also for images smaller than the kernel, around which the plain definition multiplies zeros.
    """
    sides = list_sides(args, (0, 0))
    if algorithm == PHASES:
        return any(side.stride > 1 for side in sides) and all(side.kernel % side.stride == 0 for side in sides)
    spread = any(side.stride > 1 or side.extent < side.kernel for side in sides)
    return spread and prod(side.terms for side in sides) <= MOST_TERMS


def _placeholders(args: Args) -> tuple[te.Tensor, te.Tensor]:
    activations, weights = OPERANDS[args["dtype"]]
    shape = (args["batch"], args["height"], args["width"], args["in_channels"])
    data = te.placeholder(shape, activations, "data")
    filters = (*args["kernel"], args["in_channels"], args["out_channels"])
    return data, te.placeholder(filters, weights, "weight", constant=True)


def phases(args: Args, sides: Sequence[_Side]) -> list[te.Tensor]:
    """Defines a plain convolution whose output channels are those of all phases, then puts these in their places."""
    data, weight = _placeholders(args)
    outputs, strides = args["out_channels"], [side.stride for side in sides]
    taps = [side.taps for side in sides]
    source = _pad(data, sides, args["dtype"])

    def read_weight(*index: te.IterVar) -> Expr:
        *steps, channel, column = index
        phase = (lift(column) // (strides[1] * outputs), lift(column) // outputs % strides[1])
        place = [of + side.stride * (side.taps - 1 - at) for of, side, at in zip(phase, sides, steps, strict=True)]
        return weight[(*place, channel, lift(column) % outputs)]

    columns = prod(strides) * outputs
    shape = (*taps, args["in_channels"], columns)
    filters = te.compute(shape, over(("rh", "rw", "c", "k"), read_weight), name="weight_phases", tag=Tag.CONSTANT)
    rh, rw, rc = (te.reduce_axis((0, n), name) for n, name in zip(shape, ("rh", "rw", "rc"), strict=False))

    def body(n: Any, h: Any, w: Any, k: Any) -> te.Reduction:
        return te.sum(product(source[n, h + rh, w + rw, rc], filters[rh, rw, rc, k], args["dtype"]), axis=[rh, rw, rc])

    layer = te.compute((args["batch"], *(side.blocks for side in sides), columns), body, name="products")

    def interleave(n: Any, h: Any, w: Any, k: Any) -> Expr:
        (down, row), (right, column) = (side.split(i) for side, i in zip(sides, (h, w), strict=True))
        index = ((row * strides[1] + column) * outputs) + k
        return layer[n, down - sides[0].first, right - sides[1].first, index]

    shape_of_output = (args["batch"], *(side.outputs for side in sides), outputs)
    return with_epilogue(args, [data, weight], te.compute(shape_of_output, interleave, name="conv"))


def columns(args: Args, sides: Sequence[_Side]) -> list[te.Tensor]:
    """Defines the product of each input element with all positions of the filters, then adds up what meets."""
    data, weight = _placeholders(args)
    outputs, kernel = args["out_channels"], [side.kernel for side in sides]

    def read_weight(c: Any, k: Any) -> Expr:
        position = lift(k) // outputs
        return weight[position // kernel[1], position % kernel[1], c, lift(k) % outputs]

    shape = (args["in_channels"], prod(kernel) * outputs)
    filters = te.compute(shape, read_weight, name="weight_columns", tag=Tag.CONSTANT)
    rc = te.reduce_axis((0, args["in_channels"]), "rc")

    def body(n: Any, h: Any, w: Any, k: Any) -> te.Reduction:
        return te.sum(product(data[n, h, w, rc], filters[rc, k], args["dtype"]), axis=[rc])

    layer = te.compute((args["batch"], *(side.extent for side in sides), shape[-1]), body, name="products")

    def read(n: Expr, h: Expr, w: Expr, row: Expr, column: Expr, k: Expr) -> Expr:
        return layer[n, h, w, (row * kernel[1] + column) * outputs + k]

    return _add_terms(args, sides, [data, weight], read)


def positions(args: Args, sides: Sequence[_Side]) -> list[te.Tensor]:
    """Defines what `columns` does, with an axis for each dimension of a filter: the weight's gradient is a product."""
    data, weight = _placeholders(args)
    outputs, kernel = args["out_channels"], [side.kernel for side in sides]
    rc = te.reduce_axis((0, args["in_channels"]), "rc")

    def body(n: Any, h: Any, w: Any, row: Any, column: Any, k: Any) -> te.Reduction:
        return te.sum(product(data[n, h, w, rc], weight[row, column, rc, k], args["dtype"]), axis=[rc])

    layer = te.compute((args["batch"], *(side.extent for side in sides), *kernel, outputs), body, name="products")

    def read(n: Expr, h: Expr, w: Expr, row: Expr, column: Expr, k: Expr) -> Expr:
        return layer[n, h, w, row, column, k]

    return _add_terms(args, sides, [data, weight], read)


def _add_terms(
    args: Args, sides: Sequence[_Side], inputs: list[te.Tensor], read: Callable[..., Expr]
) -> list[te.Tensor]:
    """Adds up the products that meet in an output element.

    Args:
        inputs: data and weight.
        read: function batch, input element, position in the filter and channel → product.
    """

    def add(n: Any, h: Any, w: Any, k: Any) -> Expr:
        terms = []
        for (down, row, above), (right, column, beside) in pairs_of(sides[0].list_terms(h), sides[1].list_terms(w)):
            element = read(n, down, right, row, column, k)
            terms.append(te.if_then_else(te.all(*above, *beside), element, zero(args["dtype"])))
        return reduce(operator.add, terms)

    shape = (args["batch"], *(side.outputs for side in sides), args["out_channels"])
    return with_epilogue(args, inputs, te.compute(shape, add, name="conv"))


def _pad(data: te.Tensor, sides: Sequence[_Side], dtype: str) -> te.Tensor:
    """Pads the input with what the first and the last blocks read."""
    before = [side.taps - 1 - side.first for side in sides]
    extents = [side.blocks + side.taps - 1 for side in sides]
    if not any(before) and extents == [side.extent for side in sides]:
        return data

    def element(n: Any, h: Any, w: Any, c: Any) -> Expr:
        index = [i - offset for i, offset in zip((h, w), before, strict=True)]
        inside = [test for i, side in zip(index, sides, strict=True) for test in (i >= 0, i < side.extent)]
        return te.if_then_else(te.all(*inside), data[n, index[0], index[1], c], zero(dtype))

    return te.compute((data.shape[0], *extents, data.shape[-1]), element, name="pad", tag=Tag.PAD)

"""Algorithms of strided transposed convolutions that multiply no zeros between the elements of the input.

Output rows y with equal remainders (y + padding) % stride are a phase. A phase reads one position in `stride` of each
filter, and these positions are the same for all of its rows.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import reduce
from itertools import product as pairs_of
from math import prod
from typing import Any, NamedTuple

from search_space import te
from search_space.ir.expr import Expr, lift
from search_space.operators.arithmetic import OPERANDS, product, zero
from search_space.operators.base import Args
from search_space.operators.convolution import window_sum
from search_space.operators.epilogue import with_epilogue
from search_space.operators.naming import over
from search_space.operators.windows import Window, pad
from search_space.tags import Tag

PHASES, COLUMNS = "phases", "columns"
"""Names of the algorithms."""
MOST_TERMS = 32
"""Greatest number of products that `columns` adds up for an output element, all in one expression."""


class Side(NamedTuple):
    """One of the two axes of an image.

    Attributes:
        extent: number of input elements.
        kernel, stride, padding, output_padding: numbers of the operator for this axis.
    """

    extent: int
    kernel: int
    stride: int
    padding: int
    output_padding: int

    @property
    def outputs(self) -> int:
        """Number of output elements; not positive if the padding cuts all of them off."""
        return (self.extent - 1) * self.stride - 2 * self.padding + self.kernel + self.output_padding

    @property
    def taps(self) -> int:
        """Greatest number of input elements that an output element reads."""
        return -(-self.kernel // self.stride)

    @property
    def first(self) -> int:
        """Block of the first output element, see `split`."""
        return self.padding // self.stride

    @property
    def last(self) -> int:
        """Block of the last output element."""
        return (self.outputs - 1 + self.padding) // self.stride

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


def list_sides(args: Args) -> list[Side]:
    """Lists the two axes of an image."""
    names = ("kernel", "stride", "padding", "output_padding")
    return [Side(*each) for each in zip((args["height"], args["width"]), *map(args.__getitem__, names), strict=True)]


def is_available(args: Args, algorithm: str) -> bool:
    """Tells whether an algorithm is defined: `phases` for strides that divide the kernel.

    Other kernels have phases with fewer positions. To fill these with zeros is wrong where an input is infinite.
    `columns` is also for images smaller than the kernel, around which the plain definition multiplies zeros.
    """
    sides = list_sides(args)
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


def phases(args: Args) -> list[te.Tensor]:
    """Defines a plain convolution whose output channels are those of all phases, then puts these in their places."""
    (data, weight), sides, dtype = _placeholders(args), list_sides(args), args["dtype"]
    outputs, strides = args["out_channels"], [side.stride for side in sides]
    padding = tuple((side.taps - 1 - side.first, side.last - side.extent + 1) for side in sides)
    window = Window(data.shape[1:3], tuple(side.taps for side in sides), (1, 1), padding, (1, 1))

    def read_weight(*index: te.IterVar) -> Expr:
        *steps, channel, column = index
        phase = (lift(column) // (strides[1] * outputs), lift(column) // outputs % strides[1])
        place = [of + side.stride * (side.taps - 1 - at) for of, side, at in zip(phase, sides, steps, strict=True)]
        return weight[(*place, channel, lift(column) % outputs)]

    shape = (*window.kernel, args["in_channels"], prod(strides) * outputs)
    filters = te.compute(shape, over(("rh", "rw", "c", "k"), read_weight), name="weight_phases", tag=Tag.CONSTANT)
    layer = window_sum(pad(data, window, zero(dtype)), filters, window, dtype, name="products")

    def interleave(n: Any, h: Any, w: Any, k: Any) -> Expr:
        (down, row), (right, column) = (side.split(i) for side, i in zip(sides, (h, w), strict=True))
        index = ((row * strides[1] + column) * outputs) + k
        return layer[n, down - sides[0].first, right - sides[1].first, index]

    shape_of_output = (args["batch"], *(side.outputs for side in sides), outputs)
    return with_epilogue(args, [data, weight], te.compute(shape_of_output, interleave, name="conv"))


def columns(args: Args) -> list[te.Tensor]:
    """Defines the product of each input element with all positions of the filters, then adds up what meets."""
    (data, weight), kernel, outputs = _placeholders(args), args["kernel"], args["out_channels"]

    def read_weight(c: Any, k: Any) -> Expr:
        position = lift(k) // outputs
        return weight[position // kernel[1], position % kernel[1], c, lift(k) % outputs]

    shape = (args["in_channels"], prod(kernel) * outputs)
    filters = te.compute(shape, read_weight, name="weight_columns", tag=Tag.CONSTANT)
    rc = te.reduce_axis((0, args["in_channels"]), "rc")

    def body(n: Any, h: Any, w: Any, k: Any) -> te.Reduction:
        return te.sum(product(data[n, h, w, rc], filters[rc, k], args["dtype"]), axis=[rc])

    layer = te.compute((*data.shape[:3], shape[-1]), body, name="products")

    def read(n: Expr, h: Expr, w: Expr, row: Expr, column: Expr, k: Expr) -> Expr:
        return layer[n, h, w, (row * kernel[1] + column) * outputs + k]

    return _add_terms(args, [data, weight], read)


def positions(args: Args) -> list[te.Tensor]:
    """Defines what `columns` does, with an axis for each dimension of a filter: the weight's gradient is a product."""
    (data, weight), kernel, outputs = _placeholders(args), args["kernel"], args["out_channels"]
    rc = te.reduce_axis((0, args["in_channels"]), "rc")

    def body(n: Any, h: Any, w: Any, row: Any, column: Any, k: Any) -> te.Reduction:
        return te.sum(product(data[n, h, w, rc], weight[row, column, rc, k], args["dtype"]), axis=[rc])

    layer = te.compute((*data.shape[:3], *kernel, outputs), body, name="products")

    def read(n: Expr, h: Expr, w: Expr, row: Expr, column: Expr, k: Expr) -> Expr:
        return layer[n, h, w, row, column, k]

    return _add_terms(args, [data, weight], read)


def _add_terms(args: Args, inputs: list[te.Tensor], read: Callable[..., Expr]) -> list[te.Tensor]:
    """Adds up the products that meet in an output element.

    Args:
        inputs: data and weight.
        read: function batch, input element, position in the filter and channel → product.
    """
    sides = list_sides(args)

    def add(n: Any, h: Any, w: Any, k: Any) -> Expr:
        terms = []
        for (down, row, above), (right, column, beside) in pairs_of(sides[0].list_terms(h), sides[1].list_terms(w)):
            element = read(n, down, right, row, column, k)
            terms.append(te.if_then_else(te.all(*above, *beside), element, zero(args["dtype"])))
        return reduce(operator.add, terms)

    shape = (args["batch"], *(side.outputs for side in sides), args["out_channels"])
    return with_epilogue(args, inputs, te.compute(shape, add, name="conv"))

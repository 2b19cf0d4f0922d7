"""im2col: a convolution as one product of matrices, whose left one holds the window of every output pixel."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from search_space import te
from search_space.ir.expr import Expr
from search_space.operators.arithmetic import product, zero
from search_space.operators.base import Args, callable_library
from search_space.operators.convolution import placeholders
from search_space.operators.epilogue import with_epilogue
from search_space.operators.naming import over
from search_space.operators.windows import Window, pad
from search_space.tags import Tag


def is_available(args: Args, algorithm: str) -> bool:
    """Tells whether an algorithm is available; with groups there are several products of matrices, not one."""
    return algorithm == "direct" or (args["groups"] == 1 and callable_library(args, algorithm))


def library(args: Args) -> list[te.Tensor]:
    """Defines the convolution with the product of matrices by a library."""
    return im2col(args, Tag.LIBRARY)


def im2col(args: Args, tag: Tag = Tag.NONE) -> list[te.Tensor]:
    """Defines `col` (pixels, window, channels) times the weights as `gemm`, brought into shape by `conv`."""
    window, dtype = Window.of(args), args["dtype"]
    data, weight = placeholders(args)
    source = pad(data, window, zero(dtype))
    pixels, depth = args["batch"] * prod(window.output), args["in_channels"]

    def gather(m: te.IterVar, *rest: te.IterVar) -> Expr:
        *within, c = rest
        n, *at = unravel(m, (args["batch"], *window.output))
        return source[(n, *window.index(at, within), c)]

    # Unless the input is that matrix already, a schedule chooses where the copy is made, as it does for padding.
    same = prod(window.kernel) == prod(window.stride) == 1 and not window.is_padded
    copied = Tag.NONE if same else Tag.PAD
    within = window.reduce_axes()
    names = ("m", *(axis.name for axis in within), "c")
    col = te.compute((pixels, *window.kernel, depth), over(names, gather), name="col", tag=copied)
    rc = te.reduce_axis((0, depth), "rc")

    def sum_up(m: te.IterVar, k: te.IterVar) -> te.Reduction:
        taps = product(col[(m, *within, rc)], weight[(*within, rc, k)], dtype)
        return te.sum(taps, axis=[*within, rc])

    gemm = te.compute((pixels, args["out_channels"]), sum_up, name="gemm", tag=tag)

    def read_product(*index: te.IterVar) -> Expr:
        return gemm[ravel(index[:-1], (args["batch"], *window.output)), index[-1]]

    shape = (args["batch"], *window.output, args["out_channels"])
    layer = te.compute(shape, over(("n", *window.spatial, "k"), read_product), name="conv")
    return with_epilogue(args, [data, weight], layer)


def unravel(index: Any, shape: Sequence[int]) -> list[Any]:
    """Splits an index into a flat array into one index for each dimension of `shape`."""
    indices: list[Any] = []
    for extent in reversed(shape[1:]):
        indices.append(index % extent)
        index = index // extent
    return [index, *reversed(indices)]


def ravel(indices: Sequence[Any], shape: Sequence[int]) -> Any:
    """Computes the flat index of indices, the reverse of `unravel`."""
    flat = indices[0]
    for index, extent in zip(indices[1:], shape[1:], strict=True):
        flat = flat * extent + index
    return flat

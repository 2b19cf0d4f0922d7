"""Convolutions over 1, 2 and 3 axes. Activations are channels-last."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ParamSpec

from search_space.operators import even, strassen, winograd
from search_space.operators.base import LIBRARY, REQUIRED_ARGUMENT, Args, Definition, Operator, Precision
from search_space.operators.convolution import direct, flops, format_key_arguments, layer_arguments, reference, terms
from search_space.operators.im2col import im2col, is_available, library
from search_space.operators.windows import Padding, Pair, Single, Triple

P = ParamSpec("P")


def conv1d(
    batch: int = 1,
    width: int = REQUIRED_ARGUMENT,
    in_channels: int = REQUIRED_ARGUMENT,
    out_channels: int = REQUIRED_ARGUMENT,
    kernel: Single = 3,
    stride: Single = 1,
    padding: Padding = 0,
    dilation: Single = 1,
    groups: int = 1,
    bias: bool = False,
    activation: str | None = None,
    dtype: str = "float32",
    constant_weight: bool = True,
) -> dict[str, Any]:
    """Computes a convolution along one axis: data (batch, width, in_channels), weight (kernel, depth, out_channels).

    The depth is in_channels/groups. See `conv2d` for the arguments.
    """
    return layer_arguments(**locals())


def conv2d(
    batch: int = 1,
    height: int = REQUIRED_ARGUMENT,
    width: int = REQUIRED_ARGUMENT,
    in_channels: int = REQUIRED_ARGUMENT,
    out_channels: int = REQUIRED_ARGUMENT,
    kernel: Pair = 3,
    stride: Pair = 1,
    padding: Padding = 0,
    dilation: Pair = 1,
    groups: int = 1,
    bias: bool = False,
    activation: str | None = None,
    dtype: str = "float32",
    constant_weight: bool = True,
) -> dict[str, Any]:
    """Computes a convolution: data (batch, height, width, in_channels), weight (*kernel, depth, out_channels).

    The depth is in_channels/groups.

    Args:
        kernel, stride, dilation: one number, or one for height and one for width.
        padding: zeros on each side: one number, or one for height and one for width; or (before, after) for each.
        groups: number of groups; each maps an equal share of the input channels to one of the output channels.
        bias: adds one constant a channel.
        activation: a function of `functions.ACTIVATIONS` applied to the sum.
        dtype: float32; tfloat32: float32 with factors rounded to 10 bits of mantissa; float16 or bfloat16, accumulated
            in float32; int8: uint8 data, int8 weights and an int32 output.
        constant_weight: whether the layout of the weight may be changed before the first call; otherwise it is
            computed, as in training.
    """
    return layer_arguments(**locals())


def conv3d(
    batch: int = 1,
    depth: int = REQUIRED_ARGUMENT,
    height: int = REQUIRED_ARGUMENT,
    width: int = REQUIRED_ARGUMENT,
    in_channels: int = REQUIRED_ARGUMENT,
    out_channels: int = REQUIRED_ARGUMENT,
    kernel: Triple = 3,
    stride: Triple = 1,
    padding: Padding = 0,
    dilation: Triple = 1,
    groups: int = 1,
    bias: bool = False,
    activation: str | None = None,
    dtype: str = "float32",
    constant_weight: bool = True,
) -> dict[str, Any]:
    """Computes a convolution of volumes: data (batch, depth, height, width, in_channels). See `conv2d` for the rest."""
    return layer_arguments(**locals())


def _available(args: Args, algorithm: str) -> bool:
    if algorithm == strassen.STRASSEN:
        return strassen.convolves(args)
    if algorithm == even.PAIRS:
        return even.available(args)
    return winograd.available(args, algorithm) if algorithm in winograd.TILES else is_available(args, algorithm)


def _operator(normalise: Callable[P, dict[str, Any]], more: Mapping[str, Definition] = {}) -> Operator[P]:
    plain = {"direct": direct, "im2col": im2col, LIBRARY: library}
    definitions = {**plain, even.PAIRS: even.even, **more, strassen.STRASSEN: strassen.convolution}
    accuracy = (
        Precision(terms, winograd.scale, winograd.floor, rounding=winograd.rounding) if more else Precision(terms)
    )
    return Operator(
        normalise.__name__,
        normalise,
        definitions,
        reference,
        flops,
        accuracy,
        available=_available,
        describe=format_key_arguments,
    )


CONV1D, CONV3D = _operator(conv1d), _operator(conv3d)
CONV2D = _operator(conv2d, winograd.DEFINITIONS)

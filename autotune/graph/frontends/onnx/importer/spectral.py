"""Fourier transforms of static lengths as products with matrices, see `fourier`."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from autotune.graph.calls import Call
from autotune.graph.frontends.onnx.importer import fourier
from autotune.graph.frontends.onnx.importer.registry import imports
from autotune.graph.ir import Array, Node
from search_space.ir.expr import FLOATS

MOST_WEIGHTS = 1 << 24
"""Maximum number of elements of a transform's matrix."""


@imports("DFT")
def discrete_fourier_transform(call: Call) -> str:
    """Transforms along an axis, forward or inverse; `onesided` omits, or restores, frequencies of real signals."""
    value, shape = call.value(0), call.type(0).shape
    rank = len(shape)
    if call.context.opset < 20:
        axis = int(call.attrs.get("axis", 1))
    else:
        axis = int(call.require_array(2, "axis").reshape(-1)[0]) if call.has(2) else -2
    axis %= rank
    call.require(axis < rank - 1, "must transform another axis than that of real and imaginary parts", f"axis={axis}")
    inverse, onesided = bool(call.attrs.get("inverse", 0)), bool(call.attrs.get("onesided", 0))
    default = 2 * (shape[axis] - 1) if inverse and onesided else shape[axis]
    length = int(call.require_array(1, "length").reshape(-1)[0]) if call.has(1) else default
    transform = _Transform(value, axis, length, inverse, onesided)
    real = call.context.builder.node(value)
    if real is not None and _without_imaginary(call, real):
        transform = replace(transform, value=real.inputs[0])
    return _transform(call, transform)


@dataclass(frozen=True)
class _Transform:
    """A Fourier transform of a value.

    Attributes:
        value: value with real and, optionally, imaginary parts along its last axis.
        axis: axis that is transformed.
        length: length of the transform.
        inverse, onesided: ONNX's attributes.
    """

    value: str
    axis: int
    length: int
    inverse: bool
    onesided: bool

    @property
    def parts(self) -> int:
        """Number of parts of an output: 1 if it is real, otherwise 2."""
        return 1 if self.inverse and self.onesided else 2

    @property
    def output_length(self) -> int:
        """Number of frequencies, or positions, of the output."""
        return self.length // 2 + 1 if self.onesided and not self.inverse else self.length


def _without_imaginary(call: Call, node: Node) -> bool:
    """Tells whether a value is a real signal with zeros appended as its imaginary part."""
    if node.op != "concat" or len(node.inputs) != 2 or node.attrs["axis"] != len(node.type.shape) - 1:
        return False
    zeros = call.context.builder.array(node.inputs[1])
    return zeros is not None and node.type.shape[-1] == 2 and not zeros.any()


def _transform(call: Call, of: _Transform) -> str:
    """Transforms by one product, or by stages if these cost less."""
    shape, dtype = call.shape(of.value), call.context.builder.type(of.value).dtype
    _check(call, dtype, shape[-1], of.length)
    columns = math.prod(shape[:-1]) // shape[of.axis]
    digits: fourier.Digits = (of.length,)
    if dtype == "float32":
        digits = fourier.choose_digits(of.length, shape[-1], columns, of.axis < len(shape) - 2)
    return _in_stages(call, of, digits) if len(digits) > 1 else _at_once(call, of)


def _at_once(call: Call, of: _Transform) -> str:
    """Multiplies rows of interleaved real and imaginary parts by the matrix of the whole transform."""
    shape = call.shape(of.value)
    rank = len(shape)
    matrix = _matrix(call, of.value, shape[of.axis], of.length, of.inverse, of.onesided)
    order = [a for a in range(rank) if a != of.axis]
    order.insert(rank - 2, of.axis)
    value = _transpose(call, of.value, order)
    outer = [shape[a] for a in order[:-2]]
    rows = call.add("reshape", [value], shape=(math.prod(outer), len(matrix)))
    out = call.add("matmul", [rows, call.constant(matrix)])
    out = call.add("reshape", [out], shape=(*outer, of.output_length, of.parts))
    return _transpose(call, out, np.argsort(order))


def _in_stages(call: Call, of: _Transform, digits: fourier.Digits) -> str:
    """Multiplies by the matrices of each digit on the left: signals stay side by side, and nothing moves in between."""
    shape = call.shape(of.value)
    rank, parts, signals = len(shape), shape[-1], [a for a in range(len(shape) - 1) if a != of.axis]
    others = [shape[a] for a in signals]
    for size in fourier.list_shapes(digits, parts):
        _check_size(call, *size)
    value = _transpose(call, of.value, [rank - 1, of.axis, *signals])
    value = _fit_length(call, value, of, digits[0])
    done, columns = 1, math.prod(others)
    frequencies = [*digits[:-1], -(-of.output_length * digits[-1] // of.length)]
    for number, matrices in enumerate(fourier.stages(digits, parts, of.inverse)):
        last = number == len(digits) - 1
        places = call.shape(value)[1] * digits[0] // of.length if number == 0 else digits[number]
        weight = matrices[:, : frequencies[number], : of.parts if last else 2, :, :places]
        rows = weight.shape[1] * weight.shape[2]
        weight = weight.reshape(done, rows, -1).astype(np.float32)
        rest = of.length // (done * digits[number]) * columns
        around = (done,) if number else ()
        value = call.add("reshape", [value], shape=(*around, weight.shape[2], rest))
        weights = call.constant(weight if number else weight[0])
        value = call.add("batch_matmul" if number else "matmul", [weights, value])
        done *= digits[number]
    count = len(digits)
    value = call.add("reshape", [value], shape=(*frequencies, of.parts, *others))
    before = [count + 1 + signals.index(a) for a in signals if a < of.axis]
    after = [count + 1 + signals.index(a) for a in signals if a > of.axis]
    value = _transpose(call, value, [*before, *reversed(range(count)), *after, count])
    final = [*shape[:-1], of.parts]
    final[of.axis] = math.prod(frequencies)
    value = call.add("reshape", [value], shape=tuple(final))
    return _cut(call, value, of.axis, of.output_length)


def _fit_length(call: Call, value: str, of: _Transform, digit: int) -> str:
    """Pads a signal, (parts, extent, ...), to a multiple of the length of a part of the first digit.

    In half a spectrum all frequencies except the first and the middle one count twice.
    """
    half = of.inverse and of.onesided
    value = _cut(call, value, 1, of.length // 2 + 1 if half else of.length)
    shape = call.shape(value)
    extent = shape[1]
    if half:
        times = np.full(extent, 2, np.float32)
        times[[k for k in (0, of.length // 2) if k < extent and 2 * k % of.length == 0]] = 1
        value = call.add("multiply", [value, call.constant(times.reshape(-1, *[1] * (len(shape) - 2)))])
    missing = -extent % (of.length // digit)
    sides = [(0,) * len(shape), (0, missing, *[0] * (len(shape) - 2))]
    return call.add("pad", [value], before=sides[0], after=sides[1]) if missing else value


def _cut(call: Call, value: str, axis: int, size: int) -> str:
    """Slices the first `size` elements of an axis, or all if it has no more."""
    shape = call.shape(value)
    if shape[axis] <= size:
        return value
    sizes = tuple(size if a == axis else n for a, n in enumerate(shape))
    return call.add("slice", [value], begin=(0,) * len(shape), size=sizes)


def _transpose(call: Call, value: str, axes: Iterable[int]) -> str:
    """Transposes, unless every axis stays in place."""
    order = tuple(int(a) for a in axes)
    return value if order == tuple(range(len(order))) else call.add("transpose", [value], axes=order)


@imports("STFT")
def short_time_fourier_transform(call: Call) -> str:
    """Transforms frames by a convolution with the windowed waves of each frequency."""
    (samples, extent, parts), step = call.type(0).shape, int(call.require_array(1, "step").reshape(-1)[0])
    window = call.require_array(2, "window").astype(float) if call.has(2) else None
    if call.has(3):
        length = int(call.require_array(3, "length").reshape(-1)[0])
    else:
        length = extent if window is None else window.size
    window = np.ones(length) if window is None else window
    fits = window.size == length <= extent and step > 0
    call.require(
        fits, f"must have a window of the frame's length within {extent} and a step", f"{window.size}, {length}, {step}"
    )
    waves = _matrix(call, call.value(0), length, length, False, bool(call.attrs.get("onesided", 1)))
    waves = (waves.reshape(length, parts, -1) * window[:, None, None]).astype(waves.dtype)
    out = call.add("conv1d", [call.value(0), call.constant(waves)], stride=step)
    frames = call.shape(out)[1]
    return call.add("reshape", [out], shape=(samples, frames, waves.shape[2] // 2, 2))


def _check(call: Call, dtype: str, parts: int, length: int) -> None:
    call.require(dtype in FLOATS, "must transform floating-point values", f"{call.type(0)}")
    call.require(parts in (1, 2), "must have real and, perhaps, imaginary parts along its last axis", f"{parts}")
    call.require(length > 0, "must have a length", f"{length}")


def _check_size(call: Call, *shape: int) -> None:
    fits = math.prod(shape) <= MOST_WEIGHTS
    call.require(fits, f"must be of at most {MOST_WEIGHTS} weights", " x ".join(map(str, shape)))


def _matrix(call: Call, value: str, extent: int, length: int, inverse: bool, onesided: bool) -> Array:
    """Returns the matrix of a whole transform, in the dtype of the value."""
    kind = call.context.builder.type(value)
    parts = kind.shape[-1]
    _check(call, kind.dtype, parts, length)
    kept = length // 2 + 1 if onesided and not inverse else length
    outputs = kept * (1 if inverse and onesided else 2)
    _check_size(call, extent * parts, outputs)
    return fourier.full_matrix(extent, parts, length, inverse, onesided).astype(kind.dtype)

"""Fourier transforms of known lengths: products with matrices in which real and imaginary parts take turns."""

from __future__ import annotations

import math

import numpy as np

from autotune.graph.importer.registry import Call, imports
from autotune.graph.ir import Array
from search_space.ir.expr import FLOATS

MOST_WEIGHTS = 1 << 24
"""Elements of the matrix of a transform."""


@imports("DFT")
def discrete_fourier_transform(call: Call) -> str:
    """Along an axis, forward or inverse; `onesided` leaves out, or makes up for, frequencies of real signals."""
    value, shape = call.value(0), call.type(0).shape
    rank = len(shape)
    if call.context.opset < 20:
        axis = int(call.attrs.get("axis", 1))
    else:
        axis = int(call.known(2, "axis").reshape(-1)[0]) if call.has(2) else -2
    axis %= rank
    call.require(axis < rank - 1, "must transform another axis than that of real and imaginary parts", f"axis={axis}")
    inverse, onesided = bool(call.attrs.get("inverse", 0)), bool(call.attrs.get("onesided", 0))
    default = 2 * (shape[axis] - 1) if inverse and onesided else shape[axis]
    length = int(call.known(1, "length").reshape(-1)[0]) if call.has(1) else default
    matrix = _matrix(call, shape[axis], shape[-1], length, inverse, onesided)
    order = [a for a in range(rank) if a != axis]
    order.insert(rank - 2, axis)
    if order != sorted(order):
        value = call.add("transpose", [value], axes=tuple(order))
    outer = [shape[a] for a in order[:-2]]
    rows = call.add("reshape", [value], shape=(math.prod(outer), len(matrix)))
    parts = 1 if inverse and onesided else 2
    out = call.add("matmul", [rows, call.constant(matrix)])
    out = call.add("reshape", [out], shape=(*outer, matrix.shape[1] // parts, parts))
    return (
        call.add("transpose", [out], axes=tuple(int(a) for a in np.argsort(order))) if order != sorted(order) else out
    )


@imports("STFT")
def short_time_fourier_transform(call: Call) -> str:
    """A convolution with the windowed waves of each frequency."""
    (samples, extent, parts), step = call.type(0).shape, int(call.known(1, "step").reshape(-1)[0])
    window = call.known(2, "window").astype(float) if call.has(2) else None
    if call.has(3):
        length = int(call.known(3, "length").reshape(-1)[0])
    else:
        length = extent if window is None else window.size
    window = np.ones(length) if window is None else window
    fits = window.size == length <= extent and step > 0
    call.require(
        fits, f"must have a window of the frame's length within {extent} and a step", f"{window.size}, {length}, {step}"
    )
    waves = _matrix(call, length, parts, length, False, bool(call.attrs.get("onesided", 1)))
    waves = (waves.reshape(length, parts, -1) * window[:, None, None]).astype(waves.dtype)
    out = call.add("conv1d", [call.value(0), call.constant(waves)], stride=step)
    frames = call.shape(out)[1]
    return call.add("reshape", [out], shape=(samples, frames, waves.shape[2] // 2, 2))


def _matrix(call: Call, extent: int, parts: int, length: int, inverse: bool, onesided: bool) -> Array:
    """What each part of each place of the signal gives to each part of each frequency, (extent * parts, outputs).

    A signal shorter than the transform goes on with zeros, what is longer than it is left out.
    """
    dtype = call.type(0).dtype
    call.require(dtype in FLOATS, "must transform floating-point values", f"{call.type(0)}")
    call.require(parts in (1, 2), "must have real and, perhaps, imaginary parts along its last axis", f"{parts}")
    call.require(length > 0, "must have a length", f"{length}")
    kept = length // 2 + 1 if onesided and not inverse else length
    outputs = kept * (1 if inverse and onesided else 2)
    size = extent * parts * outputs
    call.require(size <= MOST_WEIGHTS, f"must be of at most {MOST_WEIGHTS} weights", f"{extent * parts} x {outputs}")
    unit: Array = np.eye(extent * parts).reshape(-1, extent, parts)
    signal = unit[..., 0] + (1j * unit[..., 1] if parts == 2 else 0)
    found: Array
    if inverse and onesided:
        found = np.fft.irfft(signal, length, axis=1)[..., None]
    else:
        waves = (np.fft.ifft if inverse else np.fft.fft)(signal, length, axis=1)[:, :kept]
        found = np.stack([waves.real, waves.imag], -1)
    return np.ascontiguousarray(found.reshape(extent * parts, outputs).astype(dtype))

"""A convolution lowered by hand as TVM's template for VTA lowers it: for calibration and as an example of a stream.

Tiles of the output are computed one after another. Within a tile, each step of `tile_ci` input channels loads a tile of
the input and one of the weights, and multiplies them. Two virtual threads have buffers of their own and take turns, so
that one loads while the other computes. The epilogue shifts right by 8, adds a bias and clips, as the measured layers
did.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from targets.vta.builder import Program, StreamBuilder
from targets.vta.hardware import VtaHardware
from targets.vta.isa import ACC, ADD, INP, MAX, MIN, SHR, WGT
from targets.vta.semantics import COMPUTE_MODULE, LOAD_MODULE, STORE_MODULE

SHIFT = 8
LARGEST = 127


class KnobError(ValueError):
    """Knobs that do not fit the workload or the buffers."""


@dataclass(frozen=True)
class Conv2d:
    """A convolution of `batch` images with square windows, int8 in and out."""

    height: int
    width: int
    in_channels: int
    out_channels: int
    kernel: int
    stride: int
    padding: int
    batch: int = 1

    @property
    def out_height(self) -> int:
        """Rows of the output."""
        return (self.height + 2 * self.padding - self.kernel) // self.stride + 1

    @property
    def out_width(self) -> int:
        """Columns of the output."""
        return (self.width + 2 * self.padding - self.kernel) // self.stride + 1


@dataclass(frozen=True)
class Knobs:
    """TVM's knobs; tiles of channels count blocks. At most one of the numbers of threads is 2."""

    tile_h: int
    tile_w: int
    tile_ci: int
    tile_co: int
    oc_threads: int = 1
    h_threads: int = 1


@dataclass(frozen=True)
class ConvProgram:
    """A program and where its data are.

    Attributes:
        output_start, output_shape: bytes into memory, and the blocked shape (batch, channel, row, column, BATCH,
            BLOCK_OUT) of the result.
    """

    program: Program
    output_start: int
    output_shape: tuple[int, ...]

    def output(self, dram: NDArray[np.uint8]) -> NDArray[np.int8]:
        """Reads the result in memory after the program ran, as (batch, channels, rows, columns)."""
        flat = dram[self.output_start : self.output_start + int(np.prod(self.output_shape))]
        return unblock_data(flat.view(np.int8).reshape(self.output_shape))


def block_data(data: NDArray[np.int8], batch: int, channels: int) -> NDArray[np.int8]:
    """Converts (n, c, h, w) to (n / batch, c / channels, h, w, batch, channels)."""
    n, c, h, w = data.shape
    return data.reshape(n // batch, batch, c // channels, channels, h, w).transpose(0, 2, 4, 5, 1, 3)


def unblock_data(data: NDArray[np.int8]) -> NDArray[np.int8]:
    """Inverts `block_data`."""
    n, c, h, w, batch, channels = data.shape
    return data.transpose(0, 4, 1, 5, 2, 3).reshape(n * batch, c * channels, h, w)


def reference(
    conv: Conv2d, data: NDArray[np.int8], weights: NDArray[np.int8], bias: NDArray[np.int32]
) -> NDArray[np.int8]:
    """Computes the convolution in NumPy, exactly.

    Args:
        data: (batch, in, rows, columns).
        weights: (out, in, kernel, kernel).
        bias: (out,).
    """
    p, s, k = conv.padding, conv.stride, conv.kernel
    padded = np.pad(data, ((0, 0), (0, 0), (p, p), (p, p))).astype(np.float64)
    total = np.zeros((conv.batch, conv.out_channels, conv.out_height, conv.out_width))
    for i, j in product(range(k), range(k)):
        rows, columns = slice(i, i + s * conv.out_height, s), slice(j, j + s * conv.out_width, s)
        window = padded[:, :, rows, columns][:, :, : conv.out_height, : conv.out_width]
        total += np.einsum("oc,nchw->nohw", weights[:, :, i, j].astype(np.float64), window, optimize=True)
    shifted = (total.astype(np.int64).astype(np.int32) >> SHIFT) + bias[:, None, None]
    clipped: NDArray[np.int8] = np.clip(shifted, 0, LARGEST).astype(np.int8)
    return clipped


def check_knobs(conv: Conv2d, knobs: Knobs, hardware: VtaHardware) -> None:
    """Checks that tiles divide the extents and fit the buffers.

    Raises:
        KnobError: tiles do not divide, there are two numbers of threads, or buffers are too small.
    """
    h = hardware
    threads = knobs.oc_threads * knobs.h_threads
    if (knobs.oc_threads, knobs.h_threads) not in ((1, 1), (2, 1), (1, 2)):
        raise KnobError(f"at most one of the numbers of threads must be 2, but got {knobs}")
    for name, extent, part in (
        ("batch", conv.batch, h.batch),
        ("in_channels", conv.in_channels, h.block_in * knobs.tile_ci),
        ("out_channels", conv.out_channels, h.block_out * knobs.tile_co * knobs.oc_threads),
        ("out_height", conv.out_height, knobs.tile_h * knobs.h_threads),
        ("out_width", conv.out_width, knobs.tile_w),
    ):
        if part < 1 or extent % part:
            raise KnobError(f"tiles must divide `{name}`, but got {name}={extent} and tiles of {part}")
    k, s = conv.kernel, conv.stride
    patch = knobs.tile_ci * ((knobs.tile_h - 1) * s + k) * ((knobs.tile_w - 1) * s + k)
    for name, need, depth in (
        ("inp", threads * patch, h.inp_depth),
        ("wgt", threads * knobs.tile_co * knobs.tile_ci * k * k, h.wgt_depth),
        ("acc", threads * knobs.tile_co * (knobs.tile_h * knobs.tile_w + 1), h.acc_depth),
    ):
        if need > depth:
            raise KnobError(f"the tiles must fit the {depth} elements of {name}, but need {need}")


def lower(
    conv: Conv2d,
    knobs: Knobs,
    hardware: VtaHardware,
    data: NDArray[np.int8],
    weights: NDArray[np.int8],
    bias: NDArray[np.int32],
) -> ConvProgram:
    """Emits the stream for a convolution, with its operands in memory.

    Raises:
        KnobError: see `check_knobs`.
    """
    check_knobs(conv, knobs, hardware)
    return _Lowering(conv, knobs, hardware).run(data, weights, bias)


class _Lowering:
    """One convolution on its way."""

    def __init__(self, conv: Conv2d, knobs: Knobs, hardware: VtaHardware) -> None:
        self.conv, self.knobs, self.h = conv, knobs, hardware
        self.b = StreamBuilder(hardware)
        self.threads = knobs.oc_threads * knobs.h_threads
        k, s = conv.kernel, conv.stride
        self.rows, self.columns = (knobs.tile_h - 1) * s + k, (knobs.tile_w - 1) * s + k
        self.patch = knobs.tile_ci * self.rows * self.columns
        self.filter = knobs.tile_co * knobs.tile_ci * k * k
        self.tile = knobs.tile_co * knobs.tile_h * knobs.tile_w
        self.ci, self.co = conv.in_channels // hardware.block_in, conv.out_channels // hardware.block_out

    def run(self, data: NDArray[np.int8], weights: NDArray[np.int8], bias: NDArray[np.int32]) -> ConvProgram:
        """Emits operands, tiles and FINISH."""
        conv, knobs, h, b = self.conv, self.knobs, self.h, self.b
        k = conv.kernel
        self.inp = b.add_data(block_data(data, h.batch, h.block_in), h.inp_bytes)
        shape = (self.co, h.block_out, self.ci, h.block_in, k, k)
        self.wgt = b.add_data(weights.reshape(shape).transpose(0, 2, 4, 5, 1, 3), h.wgt_bytes)
        repeated = np.repeat(bias.reshape(self.co, 1, h.block_out), h.batch, axis=1)
        self.bias = b.add_data(repeated.astype(np.int32), h.acc_bytes)
        images = conv.batch // h.batch
        output_shape = (images, self.co, conv.out_height, conv.out_width, h.batch, h.block_out)
        self.out = b.add_data(np.zeros(output_shape, np.int8), h.out_bytes)
        for _ in range(self.threads):  # all of the accumulator is free
            b.push(STORE_MODULE, COMPUTE_MODULE)
        for image, i, co, j in product(
            range(images),
            range(conv.out_height // (knobs.tile_h * knobs.h_threads)),
            range(self.co // (knobs.tile_co * knobs.oc_threads)),
            range(conv.out_width // knobs.tile_w),
        ):
            tiles = []
            for thread in range(self.threads):
                row = (i * knobs.h_threads + thread * (knobs.h_threads > 1)) * knobs.tile_h
                channel = (co * knobs.oc_threads + thread * (knobs.oc_threads > 1)) * knobs.tile_co
                tiles.append((image, channel, row, j * knobs.tile_w))
            self.tiles(tiles)
        for _ in range(self.threads):
            b.pop(STORE_MODULE, COMPUTE_MODULE)
        return ConvProgram(b.finish(), self.out * h.out_bytes, output_shape)

    def tiles(self, tiles: list[tuple[int, int, int, int]]) -> None:
        """Emits one tile of the output for each thread: (image, channel block, row, column)."""
        b = self.b
        for thread in range(self.threads):
            b.pop(STORE_MODULE, COMPUTE_MODULE)
            self.multiply(thread, reset=True)
            b.push(COMPUTE_MODULE, LOAD_MODULE)  # buffers of inputs are free; TVM frees them anew for each tile
        for step in range(self.ci // self.knobs.tile_ci):
            for thread, (image, channel, row, column) in enumerate(tiles):
                b.pop(COMPUTE_MODULE, LOAD_MODULE)
                self.load_inputs(thread, image, step * self.knobs.tile_ci, row, column)
                self.load_weights(thread, channel, step * self.knobs.tile_ci)
                b.push(LOAD_MODULE, COMPUTE_MODULE)
            for thread in range(self.threads):
                b.pop(LOAD_MODULE, COMPUTE_MODULE)
                self.multiply(thread, reset=False)
                b.push(COMPUTE_MODULE, LOAD_MODULE)
        for _ in range(self.threads):
            b.pop(COMPUTE_MODULE, LOAD_MODULE)
        for thread, (_, channel, _, _) in enumerate(tiles):
            self.epilogue(thread, channel)
            b.push(COMPUTE_MODULE, STORE_MODULE)
        for thread, tile in enumerate(tiles):
            b.pop(COMPUTE_MODULE, STORE_MODULE)
            self.store(thread, *tile)
            b.push(STORE_MODULE, COMPUTE_MODULE)

    def load_inputs(self, thread: int, image: int, channel: int, row: int, column: int) -> None:
        """Loads the part of the input that a tile needs, one block of channels after another."""
        conv, s = self.conv, self.conv.stride
        top, left = row * s - conv.padding, column * s - conv.padding
        y_pad_0, x_pad_0 = max(0, -top), max(0, -left)
        y_pad_1, x_pad_1 = max(0, top + self.rows - conv.height), max(0, left + self.columns - conv.width)
        y, x = self.rows - y_pad_0 - y_pad_1, self.columns - x_pad_0 - x_pad_1
        for block in range(self.knobs.tile_ci):
            plane = (image * self.ci + channel + block) * conv.height
            dram = self.inp + (plane + top + y_pad_0) * conv.width + left + x_pad_0
            sram = thread * self.patch + block * self.rows * self.columns
            pads = {"y_pad_0": y_pad_0, "y_pad_1": y_pad_1, "x_pad_0": x_pad_0, "x_pad_1": x_pad_1}
            self.b.load(INP, sram, dram, y, x, conv.width, **pads)

    def load_weights(self, thread: int, out_channel: int, channel: int) -> None:
        """Loads the weights between a step's input channels and a tile's output channels."""
        window = self.conv.kernel**2
        width, stride = self.knobs.tile_ci * window, self.ci * window
        dram = self.wgt + out_channel * stride + channel * window
        y, x = (1, self.knobs.tile_co * width) if width == stride else (self.knobs.tile_co, width)
        self.b.load(WGT, thread * self.filter, dram, y, x, stride)

    def multiply(self, thread: int, reset: bool) -> None:
        """Computes all products of one step, or zeros for a complete tile.

        The outermost two loops are the instruction's, in the order of TVM's template; the others are micro-operations.
        """
        conv, knobs = self.conv, self.knobs
        k, s = conv.kernel, conv.stride
        area = knobs.tile_h * knobs.tile_w
        loops = [  # extent, then factors of dst, src and wgt
            (knobs.tile_ci, 0, self.rows * self.columns, k * k),
            (knobs.tile_w, 1, s, 0),
            (k, 0, 1, 1),
            (k, 0, self.columns, k),
            (knobs.tile_co, area, 0, knobs.tile_ci * k * k),
            (knobs.tile_h, knobs.tile_w, s * self.columns, 0),
        ]
        if reset:
            loops = [(extent, dst, 0, 0) for extent, dst, _, _ in loops if dst]
        loops = [loop for loop in loops if loop[0] > 1]
        outer, inner = ([*loops[:2], (1, 0, 0, 0), (1, 0, 0, 0)])[:2]
        uops = np.array([[thread * self.tile, thread * self.patch, thread * self.filter]], np.int64)
        if reset:
            uops[:, 1:] = 0
        for extent, *factors in loops[2:]:
            steps = np.arange(extent, dtype=np.int64)[None, :, None] * np.array(factors)
            uops = (uops[:, None, :] + steps).reshape(-1, 3)
        fields = {"iter_out": outer[0], "iter_in": inner[0], "reset": int(reset)}
        for number, name in enumerate(("dst", "src", "wgt"), 1):
            fields |= {f"{name}_out": outer[number], f"{name}_in": inner[number]}
        self.b.gemm(uops, **fields)

    def epilogue(self, thread: int, channel: int) -> None:
        """Emits shift, bias and clip, in place."""
        area, count = self.knobs.tile_h * self.knobs.tile_w, self.knobs.tile_co
        start, bias = thread * self.tile, self.threads * self.tile + thread * count
        self.b.load(ACC, bias, self.bias + channel, 1, count, count)
        in_place = np.array([[start, start, 0]], np.int64)
        everything = {"iter_in": self.tile, "dst_in": 1, "src_in": 1, "use_imm": 1}
        self.b.alu(in_place, alu_op=SHR, imm=SHIFT, **everything)
        by_channel = {"iter_out": count, "iter_in": area, "dst_out": area, "dst_in": 1, "src_out": 1}
        self.b.alu(np.array([[start, bias, 0]], np.int64), alu_op=ADD, **by_channel)
        self.b.alu(in_place, alu_op=MIN, imm=LARGEST, **everything)
        self.b.alu(in_place, alu_op=MAX, imm=0, **everything)

    def store(self, thread: int, image: int, channel: int, row: int, column: int) -> None:
        """Stores a tile to memory: a row for each block of channels if it covers complete rows of the image."""
        conv, knobs = self.conv, self.knobs
        area, plane = knobs.tile_h * knobs.tile_w, conv.out_height * conv.out_width
        dram = self.out + (image * self.co + channel) * plane + row * conv.out_width + column
        if knobs.tile_w == conv.out_width:
            self.b.store(thread * self.tile, dram, knobs.tile_co, area, plane)
            return
        for block in range(knobs.tile_co):
            sram = thread * self.tile + block * area
            self.b.store(sram, dram + block * plane, knobs.tile_h, knobs.tile_w, conv.out_width)

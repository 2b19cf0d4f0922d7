"""Operators of the comparison, by class."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from search_space import workloads
from search_space.workloads import Workload


@dataclass(frozen=True)
class Row:
    """One line of a comparison.

    Attributes:
        name: name in `--rows`.
        kind: class, over which geometric means are taken.
        title: title in tables.
        make: its workload.
        options: further options of every peer, such as the gradient that the workload computes.
        forward: the operator whose operations count as those of the row; None: the workload itself.
    """

    name: str
    kind: str
    title: str
    make: Callable[[], Workload]
    options: Mapping[str, Any] = field(default_factory=dict)
    forward: Callable[[], Workload] | None = None


ENDING = {"bias": True, "activation": "relu"}
"""Options of a layer that ends with a bias and a rectifier."""


def convolution(size: int, inputs: int, outputs: int, kernel: int = 3, stride: int = 1, **others: object) -> Workload:
    """Makes a convolution of a square image, padded for its window; `others` go to `workloads.conv2d`."""
    return workloads.conv2d(
        height=size,
        width=size,
        in_channels=inputs,
        out_channels=outputs,
        kernel=kernel,
        stride=stride,
        padding=kernel // 2,
        **others,
    )


def _conv(size: int, inputs: int, outputs: int, kernel: int = 3, stride: int = 1, groups: int = 1) -> Row:
    def make() -> Workload:
        return convolution(size, inputs, outputs, kernel, stride, **({"groups": groups} if groups > 1 else {}))

    suffix = (f" s{stride}" if stride > 1 else "") + (f" g{groups}" if groups > 1 else "")
    title = f"conv {kernel}x{kernel}{suffix} {size}² {inputs}→{outputs}"
    name = f"conv{kernel}x{kernel}_{size}_{inputs}_{outputs}" + (f"_g{groups}" if groups > 1 else "")
    return Row(name, "convolution", title, make)


def _depthwise(size: int, channels: int, kernel: int = 3, stride: int = 1) -> Row:
    def make() -> Workload:
        return workloads.depthwise_conv2d(
            height=size, width=size, channels=channels, kernel=kernel, stride=stride, padding=kernel // 2
        )

    suffix = f" s{stride}" if stride > 1 else ""
    title = f"depthwise {kernel}x{kernel}{suffix} {size}² {channels}"
    return Row(f"depthwise{kernel}x{kernel}_{size}_{channels}", "depthwise", title, make)


def _conv_transpose(
    size: int | tuple[int, int],
    inputs: int,
    outputs: int,
    kernel: int | tuple[int, int],
    stride: int | tuple[int, int],
    padding: int | tuple[int, int] = 0,
    output_padding: int | tuple[int, int] = 0,
) -> Row:
    height, width = (size, size) if isinstance(size, int) else size
    workload = workloads.conv2d_transpose(
        1, height, width, inputs, outputs, kernel, stride, padding, output_padding=output_padding
    )
    window, image = (
        "x".join(map(str, workload.args["kernel"])),
        f"{height}²" if height == width else f"{height}x{width}",
    )
    title = f"transposed conv {window} s{workload.args['stride'][1]} {image} {inputs}→{outputs}"
    return Row(f"transposed{window}_{width}_{inputs}_{outputs}", "transposed convolution", title, lambda: workload)


def _matmul(m: int, n: int, k: int) -> Row:
    title = f"matmul {m}³" if m == n == k else f"matmul {m}x{n}x{k}"
    return Row(f"matmul_{m}_{n}_{k}", "matmul", title, lambda: workloads.matmul(m, n, k))


def _dense(batch: int, inputs: int, outputs: int) -> Row:
    title = f"dense {batch}x{inputs}x{outputs}"
    return Row(f"dense_{batch}_{inputs}_{outputs}", "matmul", title, lambda: workloads.dense(batch, inputs, outputs))


def _softmax(rows: int, length: int) -> Row:
    title = f"softmax {rows}x{length}"
    return Row(f"softmax_{rows}_{length}", "row-wise", title, lambda: workloads.softmax(rows, length))


def _layer_norm(rows: int, length: int) -> Row:
    title = f"layer norm {rows}x{length}"
    return Row(f"layer_norm_{rows}_{length}", "row-wise", title, lambda: workloads.layer_norm(rows, length))


ROWS = (
    _conv(56, 64, 64),
    _conv(28, 128, 128),
    _conv(14, 256, 256),
    _conv(7, 512, 512),
    _conv(56, 128, 128, stride=2),
    _conv(13, 192, 384),
    _conv(35, 80, 192),
    _conv(17, 97, 111),
    _conv(27, 64, 192, kernel=5),
    _conv(14, 512, 512, groups=32),
    _conv(56, 256, 64, kernel=1),
    _conv(56, 64, 256, kernel=1),
    _conv(14, 1024, 256, kernel=1),
    _conv(56, 256, 512, kernel=1, stride=2),
    _conv(224, 3, 64, kernel=7, stride=2),
    _depthwise(112, 96, stride=2),
    _depthwise(14, 576),
    _depthwise(28, 120, kernel=5),
    _depthwise(28, 192, kernel=7),
    _conv_transpose(64, 128, 64, kernel=2, stride=2),
    _conv_transpose(56, 128, 64, kernel=3, stride=2, padding=1, output_padding=1),
    _conv_transpose(32, 256, 128, kernel=4, stride=2, padding=1),
    _conv_transpose((1, 256), 256, 128, kernel=(1, 16), stride=(1, 8), padding=(0, 4)),
    _conv_transpose(64, 56, 1, kernel=9, stride=3, padding=4, output_padding=2),
    _matmul(512, 512, 512),
    _matmul(1024, 1024, 1024),
    _matmul(1000, 777, 513),
    _matmul(197, 197, 64),
    _dense(1, 2048, 1000),
    _dense(128, 768, 3072),
    _dense(197, 384, 1536),
    _softmax(1024, 1024),
    _softmax(1182, 197),
    _layer_norm(512, 768),
    _layer_norm(197, 385),
)
"""Layers of networks that many know, and odd ones: sizes that are prime, or no multiple of a vector."""


def select(names: str | None) -> Sequence[Row]:
    """Selects rows of a comma-separated list; all of them for None.

    Raises:
        ValueError: a name that is not in the list.
    """
    known = {row.name: row for row in ROWS}
    return [known[name] for name in pick(names, known)]


def pick(names: str | None, choices: Iterable[str]) -> list[str]:
    """Parses names of a comma-separated list; None selects all.

    Raises:
        ValueError: a name that is not known.
    """
    choices = list(choices)
    chosen = choices if names is None else names.split(",")
    for name in chosen:
        if name not in choices:
            raise ValueError(f"`rows` must be of {', '.join(choices)}, but got rows={name!r}")
    return chosen

"""The operators that are compared, by class."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from search_space import workloads
from search_space.workloads import Workload


@dataclass(frozen=True)
class Row:
    """One line of a comparison.

    Attributes:
        name: as `--rows` takes it.
        kind: class, over which geometric means are taken.
        title: as tables show it.
        make: its workload.
    """

    name: str
    kind: str
    title: str
    make: Callable[[], Workload]


ENDING = {"bias": True, "activation": "relu"}
"""Of a layer that ends with a bias and a rectifier."""


def convolution(size: int, inputs: int, outputs: int, kernel: int = 3, stride: int = 1, **others: object) -> Workload:
    """Of a square image, padded as the window needs it; `others` go to `workloads.conv2d`."""
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


def _conv(size: int, inputs: int, outputs: int, kernel: int = 3, stride: int = 1) -> Row:
    def make() -> Workload:
        return convolution(size, inputs, outputs, kernel, stride)

    suffix = f" s{stride}" if stride > 1 else ""
    title = f"conv {kernel}x{kernel}{suffix} {size}² {inputs}→{outputs}"
    return Row(f"conv{kernel}x{kernel}_{size}_{inputs}_{outputs}", "convolution", title, make)


def _depthwise(size: int, channels: int, stride: int = 1) -> Row:
    def make() -> Workload:
        return workloads.depthwise_conv2d(
            height=size, width=size, channels=channels, kernel=3, stride=stride, padding=1
        )

    suffix = f" s{stride}" if stride > 1 else ""
    return Row(f"depthwise3x3_{size}_{channels}", "depthwise", f"depthwise 3x3{suffix} {size}² {channels}", make)


def _matmul(m: int, n: int, k: int) -> Row:
    title = f"matmul {m}³" if m == n == k else f"matmul {m}x{n}x{k}"
    return Row(f"matmul_{m}_{n}_{k}", "matmul", title, lambda: workloads.matmul(m, n, k))


ROWS = (
    _conv(56, 64, 64),
    _conv(28, 128, 128),
    _conv(14, 256, 256),
    _conv(7, 512, 512),
    _conv(56, 256, 64, kernel=1),
    _conv(56, 64, 256, kernel=1),
    _conv(14, 1024, 256, kernel=1),
    _conv(224, 3, 64, kernel=7, stride=2),
    _depthwise(112, 96, stride=2),
    _depthwise(14, 576),
    _matmul(512, 512, 512),
    _matmul(1024, 1024, 1024),
    _matmul(1000, 777, 513),
    Row("dense_1_2048_1000", "matmul", "dense 1x2048x1000", lambda: workloads.dense(1, 2048, 1000)),
    Row("softmax_1024_1024", "row-wise", "softmax 1024x1024", lambda: workloads.softmax(1024, 1024)),
    Row("layer_norm_512_768", "row-wise", "layer norm 512x768", lambda: workloads.layer_norm(512, 768)),
)


def select(names: str | None) -> Sequence[Row]:
    """Rows of a comma-separated list; all of them for None.

    Raises:
        ValueError: a name that is not in the list.
    """
    known = {row.name: row for row in ROWS}
    return [known[name] for name in pick(names, known)]


def pick(names: str | None, known: Iterable[str]) -> list[str]:
    """Names of a comma-separated list; all that are known for None.

    Raises:
        ValueError: a name that is not known.
    """
    known = list(known)
    chosen = known if names is None else names.split(",")
    for name in chosen:
        if name not in known:
            raise ValueError(f"`rows` must be of {', '.join(known)}, but got rows={name!r}")
    return chosen

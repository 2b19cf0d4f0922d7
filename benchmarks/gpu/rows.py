"""Workloads measured on a GPU, the most telling rows first, as a run may end before the last."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.rows import convolution
from search_space import te, te_json, workloads
from search_space.workloads import Workload


@dataclass(frozen=True)
class Row:
    """One workload.

    Attributes:
        name: key in the results.
        kind: `fp32`, `fp16` or `rows`; geometric means are taken of each.
        make: makes the workload.
    """

    name: str
    kind: str
    make: Callable[[], Workload]


def product(m: int, n: int, k: int, dtype: str = "float32") -> Workload:
    """Makes a product of matrices; a float16 one has a float16 output like PyTorch's, but sums in float32."""
    plain = workloads.matmul(m, n, k, dtype=dtype, constant_b=False)
    if dtype != "float16":
        return plain
    layer = te.placeholder(plain.output.shape, plain.output.dtype, "product")
    rounded = te.compute(layer.shape, lambda i, j: layer[i, j].astype(dtype), name="rounded")
    return workloads.fused(plain.to_json(), te_json.to_json([layer, rounded]))


def _matmul(m: int, n: int, k: int, dtype: str = "float32") -> Row:
    kind = "fp16" if dtype == "float16" else "fp32"
    return Row(f"matmul_{m}x{n}x{k}_{kind}", kind, lambda: product(m, n, k, dtype))


def _conv(batch: int, size: int, ins: int, outs: int, kernel: int, stride: int = 1) -> Row:
    name = f"conv_{batch}x{size}x{size}x{ins}_{outs}_{kernel}x{kernel}" + (f"_s{stride}" if stride > 1 else "")

    return Row(name, "fp32", lambda: convolution(size, ins, outs, kernel, stride, batch=batch))


TARGETS = {"fp32": 1.0, "fp16": 0.8, "rows": 0.9}
"""PyTorch's time over ours that is asked for, as the geometric mean of a kind."""
ROWS: tuple[Row, ...] = (
    _matmul(1024, 1024, 1024),
    _conv(1, 28, 128, 128, 3),
    Row("softmax_8192x1024", "rows", lambda: workloads.softmax(rows=8192, columns=1024)),
    _matmul(1024, 1024, 1024, "float16"),
    _conv(1, 56, 64, 64, 3),
    _conv(1, 14, 256, 256, 3),
    _conv(16, 14, 256, 256, 3),
    _matmul(16, 1000, 2048),
    Row("layer_norm_8192x1024", "rows", lambda: workloads.layer_norm(rows=8192, columns=1024)),
    _matmul(16, 4096, 4096, "float16"),
    _conv(1, 7, 512, 512, 3),
    _conv(1, 56, 64, 256, 1),
    _conv(1, 14, 1024, 256, 1),
    _conv(16, 56, 64, 64, 3),
    _matmul(2048, 2048, 2048),
    _matmul(128, 128, 128, "float16"),
    _matmul(512, 512, 512, "float16"),
    _matmul(1, 4096, 4096, "float16"),
    _matmul(2048, 2048, 2048, "float16"),
    Row("sum_4096x16384", "rows", lambda: workloads.reduce((4096, 16384), 1)),
    _conv(16, 7, 512, 512, 3),
    _conv(1, 7, 512, 2048, 1),
    _conv(1, 56, 256, 128, 1, 2),
    _matmul(256, 256, 256, "float16"),
    _matmul(8, 8192, 1024, "float16"),
    _matmul(4096, 4096, 4096, "float16"),
    _matmul(64, 4096, 4096, "float16"),
    _matmul(32, 1024, 8192, "float16"),
    _matmul(4096, 64, 4096, "float16"),
)

"""A matrix product scheduled by hand: register tiles, vectors, packed weights, threads; checked and timed."""

from __future__ import annotations

import numpy as np

import autotune
from search_space import te
from search_space.schedule.facade import Schedule

M, N, K = 512, 512, 512
ROWS, LANES, VECTORS = 8, 16, 2  # the register tile: 8 rows of 2 vectors of 16 columns


def schedule() -> tuple[Schedule, list[te.Tensor]]:
    """Schedules the product of A and a constant B; returns the schedule and its tensors."""
    a = te.placeholder((M, K), name="A")
    b = te.placeholder((K, N), name="B", constant=True)
    k = te.reduce_axis((0, K), "k")
    c = te.compute((M, N), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")

    s = te.create_schedule(c.op)
    width = LANES * VECTORS
    s.pack(b, factors=[(), (width,)], order=[(1, 0), (0, 0), (1, 1)])  # B[n // width, k, n % width]

    accumulator = s.cache_write(c, "local")
    i, j = s[c].op.axis
    io, ii = s[c].split(i, factor=ROWS)
    jo, jv, jl = s[c].split(j, factors=[VECTORS, LANES])
    s[c].reorder(jo, io, ii, jv, jl)
    s[c].parallel(jo)
    s[c].unroll(ii)
    s[c].unroll(jv)
    s[c].vectorize(jl)

    s[accumulator].compute_at(s[c], io)
    row, column = accumulator.axis
    (inner,) = accumulator.reduce_axis
    vector, lane = s[accumulator].split(column, factor=LANES, tail="exact")
    s[accumulator].reorder(inner, row, vector, lane)
    s[accumulator].unroll(row)
    s[accumulator].unroll(vector)
    s[accumulator].vectorize(lane)
    return s, [a, b, c]


def main() -> None:
    """Prints the schedule and the loops, runs the kernel, checks it and times it."""
    s, tensors = schedule()
    print(s.trace, autotune.lower(s, tensors), sep="\n\n", end="\n\n")

    rng = np.random.default_rng(0)
    a = rng.standard_normal((M, K), dtype=np.float32)
    b = rng.standard_normal((K, N), dtype=np.float32)
    c = np.empty((M, N), np.float32)
    kernel = autotune.build(s, tensors, target="cpu")
    kernel(a, b, c)
    np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-3)

    seconds = np.median(kernel.bind([a, b]).time(50))
    print(f"{seconds * 1e3:.3f} ms, {2 * M * N * K / seconds * 1e-9:.0f} GFLOP/s on every core")


if __name__ == "__main__":
    main()

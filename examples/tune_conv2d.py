"""A convolution tuned from Python, its best kernel run on arrays and checked against NumPy's answer."""

from __future__ import annotations

import sys

import numpy as np

import autotune
from search_space import workloads


def main(trials: int = 64) -> None:
    """Tunes, checks and prints the result."""
    workload = workloads.conv2d(height=28, width=28, in_channels=64, out_channels=64, kernel=3, padding=1)
    result = autotune.tune(workload, target="cpu", trials=trials, seed=0)

    rng = np.random.default_rng(0)
    data, weight = (rng.standard_normal(spec.shape, dtype=np.float32) for spec in workload.inputs)
    output = result.kernel(data, weight)
    np.testing.assert_allclose(output, workload.reference(data, weight), rtol=1e-4, atol=1e-3)

    print(result.trace, result.program, sep="\n\n", end="\n\n")
    print(
        f"{result.best_seconds * 1e3:.3f} ms, {result.gflops:.0f} GFLOP/s, {result.peak_share:.0%} of peak; "
        f"{len(result.records)} trials, failures: {result.errors or 'none'}"
    )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))

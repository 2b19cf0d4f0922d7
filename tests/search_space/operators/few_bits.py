"""Data for products with weights of a few bits, over several powers of ten."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from search_space.operators.base import Array
from search_space.workloads import Workload

WEIGHTS = {
    "bits": st.sampled_from([4, 8]),
    "group": st.sampled_from([8, 16, 24, 32, 64]),
    "zeros": st.booleans(),
    "spread": st.integers(0, 3),
    "seed": st.integers(0, 99),
}
"""Arguments of such products, over how many powers of ten data lie, and the seed."""


def draw_inputs(workload: Workload, spread: int, seed: int) -> tuple[Array, list[Array], float]:
    """The data, the weights, and the most that a sum of as many terms as large as the largest comes to."""
    data, *weights = workload.make_inputs(seed)
    rng = np.random.default_rng(seed)
    data = (data * np.float32(10.0) ** rng.uniform(-spread, spread, data.shape)).astype(np.float32)
    k, bits, zeros = (workload.args[name] for name in ("k", "bits", "zeros"))
    largest = np.abs(data).max() * k * ((1 << bits) + 255 * zeros) * np.abs(weights[1]).max()
    return data, weights, float(largest)

"""NumPy's `einsum` as a peer, for products of `benchmarks.order_rows`; windows are views, which copy nothing.

Options: `row`, the name of one, and `order`, the label of one of its orders.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from benchmarks.order_rows import ROWS, OrderRow
from benchmarks.peers.base import Array, Peer, PeerError, serve
from benchmarks.peers.calls import measure_seconds
from search_space.workloads import Workload


def view(array: Array, dims: Sequence[str], row: OrderRow) -> tuple[Array, str]:
    """Returns an operand with a dimension for each of its axes, and their letters."""
    letters = ""
    for position, dim in enumerate(dims):
        letters += dim.strip("-").partition("+")[0]
        if dim.startswith("-"):
            array = np.flip(array, position)
    for position, dim in enumerate(dims):
        for axis in dim.split("+")[1:]:  # the window becomes the last dimension
            array, letters = sliding_window_view(array, row.extents[axis], position), letters + axis
    return array, letters


class EinsumPeer(Peer):
    """Sums of products by `einsum`, whose order of steps is optimised before: the large ones call a BLAS."""

    name = "einsum"

    def prepare(
        self, workload: Workload, arrays: Sequence[Array], threads: int, options: Mapping[str, Any]
    ) -> dict[str, Any]:
        row = next(row for row in ROWS if row.name == options["row"])
        if row.distance:
            raise PeerError(f"`row` must be a sum of products, but got row={row.name!r}")
        pairs = zip(arrays, row.operands(options["order"]), strict=True)
        views, letters = zip(*(view(array, dims, row) for array, dims in pairs), strict=True)
        text = f"{','.join(letters)}->{row.output}"
        path = np.einsum_path(text, *views, optimize=True)[0]
        self._call = lambda: np.einsum(text, *views, optimize=path)
        rtol, atol = workload.tolerance
        np.testing.assert_allclose(self._call(), workload.reference(*arrays), rtol=10 * rtol, atol=10 * atol)
        return {"variant": text, "threads": os.environ.get("OPENBLAS_NUM_THREADS", "")}

    def time(self, samples: int) -> NDArray[np.float64]:
        return measure_seconds(self._call, samples)

    def output(self) -> Array:
        return self._call()


if __name__ == "__main__":
    serve(EinsumPeer())

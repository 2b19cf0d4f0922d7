"""Peers PyTorch and SciPy of products with sparse weights.

Option: `runtime`, a key of `RUNTIMES`. Sparse weights are (outputs, inputs), on the left, and data (inputs, rows) on
the right, as these libraries take them: no peer transposes data or outputs.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers.base import Array, Peer, PeerError, serve
from benchmarks.peers.calls import measure_seconds
from search_space.operators.sparse import unpack_blocks
from search_space.workloads import Workload

Product = Callable[[], Array]
"""One execution, which returns the output (outputs, rows)."""


def by_torch_bsr(weight: Array, data: Array, block: tuple[int, int], threads: int) -> Product:
    """Prepares PyTorch's product of a tensor in blocks of rows (BSR)."""
    return _by_torch(lambda dense: dense.to_sparse_bsr(block), weight, data, threads)


def by_torch_csr(weight: Array, data: Array, block: tuple[int, int], threads: int) -> Product:
    """Prepares PyTorch's product of a tensor in rows of single elements (CSR)."""
    return _by_torch(lambda dense: dense.to_sparse_csr(), weight, data, threads)


def _by_torch(convert: Callable[[Any], Any], weight: Array, data: Array, threads: int) -> Product:
    import torch

    torch.set_num_threads(threads)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # sparse tensors call themselves a beta
        matrix, x = convert(torch.from_numpy(weight)), torch.from_numpy(data)

    def run() -> Array:
        with torch.inference_mode():
            return np.asarray(matrix @ x)

    try:
        run()
    except (RuntimeError, NotImplementedError) as error:
        raise PeerError(f"PyTorch has no such product: {str(error).splitlines()[0]}") from None
    return run


def by_torch(weight: Array, data: Array, block: tuple[int, int], threads: int) -> Product:
    """Prepares PyTorch's dense layer, with data (rows, inputs)."""
    import torch

    torch.set_num_threads(threads)
    matrix, x = torch.from_numpy(weight), torch.from_numpy(np.ascontiguousarray(data.T))

    def run() -> Array:
        with torch.inference_mode():
            return np.asarray(torch.nn.functional.linear(x, matrix)).T

    return run


def by_scipy_bsr(weight: Array, data: Array, block: tuple[int, int], threads: int) -> Product:
    """Prepares SciPy's product of an array in blocks of rows, which runs on one thread."""
    try:
        from scipy import sparse
    except ImportError:
        raise PeerError("SciPy is not installed") from None
    matrix = sparse.bsr_array(weight, blocksize=block)
    return lambda: np.asarray(matrix @ data)


RUNTIMES: Mapping[str, Callable[[Array, Array, tuple[int, int], int], Product]] = {
    "torch": by_torch,
    "torch_csr": by_torch_csr,
    "torch_bsr": by_torch_bsr,
    "scipy_bsr": by_scipy_bsr,
}


class SparsePeer(Peer):
    """A peer of one runtime after the other."""

    name = "sparse"

    def prepare(
        self, workload: Workload, arrays: Sequence[Array], threads: int, options: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Prepares a runtime, and compares its output with the reference."""
        data, *packed = arrays
        weight = np.ascontiguousarray(unpack_blocks(workload.args, *packed).T)
        run = RUNTIMES[options["runtime"]]
        self._run = run(weight, np.ascontiguousarray(data.T), workload.args["block"], threads)
        np.testing.assert_allclose(self.output(), workload.reference(*arrays), *workload.tolerance)
        return {"runtime": options["runtime"]}

    def time(self, samples: int) -> NDArray[np.float64]:
        """Times executions."""
        return measure_seconds(self._run, samples)

    def output(self) -> Array:
        """Returns the output of another execution, (rows, outputs)."""
        return np.ascontiguousarray(self._run().T)


if __name__ == "__main__":
    serve(SparsePeer())

"""A device programmed from elsewhere: build a kernel here, upload it, run it on arrays, time it, get the output back.

`rpc_device.py rpc://HOST:PORT TOKEN_FILE` uses a worker that is there; without arguments it starts one on this machine.
"""

from __future__ import annotations

import secrets
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

import autotune
from measure.rpc.session import RpcSession
from search_space import te

M, N, K = 256, 256, 256


@contextmanager
def start_worker() -> Iterator[tuple[str, Path]]:
    """Starts a worker of this machine's CPU; yields its address and token file."""
    with tempfile.TemporaryDirectory() as folder:
        token = Path(folder) / "token"
        token.touch(0o600)
        token.write_text(secrets.token_urlsafe())
        command = [sys.executable, "-m", "autotune", "worker", "--target", "cpu", "--token-file", str(token)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as worker:
            assert worker.stdout is not None
            try:
                line = worker.stdout.readline().strip()  # serving cpu on 127.0.0.1:40213
                print(line)
                yield f"rpc://{line.rpartition(' ')[2]}", token
            finally:
                worker.terminate()


def main(url: str, token: Path) -> None:
    """Runs a product of matrices over there, checks and times it."""
    a, b = te.placeholder((M, K), name="A"), te.placeholder((K, N), name="B")
    k = te.reduce_axis((0, K), "k")
    c = te.compute((M, N), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    s = te.create_schedule(c.op)
    i, j = s[c].op.axis
    (inner,) = s[c].op.reduce_axis
    outer, lanes = s[c].split(j, factor=16)
    s[c].reorder(i, outer, inner, lanes)
    s[c].vectorize(lanes)

    with RpcSession.open(url, token) as session:
        print(f"a device for {session.target}: {session.description['cpu']}")
        kernel = session.upload(autotune.build(s, [a, b, c], target=session.target).module)
        rng = np.random.default_rng(0)
        left, right = (rng.standard_normal(shape, dtype=np.float32) for shape in ((M, K), (K, N)))
        np.testing.assert_allclose(kernel.run(left, right), left @ right, rtol=1e-4, atol=1e-3)
        seconds = float(np.median(kernel.time(left, right, iterations=20, threads=1)))
        print(f"{seconds * 1e3:.2f} ms, {2 * M * N * K / seconds * 1e-9:.1f} GFLOP/s, and the output is right")


if __name__ == "__main__":
    if len(sys.argv) == 3:
        main(sys.argv[1], Path(sys.argv[2]))
    else:
        with start_worker() as (url, token):
            main(url, token)

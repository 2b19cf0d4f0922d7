"""What the libraries reach at best on this host: a sanity check of the peak that the target's probe finds.

`python -m benchmarks.peak` writes `benchmarks/results/peak.json`.
"""

from __future__ import annotations

import sys

from benchmarks import results, tables
from benchmarks.peers.base import PeerProcess
from search_space import workloads

PROBES = {
    "matmul": workloads.matmul(2048, 2048, 2048),
    "convolution": workloads.conv2d(height=56, width=56, in_channels=128, out_channels=128, kernel=3, padding=1),
}


def reached(threads: int, rounds: int = 10) -> dict[str, float]:
    """Highest FLOP a second of each probe on oneDNN."""
    found = {}
    for name, workload in PROBES.items():
        with PeerProcess("benchmarks.peers.torch_peer") as peer:
            peer.prepare(workload, threads)
            found[name] = workload.flops / min(min(peer.time(10)) for _ in range(rounds))
    return found


def main() -> int:
    """Measures at 1 and 2 threads."""
    document = {"rows": {str(threads): reached(threads) for threads in (1, 2)}}
    results.save("peak", document)
    sys.stdout.write(tables.peak(document) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

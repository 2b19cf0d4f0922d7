"""Calibration of the simulated VTA's timing constants on ten layers measured on a PYNQ; prints the remaining errors.

    python -m benchmarks.vta_calibration

Three constants are fitted: bytes of weights a cycle, added cycles of each row of a transfer, and added cycles of every
run on the host. The first two come from a grid, the third is the least-squares solution for each point of it. The sum
of squared relative errors is minimised. With one layer left out at a time, that layer's error is of a fit that has not
seen it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from numpy.typing import NDArray

from benchmarks.vta_template.resnet18 import LAYERS, program
from targets.vta.hardware import PYNQ, VtaHardware
from targets.vta.timing import simulate

RATES = np.arange(60, 97) / 20  # bytes a cycle
ROWS = np.arange(20, 72, 2)  # cycles
MEASURED_CYCLES = np.array([layer.cycles for layer in LAYERS], np.float64)


@dataclass(frozen=True)
class Fit:
    """Constants, and the relative error of each layer with them."""

    wgt_bytes_per_cycle: float
    dma_row_latency: int
    host_cycles: int
    errors: NDArray[np.float64]


def grid(hardware: VtaHardware) -> NDArray[np.float64]:
    """Simulates cycles without the host: (rates, rows, layers)."""
    tables = [program(layer, hardware).program.table for layer in LAYERS]
    cycles = np.zeros((len(RATES), len(ROWS), len(LAYERS)))
    for (i, rate), (j, row) in product(enumerate(RATES.tolist()), enumerate(ROWS.tolist())):
        point = replace(hardware, wgt_bytes_per_cycle=rate, dma_row_latency=row, host_cycles=0)
        cycles[i, j] = [simulate(table, point).cycles for table in tables]
    return cycles


def fit(cycles: NDArray[np.float64], layer_indices: list[int]) -> Fit:
    """Fits the constants to some of the layers; errors are of all of them."""
    weights = 1 / MEASURED_CYCLES[layer_indices] ** 2
    host = ((MEASURED_CYCLES - cycles)[..., layer_indices] * weights).sum(axis=-1) / weights.sum()
    host = np.round(np.maximum(host, 0), -2)
    errors = (cycles + host[..., None]) / MEASURED_CYCLES - 1
    i, j = np.unravel_index(np.argmin((errors[..., layer_indices] ** 2).sum(axis=-1)), host.shape)
    return Fit(float(RATES[i]), int(ROWS[j]), int(host[i, j]), errors[i, j])


def main() -> None:
    """Runs the fit, leaves one out at a time, and prints a table."""
    cycles = grid(PYNQ)
    everything = list(range(len(LAYERS)))
    best = fit(cycles, everything)
    left_out = [fit(cycles, [k for k in everything if k != number]).errors[number] for number in everything]
    print("| layer | measured cycles | simulated | error | error when left out |")
    print("|---|---|---|---|---|")
    for layer, error, unseen in zip(LAYERS, best.errors, left_out, strict=True):
        simulated = round(layer.cycles * (1 + error))
        print(f"| {layer.name} | {layer.cycles:,} | {simulated:,} | {error:+.1%} | {unseen:+.1%} |")
    print(f"| mean of sizes | | | {np.abs(best.errors).mean():.1%} | {np.abs(left_out).mean():.1%} |")
    print()
    for name in ("wgt_bytes_per_cycle", "dma_row_latency", "host_cycles"):
        print(f"{name} = {getattr(best, name)} (default {getattr(PYNQ, name)})")


if __name__ == "__main__":
    main()

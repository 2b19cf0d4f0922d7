"""Table of steps of training: gradients, milliseconds and memory of each runtime."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.figures import halves_difference, mean_and_ends, ratio_text, with_processors
from benchmarks.markdown import table
from benchmarks.pytorch.runtime import EAGER, INDUCTOR, OURS, TITLES

Row = Mapping[str, Any]

NETWORKS: Mapping[str, str] = {
    "resnet18": "ResNet-18, 8 images",
    "mobilenet_v2": "MobileNet-V2, 8 images",
    "vit_tiny": "ViT-tiny, 8 images",
    "gpt2_6_layers": "GPT-2 of 6 layers, 8 x 64 words",
    "lstm": "LSTM of 2 layers, 8 x 64 words",
    "cost_model": "cost model `attention`, 256 programs",
    "unet": "U-Net, 4 images",
}
"""Titles of `networks.EXAMPLES`."""

SENTENCES = (
    "A step is forward, loss, backward and the step of SGD with momentum. `step` is `autotune.compile_training`. "
    "`error`: root mean square of all gradients' errors after the first step, as a share of that of the gradients of "
    "eager PyTorch in float64. A ratio is a peer's time divided by ours. `GB`: peak memory of the process, once "
    "compiled. ≈: within measurement noise."
)


STEP = "autotune step"
"""Runtime of `autotune.compile_training`."""
HEADS: Mapping[str, str] = {**TITLES, OURS: "`torch.compile`", STEP: "step"}
"""Titles of the runtimes in the table; ours are those of its two ways to train."""


def ratio_to_fastest(row: Row, own: str = OURS) -> tuple[float, float]:
    """Computes the seconds of the faster of eager PyTorch and Inductor over one of ours, and their noise."""
    peer = min((EAGER, INDUCTOR), key=row["seconds"].__getitem__)
    return row["seconds"][peer] / row["seconds"][own], halves_difference(row, own, peer)


def training(document: Mapping[str, Any]) -> str:
    """Formats a summary and the table."""
    rows = list(document["rows"].values())
    timed = (STEP, OURS, INDUCTOR, EAGER)
    header = ["network", *(f"{HEADS[name]} ms" for name in timed)]
    header += [f"{HEADS[own]} beside the faster peer" for own in (STEP, OURS)]
    header += [f"{HEADS[name]}, {what}" for what in ("error", "GB") for name in timed]
    lines: list[list[object]] = []
    for row in rows:
        seconds = row["seconds"]
        cells = [NETWORKS[row["name"]], *(f"{seconds[name] * 1e3:.1f}" for name in timed)]
        cells += [ratio_text(*ratio_to_fastest(row, own)) for own in (STEP, OURS)]
        cells += [f"{row['errors'][name]:.0e}" for name in timed]
        lines.append([*cells, *(f"{row['peak_bytes'][name] / 1e9:.2f}" for name in timed)])
    summary = table(
        ["beside the faster of Inductor and eager", "geometric mean", "lowest", "highest", "networks"],
        [[HEADS[own], *mean_and_ends([ratio_to_fastest(row, own) for row in rows])] for own in (STEP, OURS)],
    )
    return "\n\n".join([SENTENCES, summary, table(*with_processors(header, lines, rows))])

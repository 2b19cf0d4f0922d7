"""The runtimes of the training benchmark with a network of a few numbers."""

from __future__ import annotations

from typing import Any, cast

import torch

from benchmarks.pytorch.training import runtime
from benchmarks.pytorch.training.networks import Example


def make_example() -> Example:
    """A linear layer, three samples and their classes."""
    return Example(torch.nn.Linear(6, 8), (torch.randn(3, 6),), torch.arange(3))


def main() -> None:
    """Serves one of the benchmark's runtimes with this network."""
    cast("dict[str, Any]", runtime.EXAMPLES)["tiny"] = make_example
    runtime.main()

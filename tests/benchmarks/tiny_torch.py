"""The runtimes of the PyTorch benchmark with a model of a few numbers in place of the list's."""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.pytorch import runtime
from benchmarks.survey.models import Model


class SortModule(torch.nn.Module):
    """A module of an operator that graphs lack."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sort(x)[0]


def make_model(model: Model, seed: int) -> tuple[Any, dict[str, Any]]:
    """Two linear layers with an operator between them that is left to PyTorch."""
    torch.manual_seed(seed)
    layers = (torch.nn.Linear(6, 8), SortModule(), torch.nn.Linear(8, 4))
    return torch.nn.Sequential(*layers).eval(), {"x": torch.ones(3, 6)}


def main() -> None:
    """Serves one of the benchmark's runtimes with this model."""
    runtime.make_model = make_model
    runtime.main()

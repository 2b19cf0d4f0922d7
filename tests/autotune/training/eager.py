"""Steps of training by eager PyTorch, beside which ours are held."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def step_eagerly(
    module: nn.Module,
    optimiser: torch.optim.Optimizer,
    inputs: tuple[torch.Tensor, ...],
    targets: torch.Tensor,
    loss: Loss = nn.functional.cross_entropy,
) -> float:
    """Makes one step, and returns its loss."""
    optimiser.zero_grad()
    value = loss(module(*inputs), targets)
    value.backward()
    optimiser.step()
    return value.item()

"""A network over sequences of primitives: attention between the steps of a schedule, and a score (TLP, ASPLOS 2023)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.lab.sequences.encoding import WIDTH
from costmodel.models.pair_loss import torch_pair_loss
from search_space.extras import require

_BLOCK = 512
"""Programs that are scored at a time."""


@dataclass(frozen=True)
class Options:
    """Options of the network and its training.

    Attributes:
        hidden: width of a step's representation.
        heads: number of attention heads.
        steps: number of training steps.
        programs: programs of one task in a training step.
        rate: learning rate (Adam), which falls to 0 by a cosine.
        seed: seed of the weights and of all draws.
    """

    hidden: int = 128
    heads: int = 4
    steps: int = 1500
    programs: int = 192
    rate: float = 1e-3
    seed: int = 0


class SequenceModel:
    """Scores of schedules of one task, learned from other tasks' primitives alone.

    Args:
        options: options of the network.

    Raises:
        MissingExtra: PyTorch is not installed.
    """

    def __init__(self, options: Options | None = None) -> None:
        require("a model of sequences", "torch")
        self.options = options or Options()
        self._network: Any = None

    def fit(
        self,
        count: int,
        task: Callable[[int], tuple[NDArray[np.float16], NDArray[np.float64]]],
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        """Learns the order of programs within tasks, by pairs weighted by their effect on the top of the list.

        Args:
            count: tasks.
            task: place → sequences (programs, length, width) and seconds (programs,); asked again whenever it is drawn.
            say: called with a sentence now and then.
        """
        import torch

        how = self.options
        torch.manual_seed(how.seed)
        rng = np.random.default_rng(how.seed)
        network = _network(how)
        optimiser = torch.optim.Adam(network.parameters(), how.rate)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, how.steps)
        total = 0.0
        for step in range(how.steps):
            sequences, seconds = task(int(rng.integers(count)))
            if len(seconds) < 2:
                continue
            rows = rng.permutation(len(seconds))[: how.programs]
            scores = network(torch.from_numpy(_cut(sequences[rows])))
            loss = torch_pair_loss(scores, torch.from_numpy((seconds.min() / seconds[rows]).astype(np.float32)), 0.5)
            optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimiser.step()
            schedule.step()
            total += float(loss.detach())
            if (step + 1) % 250 == 0:
                say(f"step {step + 1} of {how.steps}, loss {total / 250:.3f}")
                total = 0.0
        self._network = network.eval()

    def predict(self, sequences: NDArray[np.float16]) -> NDArray[np.float64]:
        """Predicts scores, higher is better: (programs, length, width) → (programs,).

        Raises:
            ValueError: it has learned nothing.
        """
        import torch

        if self._network is None:
            raise ValueError("a model must be fitted before it is used, but it was not")
        with torch.no_grad():
            blocks = [
                self._network(torch.from_numpy(_cut(sequences[first : first + _BLOCK]))).numpy()
                for first in range(0, len(sequences), _BLOCK)
            ]
        return np.concatenate(blocks).astype(np.float64)


def _cut(sequences: NDArray[np.float16]) -> NDArray[np.float32]:
    """Cuts the rows after the last step of all sequences; at least one row stays."""
    used = np.flatnonzero(sequences.any(axis=(0, 2)))
    return sequences[:, : int(used[-1]) + 1 if len(used) else 1].astype(np.float32)


def _network(how: Options) -> Any:
    import torch
    from torch import nn

    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Sequential(nn.Linear(how.hidden, how.hidden), nn.ReLU(), nn.Linear(how.hidden, how.hidden))

        def forward(self, x: Any) -> Any:
            return torch.relu(x + self.inner(x))

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Sequential(
                nn.Linear(WIDTH, how.hidden), nn.ReLU(), nn.Linear(how.hidden, how.hidden), nn.ReLU()
            )
            self.attention = nn.MultiheadAttention(how.hidden, how.heads, batch_first=True)
            self.norm = nn.LayerNorm(how.hidden)
            self.blocks = nn.Sequential(Residual(), Residual())
            self.head = nn.Linear(how.hidden, 1)

        def forward(self, x: Any) -> Any:
            used = x.abs().sum(dim=2) > 0  # rows behind the last step are no steps
            used[:, 0] = True  # of a schedule without any, too
            embedded = self.embed(x)
            attended, _ = self.attention(embedded, embedded, embedded, key_padding_mask=~used, need_weights=False)
            scores = self.head(self.blocks(self.norm(embedded + attended)))[:, :, 0]
            return (scores * used).sum(dim=1)

    return Network()

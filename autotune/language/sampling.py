"""Choosing the next token by its logits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from autotune.graph.types import Array
from autotune.language.model import LanguageModelError

Sampler = Callable[[Array], int]
"""Logits (vocabulary,) → a token."""


def greedy(logits: Array) -> int:
    """Chooses the likeliest token, the first of several."""
    return int(np.argmax(logits))


@dataclass(frozen=True)
class TopK:
    """Draws among the likeliest tokens (Fan et al., "Hierarchical Neural Story Generation", 2018).

    Args:
        rng: source of all draws.
        count: tokens to draw among; None: all.
        temperature: divisor of the logits: below 1 the likeliest tokens become more frequent.

    Raises:
        LanguageModelError: a count below 1, or a temperature that is not above 0.
    """

    rng: np.random.Generator
    count: int | None = None
    temperature: float = 1.0

    def __post_init__(self) -> None:
        if self.count is not None and self.count < 1:
            raise LanguageModelError(f"`count` must be at least 1, but got count={self.count}")
        if not self.temperature > 0:
            raise LanguageModelError(f"`temperature` must be above 0, but got temperature={self.temperature}")

    def __call__(self, logits: Array) -> int:
        size = len(logits)
        tokens = np.arange(size)
        if self.count is not None and self.count < size:
            tokens = np.sort(np.argpartition(logits, size - self.count)[size - self.count :])
        scaled = logits[tokens].astype(np.float64) / self.temperature
        shares = np.exp(scaled - scaled.max())
        return int(self.rng.choice(tokens, p=shares / shares.sum()))

"""A network over the statements of a program: each is embedded, attends to the others, and adds to the score.

Statements share caches and registers with their neighbours, which sums over separate statements do not see. PyTorch
trains the network and NumPy computes it, so that a saved one does not need PyTorch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from costmodel.features import SECONDS
from costmodel.models.base import Scores
from costmodel.models.learner import Learner, Programs
from costmodel.models.pair_loss import torch_pair_loss
from costmodel.models.program_model import round_to_float32
from costmodel.models.roofline import logarithms
from costmodel.models.tunable import Range, Tunable
from search_space.extras import require

CLIP = 5.0
"""Standard deviations from the mean at which features are clipped."""
BLOCK = 256
"""Number of programs that are computed at a time, always equal, so that scores do not depend on other programs."""
SLOWEST = 2.0**-6
"""Throughput that replaces lower ones and that of failures, as logarithms need a positive value."""
HEADS = 4
"""Heads of the attention, each on a quarter of the hidden width."""
_LAYERS = ("first", "second", "query", "key", "value", "mixed", "third", "last")


@dataclass(eq=False, kw_only=True)
class AttentionModel(Learner):
    """A model whose scores are logarithms of throughput, up to a task's constant: the roofline's plus a correction.

    The loss is the squared error of the logarithm, less the task's mean, plus a logistic loss on pairs of programs of a
    task. A pair weighs the effect of its exchange on the top of the list (LambdaRank).

    Attributes:
        seed: seed of the weights and of all draws.
        hidden: width of a statement's embedding.
        steps: number of training steps; fewer for few programs.
        batch: number of programs of a task in a step.
        rate: learning rate (Adam), which falls to 0 by a cosine.
        ranked: weight of the loss on pairs.
        decay: decay of weights (AdamW).
        dropped: share of the features that a program is trained without.
        programs: most programs of one task to learn from: the faster half, and a sample of the rest.
    """

    name = "attention"
    required_keys = ("mean", "scale", *(f"{layer}.{part}" for layer in _LAYERS for part in ("weight", "bias")))
    tunable: ClassVar[Mapping[str, Tunable]] = {
        "hidden": Range(32, 128, log=True),
        "steps": Range(500, 6000, log=True),
        "rate": Range(3e-4, 5e-3, log=True),
        "ranked": Range(0.1, 10.0, log=True),
        "decay": Range(1e-4, 0.1, log=True),
        "dropped": Range(0.0, 0.5),
    }

    seed: int = field(default=0, kw_only=False)
    hidden: int = 64
    steps: int = 3000
    batch: int = 256
    rate: float = 2e-3
    ranked: float = 1.0
    decay: float = 0.01
    dropped: float = 0.1
    programs: int = 2048

    def __post_init__(self) -> None:
        if self.hidden < HEADS or self.hidden % HEADS or self.steps < 1 or self.batch < 2:
            raise ValueError(
                f"`hidden` must be a multiple of {HEADS}, `steps` at least 1 and `batch` at least 2, "
                f"but got hidden={self.hidden}, steps={self.steps}, batch={self.batch}"
            )
        if not 0 <= self.dropped < 1:
            raise ValueError(f"`dropped` must be from 0 and below 1, but got dropped={self.dropped}")

    def predict(self, features: NDArray[np.float32]) -> Scores:
        learned = self.state
        count, statements = features.shape[:2]
        missing = np.empty(-(-count // BLOCK) * BLOCK)
        for start in range(0, count, BLOCK):
            part = features[start : start + BLOCK].astype(np.float64)
            block = np.zeros((BLOCK, statements, len(learned["mean"])))
            block[: len(part)] = np.clip((part - learned["mean"]) * learned["scale"], -CLIP, CLIP)
            missing[start : start + BLOCK] = self._missing(block)
        scores: Scores = missing[:count] - logarithms(features)
        return scores

    def train(self, programs: Programs) -> None:
        require("the cost model attention", "torch")
        import torch

        before = torch.get_num_threads()
        torch.set_num_threads(1)  # kernels may be timed meanwhile, and threads add up in any order
        try:
            self._state = self._train_network(programs)
        finally:
            torch.set_num_threads(before)

    def _missing(self, block: NDArray[np.float64]) -> Scores:
        """Computes the network on `BLOCK` programs: (block, statements, features) → (block,).

        Products are rounded to float32, for in which order a library adds up depends on the processor.
        """
        learned = self.state
        rows, statements = block.shape[:2]

        def layer(name: str, x: NDArray[np.float64]) -> NDArray[np.float64]:
            return round_to_float32(x @ learned[f"{name}.weight"].astype(np.float64) + learned[f"{name}.bias"])

        x = round_to_float32(block.reshape(rows * statements, -1))
        x = np.maximum(layer("first", x), 0.0)
        x = np.maximum(layer("second", x), 0.0)
        width = x.shape[1] // HEADS
        parts = {n: layer(n, x).reshape(rows, statements, HEADS, width) for n in ("query", "key", "value")}
        weights = np.empty((rows, HEADS, statements, statements))
        for i in range(statements):  # statements are few: each iteration handles all programs
            for j in range(statements):
                weights[:, :, i, j] = round_to_float32(
                    (parts["query"][:, i] * parts["key"][:, j]).sum(axis=2) / np.sqrt(width)
                )
        weights = np.exp(weights - weights.max(axis=3, keepdims=True))
        weights = round_to_float32(weights / weights.sum(axis=3, keepdims=True))
        mixed = np.zeros((rows, statements, HEADS, width))
        for j in range(statements):
            mixed += weights[:, :, :, j].transpose(0, 2, 1)[..., None] * parts["value"][:, j][:, None]
        x = x + layer("mixed", round_to_float32(mixed.reshape(rows * statements, -1)))
        x = np.maximum(layer("third", x), 0.0)
        found: Scores = layer("last", x).reshape(rows, statements).sum(axis=1)
        return found

    def _train_network(self, programs: Programs) -> dict[str, Any]:
        import torch

        rng = np.random.default_rng(self.seed)
        torch.manual_seed(self.seed)
        batches = Batches(programs)
        mean, scale = batches.mean, batches.scale
        network = make_network(len(mean), self.hidden)
        optimiser = torch.optim.AdamW(network.parameters(), self.rate, weight_decay=self.decay)
        steps = min(self.steps, 2 * len(programs.features))
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
        for _ in range(steps):
            x, used, prior, target, throughput = batches.draw(rng, self.batch)
            if self.dropped:
                x = x * (torch.rand(x.shape[0], 1, x.shape[2]) >= self.dropped)
            scores = network(x, used) - prior
            loss = compute_loss(scores, target, throughput, self.ranked)
            optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimiser.step()
            schedule.step()
        learned: dict[str, Any] = {"mean": mean, "scale": scale}
        for name, value in network.state_dict().items():
            array = value.numpy()
            learned[name] = np.ascontiguousarray(array.T if array.ndim == 2 else array)
        return learned


class Batches:
    """Programs of one task at a time, as tensors, statements padded to the most among them.

    Attributes:
        mean, scale: mean of each feature, and the reciprocal of its standard deviation; 0 for equal features.
    """

    def __init__(self, programs: Programs) -> None:
        rows = np.concatenate(programs.features).astype(np.float64)
        deviation = rows.std(axis=0)
        varies = deviation > 1e-6
        self.mean = rows.mean(axis=0)
        self.scale = np.where(varies, 1.0 / np.where(varies, deviation, 1.0), 0.0)
        self._features, self._throughput = programs.features, programs.throughput
        self._log = np.log2(np.maximum(programs.throughput, SLOWEST))
        groups = programs.groups
        found = (np.flatnonzero(groups == group) for group in np.unique(groups))
        self._tasks = [rows for rows in found if len(rows) > 1] or [np.arange(len(groups))]

    def draw(self, rng: np.random.Generator, count: int) -> Sequence[Any]:
        """Draws a task's programs: features, mask of statements, logarithms of estimate and throughput, throughput."""
        import torch

        rows = self._tasks[int(rng.integers(len(self._tasks)))]
        rows = rng.permutation(rows)[:count]
        of = [self._features[row] for row in rows.tolist()]
        most = max(len(one) for one in of)
        x = np.zeros((len(of), most, len(self.mean)), np.float32)
        used = np.zeros((len(of), most), np.bool_)
        for place, one in enumerate(of):
            x[place, : len(one)] = np.clip((one - self.mean) * self.scale, -CLIP, CLIP)
            used[place, : len(one)] = True
        prior = np.array([one[0, SECONDS] for one in of], np.float32)
        parts = (
            x,
            used,
            prior - prior.mean(),
            self._log[rows].astype(np.float32),
            self._throughput[rows].astype(np.float32),
        )
        return [torch.from_numpy(np.ascontiguousarray(part)) for part in parts]


def _error(scores: Any, target: Any) -> Any:
    """Computes the squared error of logarithms less the task's mean; the faster a program, the more it weighs."""
    weight = 0.1 + target.exp2()
    weight = weight / weight.sum()
    error = scores - target
    return (weight * (error - (weight * error).sum()) ** 2).sum()


def compute_loss(scores: Any, target: Any, throughput: Any, pair_weight: float = 1.0) -> Any:
    """Computes the loss of a task's programs, differentiable by PyTorch.

    Args:
        scores, target, throughput: tensors (programs,): scores, logarithms of throughput, and throughput.
        pair_weight: weight of the loss on pairs.
    """
    return _error(scores, target) + pair_weight * torch_pair_loss(scores, throughput)


def make_network(features: int, hidden: int) -> Any:
    """Makes the network of PyTorch: features (programs, statements, features) and their mask to (programs,)."""
    import torch
    from torch import nn

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(features, hidden)
            self.second = nn.Linear(hidden, hidden)
            self.query, self.key, self.value = (nn.Linear(hidden, hidden) for _ in range(3))
            self.mixed = nn.Linear(hidden, hidden)
            self.third = nn.Linear(hidden, hidden)
            self.last = nn.Linear(hidden, 1)
            nn.init.zeros_(self.last.weight)  # training starts from the roofline
            nn.init.zeros_(self.last.bias)

        def forward(self, x: Any, mask: Any) -> Any:
            x = torch.relu(self.second(torch.relu(self.first(x))))
            shape = (*x.shape[:2], HEADS, hidden // HEADS)
            query, key, value = (of(x).reshape(shape).transpose(1, 2) for of in (self.query, self.key, self.value))
            weights = query @ key.transpose(2, 3) / (hidden // HEADS) ** 0.5
            weights = weights.masked_fill(~mask[:, None, None], -1e9).softmax(dim=3)
            mixed = (weights @ value).transpose(1, 2).reshape(x.shape)
            x = torch.relu(self.third(x + self.mixed(mixed)))
            return (self.last(x)[:, :, 0] * mask).sum(dim=1)

    return Network()

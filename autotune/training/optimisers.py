"""Optimisers: how a step changes parameters, as nodes of a graph.

An optimiser works on parameters that lie one after the other in one array. Formulas are those of `torch.optim`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np

from autotune.graph.ir import GraphBuilder

LEARNING_RATE, STEP = "learning_rate", "step"
"""Inputs of a training graph: the learning rate (1,) in float32, and the number of finished steps (1,) in int64."""


@dataclass(frozen=True)
class Optimiser(ABC):
    """An optimiser.

    Attributes:
        name: name in messages and files.
        moments: names of its states, each an array like the parameters, 0 before the first step.
        learning_rate: rate of a step that names none.
    """

    name: ClassVar[str]
    learning_rate: float

    def __post_init__(self) -> None:
        for field, value in asdict(self).items():
            if isinstance(value, float) and not (math.isfinite(value) and value >= 0):
                raise ValueError(f"`{field}` must be finite and not negative, but got {field}={value}")

    @property
    @abstractmethod
    def moments(self) -> tuple[str, ...]:
        """Names of the states."""

    @abstractmethod
    def update(
        self, builder: GraphBuilder, parameters: str, gradient: str, moments: Mapping[str, str], step: str
    ) -> dict[str, str]:
        """Adds a step.

        Args:
            builder: builder of a graph with the input `LEARNING_RATE`.
            parameters: value of the parameters (n,).
            gradient: their gradient (n,).
            moments: values of the states, by name.
            step: number of this update (1,), from 1.

        Returns:
            Names of the new parameters, under `parameters`, and of the new states, by name.
        """

    def describe(self) -> dict[str, Any]:
        """Returns name and options as plain data."""
        return {"name": self.name, **asdict(self)}


def _number(builder: GraphBuilder, value: float) -> str:
    return builder.constant(np.asarray([value], np.float32), "number")


def _multiply(builder: GraphBuilder, value: str, factor: float) -> str:
    return value if factor == 1 else builder.add("multiply", [value, _number(builder, factor)])


@dataclass(frozen=True)
class SGD(Optimiser):
    """Stochastic gradient descent with momentum, see `torch.optim.SGD`."""

    name = "sgd"
    learning_rate: float = 0.01
    momentum: float = 0.0
    weight_decay: float = 0.0
    nesterov: bool = False

    @property
    def moments(self) -> tuple[str, ...]:
        return ("momentum",) if self.momentum else ()

    def update(
        self, builder: GraphBuilder, parameters: str, gradient: str, moments: Mapping[str, str], step: str
    ) -> dict[str, str]:
        results = {}
        if self.weight_decay:
            gradient = builder.add("add", [gradient, _multiply(builder, parameters, self.weight_decay)])
        if self.momentum:
            before = _multiply(builder, moments["momentum"], self.momentum)
            momentum = results["momentum"] = builder.add("add", [before, gradient])
            ahead = (
                builder.add("add", [gradient, _multiply(builder, momentum, self.momentum)])
                if self.nesterov
                else momentum
            )
        else:
            ahead = gradient
        change = builder.add("multiply", [ahead, LEARNING_RATE])
        return {**results, "parameters": builder.add("subtract", [parameters, change])}


@dataclass(frozen=True)
class Adam(Optimiser):
    """Adam, see `torch.optim.Adam`; weight decay is added to the gradient."""

    name = "adam"
    learning_rate: float = 1e-3
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    weight_decay: float = 0.0
    decoupled: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        for field in ("beta1", "beta2"):
            if not 0 < getattr(self, field) < 1:
                raise ValueError(f"`{field}` must be between 0 and 1, but got {field}={getattr(self, field)}")

    @property
    def moments(self) -> tuple[str, ...]:
        return "mean", "square"

    def update(
        self, builder: GraphBuilder, parameters: str, gradient: str, moments: Mapping[str, str], step: str
    ) -> dict[str, str]:
        if self.weight_decay and self.decoupled:
            share = _multiply(builder, LEARNING_RATE, self.weight_decay)
            rest = builder.add("subtract", [_number(builder, 1.0), share])
            decayed = builder.add("multiply", [parameters, rest])
        else:
            decayed = parameters
            if self.weight_decay:
                gradient = builder.add("add", [gradient, _multiply(builder, parameters, self.weight_decay)])
        # PyTorch's `lerp`: before + (gradient - before) * (1 - beta1)
        difference = builder.add("subtract", [gradient, moments["mean"]])
        mean = builder.add("add", [moments["mean"], _multiply(builder, difference, 1 - self.beta1)])
        fresh = _multiply(builder, builder.add("multiply", [gradient, gradient]), 1 - self.beta2)
        square = builder.add("add", [_multiply(builder, moments["square"], self.beta2), fresh])
        rate = builder.add("divide", [LEARNING_RATE, self._correction(builder, step, self.beta1)])
        root = builder.add("sqrt", [self._correction(builder, step, self.beta2)])
        scale = builder.add("divide", [builder.add("sqrt", [square]), root])
        scale = builder.add("add", [scale, _number(builder, self.epsilon)])
        change = builder.add("divide", [builder.add("multiply", [mean, rate]), scale])
        return {"mean": mean, "square": square, "parameters": builder.add("subtract", [decayed, change])}

    @staticmethod
    def _correction(builder: GraphBuilder, step: str, beta: float) -> str:
        """Adds 1 - beta^step, by `expm1`: 1 less a power near 1 would lose digits."""
        power = builder.add("expm1", [_multiply(builder, step, math.log(beta))])
        return builder.add("negative", [power])


@dataclass(frozen=True)
class AdamW(Adam):
    """Adam with decoupled weight decay, see `torch.optim.AdamW`."""

    name = "adamw"
    weight_decay: float = 0.01
    decoupled: ClassVar[bool] = True


OPTIMISERS: Mapping[str, Callable[..., Optimiser]] = {kind.name: kind for kind in (SGD, Adam, AdamW)}
"""Optimisers by name."""

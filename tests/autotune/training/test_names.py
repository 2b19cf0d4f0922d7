"""Names and buffers of a model in a training step: which a step takes, and which are refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import autotune
from autotune.graph.errors import GraphError, UnsupportedModelError
from autotune.graph.evaluate import evaluate
from autotune.training import api
from autotune.training.optimisers import SGD, Adam
from autotune.training.step import make_training_graph
from tests.autotune.training.eager import step_eagerly


class NamesOfValues(nn.Module):
    """A module whose parameter has the name that the graph gives to a product, and whose buffer is called `mean`."""

    def __init__(self) -> None:
        super().__init__()
        self.mul = nn.Parameter(torch.tensor([2.0, 3.0, 4.0]))
        self.register_buffer("mean", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.mean.mul_(0.5).add_(x.mean(0))
        return (x - self.mean) * self.mul * self.mul


def test_a_parameter_may_have_the_name_of_another_value() -> None:
    x, y = torch.arange(12.0).reshape(4, 3), torch.tensor([0, 1, 2, 0])
    forward = api._read(NamesOfValues(), x, y, "cross_entropy", 0)
    arrays = {"targets": y.numpy(), "inputs_0": x.numpy(), **forward.parameters, **forward.buffers}
    values = evaluate(forward.graph, arrays)
    module = NamesOfValues()
    loss = nn.functional.cross_entropy(module(x), y)
    assert values[forward.loss] == pytest.approx(loss.item()) and set(forward.parameters) == {"mul"}
    assert values[forward.new_buffers["mean"]] == pytest.approx(module.mean.numpy())
    make_training_graph(forward.graph, ["mul"], forward.loss, SGD(), forward.new_buffers)
    with pytest.raises(GraphError, match=r"^inputs and buffers must have other names than .*, square, but got mean$"):
        make_training_graph(forward.graph, ["mul"], forward.loss, Adam(), forward.new_buffers)


class Assigning(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)
        self.register_buffer("average", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.average = self.average * 0.5 + x.mean(0)
        return self.layer(x - self.average)  # type: ignore[no-any-return]


def test_a_buffer_that_is_assigned_is_refused_instead_of_forgotten() -> None:
    module = nn.Sequential(nn.BatchNorm1d(3), Assigning())
    with pytest.raises(UnsupportedModelError, match=r"^buffers must be changed in place, but .* assigns 1\.average$"):
        api._read(module, torch.ones(4, 3), torch.zeros(4, dtype=torch.int64), "cross_entropy", 0)
    assert module[1].average.tolist() == [0.0, 0.0, 0.0]


def test_a_buffer_that_is_assigned_itself_is_changed_in_place() -> None:
    torch.manual_seed(0)
    module = nn.utils.parametrizations.spectral_norm(nn.Linear(3, 3))
    x, y = torch.randn(4, 3), torch.tensor([0, 1, 2, 0])
    step = autotune.compile_training(module, x, y, optimiser=SGD(0.1), threads=1)
    optimiser = torch.optim.SGD(module.parameters(), 0.1)
    for _ in range(3):
        loss = step_eagerly(module, optimiser, (x,), y)
        assert step.step(y, x) == pytest.approx(loss, rel=1e-5)
    for name, buffer in module.named_buffers():
        np.testing.assert_allclose(step.buffers[name], buffer.numpy(), rtol=1e-4, atol=1e-6)

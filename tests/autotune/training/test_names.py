"""Names of a model in a training step: any name of a parameter, and no other value with a name of the step."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from autotune.graph.errors import GraphError
from autotune.graph.evaluate import evaluate
from autotune.training import api
from autotune.training.optimisers import SGD, Adam
from autotune.training.step import make_training_graph


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

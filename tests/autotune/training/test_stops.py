"""Places where gradients stop: `detach`, `torch.no_grad`, and parameters that a loss does not depend on."""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

import autotune
from autotune.graph.errors import UnsupportedModelError
from autotune.graph.evaluate import evaluate
from autotune.training.modules import LOSSES, read_module
from autotune.training.optimisers import SGD
from autotune.training.step import make_training_graph
from tests.autotune.training.eager import step_eagerly

Body = Callable[["Layers", torch.Tensor], torch.Tensor]


class Layers(nn.Module):
    """Two layers, a buffer, and a function of these."""

    def __init__(self, body: Body) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second, self.norm = nn.Linear(4, 4), nn.Linear(4, 4), nn.BatchNorm1d(4)
        self.register_buffer("mean", torch.zeros(4))
        self.body = body

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(self, x)


def times_itself(net: Layers, x: torch.Tensor) -> torch.Tensor:
    y = net.first(x)
    return y * y.detach()


def without_gradients(net: Layers, x: torch.Tensor) -> torch.Tensor:
    y = net.first(x)
    with torch.no_grad():
        scale = torch.sigmoid(net.second(y))
        with torch.enable_grad():
            shift = net.second(y)
        net.mean.mul_(0.5).add_(y.mean(0))
    torch.set_grad_enabled(False)
    z = y * 2
    torch.set_grad_enabled(True)
    return y * scale + shift * z + net.mean


def running_mean(net: Layers, x: torch.Tensor) -> torch.Tensor:
    y = net.first(x)
    net.mean.mul_(0.5).add_(y.detach().mean(0))
    return net.second(y - net.mean)


def straight_through(net: Layers, x: torch.Tensor) -> torch.Tensor:
    y = net.first(x)
    return net.second(y + (torch.round(y * 4) / 4 - y).detach())


def frozen_layer(net: Layers, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        y = net.norm(net.first(x))
    return net.second(y)


def detached_in_place(net: Layers, x: torch.Tensor) -> torch.Tensor:
    y = net.first(x)
    z = y * 2
    z.detach_()
    return y * z


def not_trained(net: Layers, x: torch.Tensor) -> torch.Tensor:
    return net.second(torch.relu(net.first(x)))


BODIES = [
    *(times_itself, without_gradients, running_mean, straight_through, frozen_layer, detached_in_place),
    not_trained,
]


@pytest.mark.parametrize("body", BODIES)
def test_no_gradient_flows_where_pytorch_stops_it(body: Body) -> None:
    module = Layers(body)
    if body is not_trained:
        module.first.requires_grad_(False)
    x, y = torch.randn(8, 4), torch.randn(8, 4)
    theirs = copy.deepcopy(module).train()
    with torch.no_grad():  # the caller's mode does not matter
        forward = read_module(module, (x,), y, LOSSES["mse"])
    optimiser = SGD(0.1, momentum=0.9, weight_decay=0.1)
    step = make_training_graph(forward.graph, list(forward.parameters), forward.loss, optimiser, forward.new_buffers)
    assert all(node.op != "stop_gradient" for node in step.graph.nodes)
    states = {name: np.zeros(kind.shape, kind.dtype) for name, kind in step.states.items()} | dict(forward.buffers)
    for name, slot in step.slots.items():
        slot.of(states["parameters"])[...] = forward.parameters[name]
    batch = dict(zip(step.graph.inputs, (y.numpy(), x.numpy(), np.full(1, 0.1, np.float32)), strict=False))
    reference = torch.optim.SGD(theirs.parameters(), 0.1, 0.9, weight_decay=0.1)
    for _ in range(4):
        loss = step_eagerly(theirs, reference, (x,), y, nn.functional.mse_loss)
        values = evaluate(step.graph, {**batch, **states})
        ours = values[step.graph.outputs[0]]
        assert ours.item() == pytest.approx(loss, rel=1e-5)
        states = {name: values[value] for name, value in zip(states, step.graph.outputs[1:], strict=True)}
    for name, value in theirs.named_parameters():
        if value.requires_grad:
            found = step.slots[name].of(states["parameters"])
            np.testing.assert_allclose(found, value.detach().numpy(), rtol=1e-4, atol=1e-6)


def change_of_a_value(net: Layers, x: torch.Tensor) -> torch.Tensor:
    y = net.first(x)
    with torch.no_grad():
        y.mul_(2)
    return y


def change_through_detach(net: Layers, x: torch.Tensor) -> torch.Tensor:
    y = net.first(x) + 1
    y.detach().clamp_(0)
    return y


def change_of_a_parameter(net: Layers, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        net.first.weight.clamp_(-1, 1)
    return net.first(x)


def within_autocast(net: Layers, x: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        y = net.first(x)
    return net.second(y.float())


REFUSALS = [
    (change_of_a_value, "values with gradients must not be changed in place without them, but the module changes"),
    (change_through_detach, "values with gradients must not be changed in place without them, but the module changes"),
    (change_of_a_parameter, "parameters must be changed by the optimiser alone, but got model.first.weight"),
    (within_autocast, "gradients must not be turned off within autocast"),
]


@pytest.mark.parametrize(("body", "message"), REFUSALS)
def test_regions_without_gradients_that_cannot_be_told_are_refused(body: Body, message: str) -> None:
    with pytest.raises(UnsupportedModelError, match=f"^{message}"):
        autotune.compile_training(Layers(body), torch.randn(8, 4), torch.randn(8, 4), "mse")

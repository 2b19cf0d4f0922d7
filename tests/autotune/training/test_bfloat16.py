"""Training steps in bfloat16: errors of PyTorch's autocast at most, states in float32, the same after saving."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from ml_dtypes import bfloat16
from torch import nn

import autotune
from autotune.compiler.options import CompileOptions
from autotune.compiler.pipeline import make_pipeline
from autotune.graph.errors import GraphError
from autotune.graph.evaluate import evaluate
from autotune.graph.ir import Graph
from autotune.graph.precision import is_lowered
from autotune.training import api
from autotune.training.executable import TrainingExecutable
from autotune.training.optimisers import LEARNING_RATE, SGD, STEP
from autotune.training.precision import training_mode
from autotune.training.step import PARAMETERS, TrainingGraph, make_training_graph
from tests.autotune.training.test_training import Case, perceptron, tokens

pytestmark = pytest.mark.usefixtures("kernel_cache")

RATE = 0.125
"""Learning rate: a power of two, by which differences of parameters are divided without a rounding."""


def convolutions() -> Case:
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Conv2d(8, 16, 3, padding=1, bias=False),
        nn.BatchNorm2d(16),
        nn.SiLU(),
        nn.Conv2d(16, 8, 3, stride=2, padding=1, groups=2),
        nn.Tanh(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 5),
    )
    return module, torch.randn(4, 8, 6, 6), torch.randint(0, 5, (4,))


def gradients(case: Case, dtype: torch.dtype, autocast: bool = False) -> tuple[float, dict[str, Any]]:
    """PyTorch's loss, and gradients in float64."""
    module, x, y = case
    module = copy.deepcopy(module).train()
    module = module if dtype == torch.float32 else module.to(dtype)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        output = module(x.to(dtype) if x.is_floating_point() else x)
        loss = nn.functional.cross_entropy(output.to(dtype), y)
    loss.backward()
    return loss.item(), {name: p.grad.double().numpy() for name, p in module.named_parameters() if p.grad is not None}


def errors(case: Case, results: dict[str, Any]) -> tuple[Any, Any]:
    """Relative errors of gradients to those in float64, by parameter (n,): of ours, and of PyTorch's autocast."""
    _, exact = gradients(case, torch.float64)
    _, autocast = gradients(case, torch.float32, autocast=True)
    ours, theirs = (
        np.array([np.linalg.norm(got[name] - exact[name]) / np.linalg.norm(exact[name]) for name in exact])
        for got in (results, autocast)
    )
    return ours, theirs


def redraw(case: Case, seed: int) -> Case:
    """Returns the module with other data."""
    torch.manual_seed(seed)
    module, x, y = case
    other = torch.randn_like(x) if x.is_floating_point() else x.flatten()[torch.randperm(x.numel())].reshape(x.shape)
    return module, other, y[torch.randperm(len(y))]


class Lambda(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


def rows_of_groups(x: torch.Tensor) -> torch.Tensor:
    return torch.tanh(torch.sin(x).reshape(-1, 6, 4))


COMPARING: dict[str, list[nn.Module]] = {
    "maximum": [nn.Linear(8, 24), Lambda(lambda x: rows_of_groups(x).amax(2)), nn.Linear(6, 5)],
    "clamp": [nn.Linear(8, 24), Lambda(lambda x: torch.clamp(10 * x, -0.7, 0.7)), nn.Linear(24, 5)],
    "hardtanh": [nn.Linear(8, 24, bias=False), nn.BatchNorm1d(24), nn.Hardtanh(-0.7, 0.7), nn.Linear(24, 5)],
    "stem": [nn.Conv2d(8, 16, 3, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 5, 2)],
    "flat": [
        nn.Conv2d(8, 6, 3, bias=False),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(24, 5),
    ],
    "pool": [nn.Conv2d(8, 16, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Tanh(), nn.Conv2d(16, 5, 2)],
}
"""Layers whose gradients compare values."""


def comparing(name: str) -> Case:
    rng = torch.manual_seed(0)
    layers = copy.deepcopy(COMPARING[name])
    for layer in layers:
        for parameter in layer.parameters() if not isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d) else ():
            nn.init.normal_(parameter, std=0.3, generator=rng)
    x = (
        torch.randn(8, 8, 6, 6, generator=rng)
        if isinstance(layers[0], nn.Conv2d)
        else torch.randn(32, 8, generator=rng)
    )
    return nn.Sequential(*layers, nn.Flatten()), x, torch.randint(0, 5, (len(x),), generator=rng)


class Converting(nn.Module):
    """A module with values in bfloat16 of its own: a layer under autocast, and a frozen layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(20, 16), nn.Linear(16, 5)
        self.fixed = nn.Linear(8, 8).bfloat16().requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            y = torch.tanh(self.first(x))
        fixed = self.fixed(y[:, :8].bfloat16())
        return self.last(torch.cat([y[:, 4:12].bfloat16(), fixed], 1).float())


def lower(
    case: tuple[Any, Any, Any], precision: str = "bfloat16", loss: str = "cross_entropy"
) -> tuple[TrainingGraph, Graph, dict[str, Any]]:
    """A step of SGD, its graph in a precision, and the inputs of its first call."""
    forward = api._read(*case, loss, 0)
    step = make_training_graph(forward.graph, list(forward.parameters), forward.loss, SGD(RATE), forward.new_buffers)
    graph = make_pipeline(CompileOptions(precision=training_mode(precision))).run(step.graph).graph
    flat = np.zeros(step.length, np.float32)
    for name, slot in step.slots.items():
        slot.of(flat)[...] = forward.parameters[name]
    numbers = {LEARNING_RATE: np.float32([RATE]), STEP: np.int64([0])}
    _, *given = case
    batch = {name: a.numpy() for name, a in zip(forward.graph.inputs, given[::-1], strict=False) if a is not None}
    return step, graph, {**batch, **numbers, PARAMETERS: flat, **forward.buffers}


def step_in_numpy(case: Case, precision: str = "bfloat16") -> tuple[float, dict[str, Any]]:
    """The loss and the gradients of a step, as its graph says."""
    step, graph, inputs = lower(case, precision)
    values = evaluate(graph, inputs)
    loss, new = (values[graph.outputs[at]] for at in (0, 2))  # the number of steps is between them
    change = (inputs[PARAMETERS] - new) / np.float32(RATE)
    return float(loss[0]), {name: slot.of(change) for name, slot in step.slots.items()}


@pytest.mark.parametrize("make", [convolutions, tokens])
def test_gradients_have_at_most_the_errors_of_autocast(make: Callable[[], Case]) -> None:
    ours, theirs = [], []
    for seed in range(4):
        case = redraw(make(), seed)
        loss, results = step_in_numpy(case)
        assert loss == pytest.approx(gradients(case, torch.float64)[0], rel=2e-3)
        for sums, each in zip((ours, theirs), errors(case, results), strict=True):
            sums.append(each)
    mine, autocast = np.mean(ours, 0), np.mean(theirs, 0)
    assert (mine < 1.5 * autocast).all(), (mine, autocast)
    assert mine.mean() < 1.1 * autocast.mean() and mine.max() > 1e-4


@pytest.mark.parametrize("name", COMPARING)
def test_values_are_compared_as_they_are_stored(name: str) -> None:
    case = comparing(name)
    ours, theirs = errors(case, step_in_numpy(case)[1])
    assert (ours < np.maximum(1.2 * theirs, 0.02)).all(), (ours, theirs)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_module_may_have_values_in_bfloat16(precision: str) -> None:
    torch.manual_seed(0)
    case = Converting(), torch.randn(8, 20), torch.randint(0, 5, (8,))
    wanted_loss, wanted = gradients(case, torch.float32)
    loss, found = step_in_numpy(case, precision)
    assert loss == pytest.approx(wanted_loss, rel=2e-3)
    assert (
        set(found) == set(wanted) == {f"{layer}.{name}" for layer in ("first", "last") for name in ("weight", "bias")}
    )
    for name, array in wanted.items():
        assert np.linalg.norm(found[name] - array) < 0.02 * np.linalg.norm(array)


def test_products_read_bfloat16_and_the_rest_is_in_float32() -> None:
    _, graph, _ = lower(tokens())
    products = [node for node in graph.nodes if is_lowered(graph, node)]
    assert len(products) == 21  # seven of the forward pass, with two gradients each
    assert {graph.type(name).dtype for node in products for name in node.inputs} == {"bfloat16"}
    full = ("softmax", "log_softmax", "layer_norm", "reduce", "scatter_sum")
    assert all(node.type.dtype == "float32" for node in graph.nodes if node.op in full and node.type.dtype != "int32")
    assert all(graph.type(node.inputs[0]).dtype == "float32" for node in graph.nodes if node.op in full[:3])
    assert {graph.type(name).dtype for name in graph.outputs} == {"float32", "int64"}  # and the number of steps


@pytest.fixture(scope="module")
def small() -> TrainingExecutable:
    module, x, y = perceptron()
    options: dict[str, Any] = {"threads": 1, "precision": "bfloat16", "batches": 2}
    return autotune.compile_training(module, x[:4], y[:4], optimiser=SGD(RATE, momentum=0.9), **options)


def test_a_step_learns_as_with_autocast(small: TrainingExecutable, tmp_path: Path) -> None:
    module, x, y = perceptron()
    before = small.parameters
    losses = [small.step(y[:4], x[:4])]
    for name, array in small.parameters.items():
        np.testing.assert_array_equal(array, before[name])
    small.save(tmp_path)  # between the batches of an update
    losses.append(small.step(y[4:], x[4:]))
    found = {name: (array - small.parameters[name]) / RATE for name, array in before.items()}
    assert sum(losses) / 2 == pytest.approx(gradients((module, x, y), torch.float64)[0], rel=2e-3)
    mine, autocast_errors = errors((module, x, y), found)
    assert (mine < 1.5 * autocast_errors).all() and mine.max() > 1e-4
    assert {array.dtype for name, array in small.states.items() if name != STEP} == {np.dtype(np.float32)}
    optimiser = torch.optim.SGD(module.parameters(), RATE, momentum=0.9)
    wanted = []
    for _ in range(20):
        optimiser.zero_grad()
        for part in (slice(4), slice(4, 8)):
            with torch.autocast("cpu", torch.bfloat16):
                loss = nn.functional.cross_entropy(module(x[part]).float(), y[part])
            (loss / 2).backward()
            wanted.append(loss.item())
        optimiser.step()
    while len(losses) < len(wanted):
        part = slice(4) if len(losses) % 2 == 0 else slice(4, 8)
        losses.append(small.step(y[part], x[part]))
    assert wanted[-1] < 0.2 * wanted[0]
    np.testing.assert_allclose(losses, wanted, rtol=0.02, atol=2e-3)
    again = autotune.load_training(tmp_path)
    continued = [again.step(y[4:], x[4:])]
    while len(continued) < len(losses) - 1:
        part = slice(4) if len(continued) % 2 else slice(4, 8)
        continued.append(again.step(y[part], x[part]))
    assert continued == losses[1:]
    for name, array in small.states.items():
        np.testing.assert_array_equal(again.states[name], array)


def test_kernels_compute_what_the_graph_says() -> None:
    case = tokens()
    module, x, y = case
    _, graph, inputs = lower(case)
    step = autotune.compile_training(module, x, y, "cross_entropy", SGD(RATE), precision="bfloat16", threads=1)
    values = evaluate(graph, inputs)
    loss, new = (values[graph.outputs[at]] for at in (0, 2))  # the number of steps is between them
    assert step.step(y, x) == pytest.approx(float(loss[0]), rel=1e-3)
    change, wanted = step.states[PARAMETERS] - inputs[PARAMETERS], new - inputs[PARAMETERS]
    assert np.linalg.norm(change - wanted) < 4e-3 * np.linalg.norm(wanted)


def perceptron_of_onnx(dtype: Any) -> onnx.ModelProto:
    rng = np.random.default_rng(0)
    arrays = {"a": rng.standard_normal((6, 7)).astype(dtype), "b": rng.standard_normal((7, 3)).astype(dtype)}
    nodes = [
        onnx.helper.make_node("MatMul", ["x", "a"], ["u"]),
        onnx.helper.make_node("Tanh", ["u"], ["v"]),
        onnx.helper.make_node("MatMul", ["v", "b"], ["y"]),
    ]
    weights = [onnx.numpy_helper.from_array(array, name) for name, array in arrays.items()]
    kind = weights[0].data_type
    ends = [onnx.helper.make_tensor_value_info(name, kind, shape) for name, shape in (("x", [5, 6]), ("y", [5, 3]))]
    return onnx.helper.make_model(onnx.helper.make_graph(nodes, "net", ends[:1], ends[1:], weights))


def test_a_model_of_onnx_trains_in_bfloat16() -> None:
    model = perceptron_of_onnx(np.float32)
    step, graph, inputs = lower((model, None, None), loss="mse")
    a, b = (torch.from_numpy(onnx.numpy_helper.to_array(w).copy()).requires_grad_() for w in model.graph.initializer)
    x, y = torch.randn(5, 6, generator=torch.manual_seed(0)), torch.zeros(5, 3)
    with torch.autocast("cpu", torch.bfloat16):
        wanted = nn.functional.mse_loss((torch.tanh(x @ a) @ b).float(), y)
    wanted.backward()
    values = evaluate(graph, {**inputs, "x": x.numpy(), "targets": y.numpy()})
    loss, _, new = (values[name] for name in graph.outputs)
    assert loss[0] == pytest.approx(wanted.item(), rel=5e-3)
    for name, parameter in (("a", a), ("b", b)):
        assert parameter.grad is not None
        exact, found = parameter.grad.numpy(), step.slots[name].of(inputs[PARAMETERS] - new) / RATE
        assert 1e-4 < np.linalg.norm(found - exact) / np.linalg.norm(exact) < 0.02


def test_other_types_are_refused() -> None:
    module, x, y = perceptron()
    for precision in ("float16", "mixed", "half"):
        with pytest.raises(ValueError, match=f"^`precision` must be one of float32, bfloat16, but got .*{precision}'"):
            autotune.compile_training(module, x, y, precision=precision)
    model = perceptron_of_onnx(bfloat16)
    with pytest.raises(GraphError, match=r"^parameters must be float32, but got a: bfloat16\[6,7\]$"):
        autotune.compile_training(model, loss="mse", precision="bfloat16")
    with pytest.raises(GraphError, match=r"^parameters must be float32, but got 0\.weight: bfloat16\[32,20\]$"):
        autotune.compile_training(module.bfloat16(), x.bfloat16(), y, precision="bfloat16")

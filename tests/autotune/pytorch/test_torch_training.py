"""`torch.compile` with our backend in training: gradients, steps of descent and states, held to eager PyTorch.

One small model of each family runs on kernels; in the other tests NumPy computes the graphs that kernels are made of.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch import nn

import autotune
from autotune.graph.evaluate import evaluate
from autotune.graph.ir import Graph
from autotune.pytorch import backend as backends
from autotune.pytorch.backend import autotune_backend
from autotune.pytorch.options import read_options
from tests.autotune.pytorch.noted_graphs import noted_graphs

pytestmark = pytest.mark.usefixtures("kernel_cache")


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """Clears Dynamo's memory, seeds the weights, and fails on graphs that autotune leaves to PyTorch."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="autotune leaves")
        yield


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Graphs that were compiled to kernels, in order."""
    return noted_graphs(monkeypatch)


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Graphs of one shape, which are computed by NumPy, in order."""
    found: list[Any] = []
    real = backends.compile_graph

    def note_graph(graph: Any, *arguments: Any) -> Any:
        if not isinstance(graph, Graph):
            return real(graph, *arguments)
        found.append(graph)

        def run(arrays: Any) -> Any:
            values = evaluate(graph, dict(zip(graph.inputs, arrays, strict=True)))
            return tuple(np.array(values[name]) for name in graph.outputs)

        return run

    monkeypatch.setattr(backends, "compile_graph", note_graph)
    return found


def compile_model(model: Any, **options: Any) -> Any:
    """The model by our backend, on one thread, in training."""
    return torch.compile(model, backend=autotune_backend, options={"threads": 1, "training": True}, **options)


def step(run: Any, model: Any, x: Any, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Loss and outputs of one step forward and backward; gradients are those of the model and of `x`."""
    model.zero_grad()
    x.grad = None
    torch.manual_seed(seed)
    out = run(x)
    loss = (out.square() * torch.linspace(0.5, 1.5, out.shape[-1])).mean()
    loss.backward()
    return loss.detach(), out.detach()


def close(actual: Any, expected: Any) -> None:
    """Equal but for 1e-4 of the largest element."""
    assert (actual is None) == (expected is None)
    if expected is not None:
        torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4 * float(expected.abs().max()) + 1e-7)


def train(model: Any, *batches: Any, rate: float = 0.1) -> tuple[Any, Any]:
    """Steps of descent, compiled and by PyTorch: losses, gradients and states are the same; both models."""
    eager, run = copy.deepcopy(model), compile_model(model)
    for number, x in enumerate(batches):
        own, other = x.clone(), x.clone()
        for each in (own, other) if x.is_floating_point() else ():
            each.requires_grad_()
        for found, wanted in zip(step(run, model, own, number), step(eager, eager, other, number), strict=True):
            close(found, wanted)
        close(own.grad, other.grad)
        with torch.no_grad():
            for ours, theirs in zip(model.parameters(), eager.parameters(), strict=True):
                close(ours.grad, theirs.grad)
                for each in (ours, theirs):
                    each.sub_(rate * each.grad) if each.grad is not None else None
        for name, value in eager.state_dict().items():
            close(model.state_dict()[name].float(), value.float())
    return run, eager


def assert_evaluates(run: Any, model: Any, eager: Any, x: Any) -> None:
    """Asserts that both models give equal results without gradients."""
    model.eval(), eager.eval()
    with torch.no_grad():
        close(run(x), eager(x))
    model.train(), eager.train()


class Images(nn.Module):
    """A convolution with normalisation over the batch, perhaps a pool and another with a shortcut, and a mean."""

    def __init__(self, kernel: int, more: bool) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 4, kernel, stride=2, bias=False), nn.BatchNorm2d(4), nn.ReLU())
        self.pool = nn.MaxPool2d(3, 2, 1, ceil_mode=True) if more else None
        self.second = nn.Conv2d(4, 4, 3, padding=1) if more else None
        self.last = nn.Linear(4, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        x = self.pool(x) if self.pool else x
        x = x + self.second(x) if self.second else x
        return self.last(x.mean((2, 3)))


class Words(nn.Module):
    """Layers of an encoder that drop values out, over embeddings."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.table = nn.Embedding(9, 8)
        layers = [nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, activation="gelu") for _ in range(count)]
        self.layers = nn.Sequential(*layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(self.table(x))


def test_a_perceptron_on_kernels(kernels: list[Any]) -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 4))
    run, eager = train(model, *(torch.randn(3, 6) for _ in range(3)))
    assert len(kernels) == 2  # once forward and once backward, for all steps
    for _ in range(2):
        assert_evaluates(run, model, eager, torch.randn(3, 6))
        step(run, model, torch.randn(3, 6, requires_grad=True))
        with torch.no_grad():
            for each in model.parameters():
                each.sub_(0.1 * each.grad)
        eager.load_state_dict(model.state_dict())
    assert len(kernels) == 3  # and once for evaluation, whatever the parameters are


def test_images_on_kernels(kernels: list[Any]) -> None:
    train(Images(1, more=False), torch.randn(2, 3, 4, 4))
    assert len(kernels) == 2


def test_words_on_kernels(kernels: list[Any]) -> None:
    train(Words(1), torch.randint(0, 9, (2, 3)))
    assert len(kernels) == 2


def test_images(graphs: list[Any]) -> None:
    model = Images(3, more=True)
    run, eager = train(model, *(torch.randn(2, 3, 9, 12) for _ in range(4)))
    assert int(model.first[1].num_batches_tracked) == 4
    assert len(graphs) == 2
    assert_evaluates(run, model, eager, torch.randn(2, 3, 9, 12))
    step(run, model, torch.randn(2, 3, 9, 12, requires_grad=True))
    assert len(graphs) == 3


def test_words_with_dropout(graphs: list[Any]) -> None:
    run, eager = train(model := Words(2), *(torch.randint(0, 9, (2, 5)) for _ in range(3)))
    assert len(graphs) == 2
    assert_evaluates(run, model, eager, torch.randint(0, 9, (2, 5)))


def test_a_loss_in_the_graph(graphs: list[Any]) -> None:
    model, x, y = nn.Linear(6, 5), torch.randn(3, 6), torch.randint(0, 5, (3,))
    eager = copy.deepcopy(model)

    def loss(model: Any) -> torch.Tensor:
        return nn.functional.cross_entropy(model(x), y, label_smoothing=0.1)

    loss(eager).backward()
    compile_model(lambda: loss(model))().backward()
    close(model.weight.grad, eager.weight.grad)
    close(model.bias.grad, eager.bias.grad)


def test_causal_attention(graphs: list[Any]) -> None:
    class Attending(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inside = nn.Linear(8, 24)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            q, k, v = (t.unflatten(2, (2, 4)).transpose(1, 2) for t in self.inside(x).chunk(3, -1))
            return nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)

    run, eager = train(model := Attending(), torch.randn(2, 5, 8))
    assert_evaluates(run, model, eager, torch.randn(2, 5, 8))


@pytest.mark.parametrize(
    ("inputs", "outputs", "kernel", "options"),
    [
        (20, 18, 2, {"stride": 2}),
        (18, 20, 3, {"stride": 2, "padding": 1, "output_padding": 1}),
        (4, 3, 2, {}),
        (18, 17, 3, {"dilation": 2, "output_padding": 1}),
        (6, 6, 3, {"stride": 2, "groups": 3}),
        (18, 17, 2, {"stride": 3, "output_padding": 2}),
    ],
)
def test_transposed_convolutions(
    graphs: list[Any], inputs: int, outputs: int, kernel: int, options: dict[str, Any]
) -> None:
    train(
        nn.Sequential(nn.Tanh(), nn.ConvTranspose2d(inputs, outputs, kernel, **options)), torch.randn(2, inputs, 4, 5)
    )
    assert len(graphs) == 2


@pytest.mark.parametrize(
    ("inputs", "outputs", "kernel", "options"),
    [
        (18, 17, 3, {"stride": 2, "padding": 1}),
        (18, 17, 1, {"stride": 2}),  # one phase of the data meets no tap
        (18, 17, 3, {"stride": (1, 2), "padding": (0, 3)}),  # whole windows lie in the padding
        (17, 40, 3, {"padding": 1}),  # a product for each tap
    ],
)
def test_dense_convolutions(graphs: list[Any], inputs: int, outputs: int, kernel: int, options: dict[str, Any]) -> None:
    train(nn.Conv2d(inputs, outputs, kernel, **options), torch.randn(2, inputs, 9, 10))
    assert len(graphs) == 2


def test_gradients_of_weights_are_summed_in_parts(graphs: list[Any]) -> None:
    train(nn.Conv2d(16, 16, 3, padding=1, bias=False), torch.randn(2, 16, 80, 60))
    (node,) = (node for graph in graphs for node in graph.nodes if node.op == "conv_filters")
    assert node.attrs["parts"] == (2, 2)


def test_limits_keep_gradients_between_them_and_of_nan(graphs: list[Any]) -> None:
    values = torch.tensor([-torch.inf, -1, 0, 2, 6, 7, torch.inf, torch.nan])
    own, other = (values.clone().requires_grad_() for _ in range(2))

    def limit_values(x: torch.Tensor) -> torch.Tensor:
        return nn.functional.relu6(x * 1.0) + torch.relu(x)

    compile_model(limit_values)(own).sum().backward()
    limit_values(other).sum().backward()
    torch.testing.assert_close(own.grad, other.grad, equal_nan=True)
    assert sum(node.op == "limited_slope" for graph in graphs for node in graph.nodes) == 1


def test_an_infinite_gradient_stays_where_its_window_is(graphs: list[Any]) -> None:
    for groups in (1, 18):
        torch._dynamo.reset()
        layer, x = nn.Conv2d(18, 18, 3, stride=2, groups=groups), torch.randn(1, 18, 9, 9)
        slope = torch.zeros(1, 18, 4, 4)
        slope[:, :, 1, 2] = torch.inf
        found = []
        for run in (compile_model(layer), layer):
            given = x.clone().requires_grad_()
            run(given).backward(slope)
            assert given.grad is not None
            found.append(given.grad.isfinite())
        assert torch.equal(*found)


def test_saved_images_have_their_channels_last(graphs: list[Any]) -> None:
    layers = [nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, 3), nn.ReLU()]
    train(nn.Sequential(*layers), torch.randn(2, 16, 6, 7))
    forward, backward = graphs
    saved = [forward.type(name).shape for name in forward.outputs if len(forward.type(name).shape) == 4]
    saved = [shape for shape in saved if 1 not in shape]  # statistics
    assert saved[0] == (2, 16, 4, 5) and set(saved[1:]) <= {(2, 6, 7, 16), (2, 4, 5, 16)} and len(saved) > 2
    assert {backward.type(name).shape for name in backward.inputs} >= set(saved[1:])


@pytest.mark.parametrize("options", [{"padding": 1}, {"ceil_mode": True}, {"stride": 1, "dilation": 2}])
def test_maxima_have_the_gradients_of_pytorch(graphs: list[Any], options: dict[str, Any]) -> None:
    """Ties, NaN and infinities, too: the first of equal elements is a maximum, and the last NaN."""
    x, pool = torch.randn(2, 3, 8, 9).round(), nn.MaxPool2d(3, **{"stride": 2, **options})
    x[0, 0, :3, :3], x[0, 1], x[0, 2, 2:6] = torch.nan, -torch.inf, torch.inf
    found = []
    for run in (compile_model(pool), pool):
        given = x.clone().requires_grad_()
        out = run(given)
        out.backward(torch.arange(1.0, out.numel() + 1).reshape(out.shape))
        found.append((out.detach(), given.grad))
    torch.testing.assert_close(*found, equal_nan=True)
    assert len(graphs) == 2


@pytest.mark.parametrize(
    ("rank", "inputs", "outputs", "groups", "options"),
    [
        (2, 4, 6, 2, {"stride": 2, "padding": 1}),
        (2, 5, 5, 5, {"dilation": 2, "padding": 2}),
        (1, 4, 8, 4, {"stride": 3, "padding": 2, "bias": False}),
        (2, 18, 17, 1, {"padding": 1}),
        (2, 4, 8, 4, {"stride": (4, 2), "padding": (0, 3)}),
        (2, 4, 4, 2, {"stride": 2, "dilation": 2, "padding": 2}),
        (2, 4, 6, 2, {"padding": (4, 3)}),  # windows in the padding alone
    ],
)
def test_convolutions_of_any_groups(
    graphs: list[Any], rank: int, inputs: int, outputs: int, groups: int, options: dict[str, Any]
) -> None:
    layer = (nn.Conv1d, nn.Conv2d)[rank - 1](inputs, outputs, 3, groups=groups, **options)
    train(layer, torch.randn(3, inputs, *(8, 9)[-rank:]))
    assert len(graphs) == 2


def test_depthwise_convolutions_on_kernels(kernels: list[Any]) -> None:
    train(nn.Conv2d(6, 6, 3, 2, 1, groups=6, bias=False), torch.randn(2, 6, 6, 5))
    assert {node.op for graph in kernels for node in graph.nodes} >= {"depthwise_conv2d", "conv_filters", "conv_phases"}


def test_what_becomes_of_a_model_in_training_is_explained() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout(), nn.Flatten(), nn.Linear(16, 2))
    x, state = torch.randn(2, 3, 4, 4), torch.get_rng_state()
    kept = {name: value.clone() for name, value in model.state_dict().items()}
    found = autotune.explain(model, x, training=True)
    assert (found.graphs, found.pieces, found.graph_refusals) == (2, 2, ())
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(value, kept[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    left = {each.operator for each in found.left}
    assert all("backward" not in name for name in left)
    with torch.no_grad():
        assert autotune.explain(model.eval(), x).graphs == 1


def test_what_is_left_to_pytorch_backward_is_explained() -> None:
    found = autotune.explain(nn.Embedding(9, 4), torch.randint(9, (3,)), training=True)
    assert [each.operator for each in found.left] == ["embedding_dense_backward.default"]
    assert not autotune.explain(nn.Linear(3, 4).requires_grad_(False), torch.randn(2, 3), training=True).left


def test_windows_of_many_elements_are_left_to_pytorch_unless_they_are_patches(graphs: list[Any]) -> None:
    train(nn.Conv2d(2, 3, 9), torch.randn(2, 2, 10, 11))
    assert not graphs
    torch._dynamo.reset()
    train(nn.Conv2d(2, 3, 9, stride=9), torch.randn(2, 2, 9, 18))
    assert len(graphs) == 2


def test_images_with_channels_last(graphs: list[Any]) -> None:
    class PoolModule(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Conv2d(3, 4, 3), nn.Linear(4, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.last(nn.functional.adaptive_avg_pool2d(torch.relu(self.first(x)), 1).flatten(1))

    model, x = PoolModule().to(memory_format=torch.channels_last), torch.randn(2, 3, 6, 6)
    train(model, x.contiguous(memory_format=torch.channels_last))
    assert model.first.weight.grad.stride() == model.first.weight.stride()


def test_normalisation_in_groups_and_over_rows(graphs: list[Any]) -> None:
    train(nn.Sequential(nn.GroupNorm(2, 4), nn.RMSNorm(6), nn.SiLU()), torch.randn(2, 4, 6))
    assert len(graphs) == 2


def test_a_batch_of_another_size(graphs: list[Any]) -> None:
    model = nn.Sequential(nn.Linear(6, 4), nn.Tanh())
    train(model, torch.randn(4, 6), torch.randn(4, 6), torch.randn(3, 6), torch.randn(2, 6))


def test_an_operator_that_graphs_do_not_have(graphs: list[Any]) -> None:
    class SortModule(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(6, 8), nn.Linear(8, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.last(torch.cumprod(torch.sort(torch.tanh(self.first(x)))[0], 1))

    train(SortModule(), torch.randn(3, 6))


def test_parameters_without_gradients(graphs: list[Any]) -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4))
    model[0].requires_grad_(False)
    train(model, torch.randn(3, 6))
    assert model[0].weight.grad is None


def test_gradients_may_be_asked_for_again_but_not_of_gradients(graphs: list[Any]) -> None:
    model, x = nn.Sequential(nn.Linear(6, 4), nn.Tanh()), torch.randn(3, 6, requires_grad=True)
    out = compile_model(model)(x).sum()
    out.backward(retain_graph=True)
    once = x.grad.clone()
    out.backward()
    torch.testing.assert_close(x.grad, 2 * once)
    (slope,) = torch.autograd.grad(compile_model(model)(x).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="does not currently support double backward"):
        slope.sum().backward()


def test_autocast_to_bfloat16(graphs: list[Any]) -> None:
    model, x = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 4)), torch.randn(3, 6)
    eager = copy.deepcopy(model)
    run = compile_model(model)
    with torch.autocast("cpu", torch.bfloat16):
        found, wanted = run(x), eager(x)
    assert found.dtype == wanted.dtype == torch.bfloat16
    for out in (found, wanted):
        out.float().square().mean().backward()
    for ours, theirs in zip(model.parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=0, atol=2e-2 * float(theirs.grad.abs().max()))


def test_the_option_is_a_truth_value() -> None:
    assert not read_options(None, None).training
    with pytest.raises(ValueError, match="`training` must be True or False, but got training=1"):
        read_options(None, {"training": 1})

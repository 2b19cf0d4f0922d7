"""`torch.compile` with our backend in training: gradients, steps of descent and states, held to eager PyTorch."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from autotune.pytorch import backend as backends  # noqa: E402
from autotune.pytorch.backend import autotune_backend  # noqa: E402
from autotune.pytorch.options import options_of  # noqa: E402


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """Nothing that Dynamo remembers, weights that are the same every time, and no graph that is left to PyTorch."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="autotune leaves")
        yield


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Graphs that were compiled, in order."""
    found: list[Any] = []
    real = backends.compile_graph

    def noted(graph: Any, options: Any) -> Any:
        found.append(graph)
        return real(graph, options)

    monkeypatch.setattr(backends, "compile_graph", noted)
    return found


def compiled(model: Any, **named: Any) -> Any:
    """The model by our backend, on one thread, in training."""
    return torch.compile(model, backend=autotune_backend, options={"threads": 1, "training": True}, **named)


def step(run: Any, model: Any, x: Any, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Loss and outputs of one step forward and backward; gradients are those of the model and of `x`."""
    model.zero_grad()
    x.grad = None
    torch.manual_seed(seed)
    out = run(x)
    loss = (out.square() * torch.linspace(0.5, 1.5, out.shape[-1])).mean()
    loss.backward()
    return loss.detach(), out.detach()


def close(found: Any, wanted: Any) -> None:
    """Equal but for 1e-4 of the largest element."""
    assert (found is None) == (wanted is None)
    if wanted is not None:
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4 * float(wanted.abs().max()) + 1e-7)


def train(model: Any, *batches: Any, rate: float = 0.1) -> tuple[Any, Any]:
    """Steps of descent, compiled and by PyTorch: losses, gradients and states are the same; both models."""
    eager, run = copy.deepcopy(model), compiled(model)
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


def evaluated(run: Any, model: Any, eager: Any, x: Any) -> None:
    """Without gradients both give the same."""
    model.eval(), eager.eval()
    with torch.no_grad():
        close(run(x), eager(x))
    model.train(), eager.train()


class Images(nn.Module):
    """Convolutions with normalisation over the batch, a shortcut and a pool."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU())
        self.pool, self.second = nn.MaxPool2d(2), nn.Conv2d(4, 4, 3, padding=1)
        self.last = nn.Linear(4, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.pool(self.first(x))
        return self.last((x + self.second(x)).mean((2, 3)))


class Words(nn.Module):
    """A layer of an encoder that drops values out, over embeddings."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(9, 8)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, activation="gelu")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(self.table(x))


def test_a_perceptron(made: list[Any]) -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 4))
    run, eager = train(model, *(torch.randn(3, 6) for _ in range(3)))
    assert len(made) == 2  # once forward and once backward, for all steps
    for _ in range(2):
        evaluated(run, model, eager, torch.randn(3, 6))
        step(run, model, torch.randn(3, 6, requires_grad=True))
        eager.load_state_dict(model.state_dict())
    assert len(made) == 3


def test_images() -> None:
    model = Images()
    run, eager = train(model, *(torch.randn(2, 3, 8, 8) for _ in range(3)))
    assert int(model.first[1].num_batches_tracked) == 3
    evaluated(run, model, eager, torch.randn(2, 3, 8, 8))


def test_words_with_dropout() -> None:
    model = Words()
    run, eager = train(model, *(torch.randint(0, 9, (2, 5)) for _ in range(2)))
    evaluated(run, model, eager, torch.randint(0, 9, (2, 5)))


def test_a_batch_of_another_size() -> None:
    model = nn.Sequential(nn.Linear(6, 4), nn.Tanh())
    train(model, torch.randn(4, 6), torch.randn(4, 6), torch.randn(3, 6), torch.randn(2, 6))


def test_an_operator_that_graphs_do_not_have() -> None:
    class Sorted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(6, 8), nn.Linear(8, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.last(torch.cumprod(torch.sort(torch.tanh(self.first(x)))[0], 1))

    train(Sorted(), torch.randn(3, 6))


def test_parameters_without_gradients() -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4))
    model[0].requires_grad_(False)
    train(model, torch.randn(3, 6))
    assert model[0].weight.grad is None


def test_gradients_may_be_asked_for_again_but_not_of_gradients() -> None:
    model, x = nn.Sequential(nn.Linear(6, 4), nn.Tanh()), torch.randn(3, 6, requires_grad=True)
    out = compiled(model)(x).sum()
    out.backward(retain_graph=True)
    once = x.grad.clone()
    out.backward()
    torch.testing.assert_close(x.grad, 2 * once)
    (slope,) = torch.autograd.grad(compiled(model)(x).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="does not currently support double backward"):
        slope.sum().backward()


def test_autocast_to_bfloat16() -> None:
    model, x = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 4)), torch.randn(3, 6)
    eager = copy.deepcopy(model)
    run = compiled(model)
    with torch.autocast("cpu", torch.bfloat16):
        found, wanted = run(x), eager(x)
    assert found.dtype == wanted.dtype == torch.bfloat16
    for out in (found, wanted):
        out.float().square().mean().backward()
    for ours, theirs in zip(model.parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=0, atol=2e-2 * float(theirs.grad.abs().max()))


def test_the_option_is_a_truth_value() -> None:
    assert not options_of(None, None).training
    with pytest.raises(ValueError, match="`training` must be True or False, but got training=1"):
        options_of(None, {"training": 1})

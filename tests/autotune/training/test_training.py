"""Training steps: the same losses, parameters and buffers as PyTorch's, saved and resumed bit for bit."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from torch import nn

import autotune
from autotune.graph.errors import GraphError, UnsupportedModelError
from autotune.training.executable import TrainingExecutable
from autotune.training.optimisers import SGD, Adam, AdamW, Optimiser
from costmodel.models.attention import compute_loss, make_network
from targets.base import BuildError
from targets.manifest import ExecutableError
from tests.autotune.training.eager import step_eagerly

pytestmark = pytest.mark.usefixtures("kernel_cache")

Case = tuple[nn.Module, torch.Tensor, torch.Tensor]


def perceptron() -> Case:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(20, 32), nn.GELU(), nn.Linear(32, 5))
    return module, torch.randn(8, 20), torch.randint(0, 5, (8,))


def convolutions() -> Case:
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, stride=2, padding=1, groups=8),
        nn.SiLU(),
        nn.MaxPool2d(2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 5),
    )
    return module, torch.randn(4, 3, 16, 16), torch.randint(0, 5, (4,))


class Tokens(nn.Module):
    """An embedding, attention, and a product with the embedding's table."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(11, 16)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return (self.layer(self.table(tokens)) @ self.table.weight.T).flatten(0, 1)


def tokens() -> Case:
    torch.manual_seed(0)
    return Tokens(), torch.randint(0, 11, (3, 6)), torch.randint(0, 11, (18,))


OPTIMISERS: list[tuple[Optimiser, Callable[[Any], torch.optim.Optimizer]]] = [
    (
        SGD(0.1, momentum=0.9, weight_decay=1e-3, nesterov=True),
        lambda p: torch.optim.SGD(p, 0.1, 0.9, weight_decay=1e-3, nesterov=True),
    ),
    (Adam(1e-2, weight_decay=1e-2), lambda p: torch.optim.Adam(p, 1e-2, weight_decay=1e-2)),
    (AdamW(1e-2), lambda p: torch.optim.AdamW(p, 1e-2)),
]


def compare(case: Case, ours: Optimiser, theirs: Callable[[Any], torch.optim.Optimizer], rtol: float = 1e-4) -> None:
    module, x, y = case
    step = autotune.compile_training(module, x, y, "cross_entropy", ours, threads=1)
    module.train()
    optimiser = theirs(module.parameters())
    for _ in range(4):
        loss = step_eagerly(module, optimiser, (x,), y)
        assert step.step(y, x) == pytest.approx(loss, rel=rtol)
    for name, parameter in module.named_parameters():
        np.testing.assert_allclose(step.parameters[name], parameter.detach(), rtol=1e-3, atol=1e-4, err_msg=name)
    for name, buffer in step.buffers.items():
        np.testing.assert_allclose(buffer, dict(module.named_buffers())[name], rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.parametrize(("ours", "theirs"), OPTIMISERS, ids=lambda o: getattr(o, "name", ""))
def test_a_step_is_that_of_pytorch(ours: Optimiser, theirs: Callable[[Any], torch.optim.Optimizer]) -> None:
    compare(perceptron(), ours, theirs)


@pytest.mark.parametrize("make", [convolutions, tokens])
def test_networks_train_as_in_pytorch(make: Callable[[], Case]) -> None:
    compare(make(), *OPTIMISERS[0])


def test_a_network_with_a_loss_on_pairs_trains_as_in_pytorch() -> None:
    """The cost model `attention`: masked attention over statements, and a loss that ranks programs."""
    torch.manual_seed(0)
    network = make_network(6, 8)
    nn.init.normal_(network.last.weight)
    x, used, throughput = torch.randn(10, 3, 6), torch.rand(10, 3) > 0.2, torch.rand(10)

    def loss(scores: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        value: torch.Tensor = compute_loss(scores, targets[0], targets[1])
        return value

    targets = torch.stack([throughput.log2(), throughput])
    step = autotune.compile_training(network, (x, used), targets, loss, SGD(0.01), threads=1)
    optimiser = torch.optim.SGD(network.parameters(), 0.01)
    for _ in range(2):
        value = step_eagerly(network, optimiser, (x, used), targets, loss)
        assert step.step(targets, x, used) == pytest.approx(value, rel=1e-5)
    for name, parameter in network.named_parameters():
        np.testing.assert_allclose(step.parameters[name], parameter.detach(), rtol=1e-4, atol=1e-5, err_msg=name)


def test_a_model_of_onnx_trains_as_in_pytorch(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module, x, y = nn.Sequential(nn.Linear(6, 7), nn.Tanh(), nn.Linear(7, 3)), torch.randn(5, 6), torch.randn(5, 3)
    arrays = {name: value.detach().numpy().copy() for name, value in module.state_dict().items()}
    nodes = [
        onnx.helper.make_node("Gemm", ["x", "0.weight", "0.bias"], ["a"], transB=1),
        onnx.helper.make_node("Tanh", ["a"], ["b"]),
        onnx.helper.make_node("Gemm", ["b", "2.weight", "2.bias"], ["y"], transB=1),
    ]
    kind = onnx.TensorProto.FLOAT
    ends = [onnx.helper.make_tensor_value_info(name, kind, shape) for name, shape in (("x", [5, 6]), ("y", [5, 3]))]
    weights = [onnx.numpy_helper.from_array(array, name) for name, array in arrays.items()]
    model = onnx.helper.make_model(onnx.helper.make_graph(nodes, "net", ends[:1], ends[1:], weights))
    onnx.save(model, tmp_path / "net.onnx")
    step = autotune.compile_training(tmp_path / "net.onnx", loss="mse", optimiser=SGD(0.1), threads=1)
    optimiser = torch.optim.SGD(module.parameters(), 0.1)
    for _ in range(4):
        loss = step_eagerly(module, optimiser, (x,), y, nn.functional.mse_loss)
        assert step.step(y, x) == pytest.approx(loss, rel=1e-4)


def test_dropout_is_drawn_anew_in_each_step_and_again_after_a_resumption(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module, x, y = nn.Sequential(nn.Dropout(0.25), nn.Linear(400, 1)), torch.ones(3, 400), torch.zeros(3, 1)
    nn.init.constant_(module[1].weight, 1.0)
    nn.init.zeros_(module[1].bias)

    def sums(output: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return (output - targets).sum()

    step = autotune.compile_training(module, x, y, sums, SGD(0.0), threads=1)
    losses = [step.step(y, x) for _ in range(20)]
    # A loss is the number of 1,200 elements that are left over 0.75: 1,200 on the mean, with a deviation of 20.
    assert len(set(losses)) > 10 and np.mean(losses) == pytest.approx(1200, abs=20) and 5 < np.std(losses) < 50
    again = autotune.compile_training(module, x, y, sums, SGD(0.0), threads=2)
    assert [again.step(y, x) for _ in range(9)] == pytest.approx(losses[:9], rel=1e-6)
    again.save(tmp_path)
    loaded = autotune.load_training(tmp_path)
    assert [loaded.step(y, x) for _ in range(3)] == pytest.approx(losses[9:12], rel=1e-6)
    other = autotune.compile_training(module, x, y, sums, SGD(0.0), threads=1, seed=1)
    assert [other.step(y, x) for _ in range(9)] != pytest.approx(losses[:9], rel=1e-6)
    other._arrays["step"][0] = 2**24  # float32 has no odd numbers from here on
    assert len({other.step(y, x) for _ in range(8)}) > 5


def test_an_update_takes_the_mean_gradient_of_its_batches() -> None:
    module, x, y = perceptron()
    step = autotune.compile_training(module, x[:4], y[:4], optimiser=Adam(), threads=1, batches=2)
    optimiser = torch.optim.Adam(module.parameters())
    for _ in range(3):
        step_eagerly(module, optimiser, (x,), y)
        before = step.parameters["0.weight"]
        step.step(y[:4], x[:4])
        np.testing.assert_array_equal(step.parameters["0.weight"], before)
        step.step(y[4:], x[4:])
    for name, parameter in module.named_parameters():
        np.testing.assert_allclose(step.parameters[name], parameter.detach(), rtol=1e-3, atol=1e-4, err_msg=name)
    step._arrays["step"][0] = 2**24  # float32 holds the even integers from here on
    changed = []
    for _ in range(4):
        before = step.parameters["0.weight"]
        step.step(y[:4], x[:4])
        changed.append(bool((step.parameters["0.weight"] != before).any()))
    assert changed == [False, True, False, True]
    assert step.steps == 2**24 + 4


def test_targets_of_pixels_may_be_ignored_and_others_must_be_classes() -> None:
    torch.manual_seed(0)
    module, x, y = nn.Conv2d(3, 4, 1), torch.randn(2, 3, 5, 5), torch.randint(0, 4, (2, 5, 5))
    y[0, :3] = -100
    compare((module, x, y), *OPTIMISERS[0])
    step = autotune.compile_training(module, x, y, threads=1)
    y[0, 0, 0] = 4
    with pytest.raises(ExecutableError, match=r"^targets must be classes from 0 to 3, or -100, but got 4$"):
        step.step(y, x)
    assert step.steps == 0


@pytest.fixture(scope="module")
def small() -> TrainingExecutable:
    module, x, y = perceptron()
    return autotune.compile_training(module, x, y, "cross_entropy", Adam(), threads=1)


def test_a_saved_step_continues_bit_for_bit(small: TrainingExecutable, tmp_path: Path) -> None:
    _, x, y = perceptron()
    small.step(y, x)
    small.save(tmp_path)
    loaded = autotune.load_training(tmp_path)
    assert loaded.steps == small.steps and loaded.optimiser == small.optimiser
    for _ in range(3):
        assert loaded.step(y, x) == small.step(y, x)
    for name, array in small.states.items():
        np.testing.assert_array_equal(loaded.states[name], array)
    loaded.save(tmp_path)
    assert [file.name for file in tmp_path.glob("states-*")] == [f"states-{loaded.steps}"]


def test_a_step_takes_arrays_by_name_and_a_learning_rate(small: TrainingExecutable) -> None:
    _, x, y = perceptron()
    names = [parameter.name for parameter in small.inputs]
    before = small.parameters
    small.step(dict(zip(names, (y.numpy(), x.numpy()), strict=True)), learning_rate=0.0)
    for name, array in small.parameters.items():
        np.testing.assert_array_equal(array, before[name])
    with pytest.raises(ExecutableError, match="must be"):
        small.step(y, x[:4])


def test_a_folder_of_another_kind_is_refused(small: TrainingExecutable, tmp_path: Path) -> None:
    with pytest.raises(ExecutableError, match=r"a training step must have training\.json, but: No such file"):
        autotune.load_training(tmp_path)
    small.save(tmp_path)
    file = tmp_path / "training.json"
    document = json.loads(file.read_text())
    changes: list[tuple[dict[str, Any], str]] = [
        ({"format": "autotune.training/1"}, r"`format` must be autotune\.training/2, but got autotune\.training/1"),
        ({"network": "0" * 64}, "must be of the network beside it, but is of another one"),
        ({"states": {**document["states"], "sha256": "0" * 64}}, "states"),
        ({"optimiser": {"name": "lion"}}, "must be described in full, but: 'lion'"),
    ]
    for change, message in changes:
        file.write_text(json.dumps({**copy.deepcopy(document), **change}))
        with pytest.raises(ExecutableError, match=message):
            autotune.load_training(tmp_path)
    file.write_text("{")
    with pytest.raises(ExecutableError, match="must be described as JSON"):
        autotune.load_training(tmp_path)


def test_what_cannot_be_trained_is_refused() -> None:
    module, x, y = perceptron()
    with pytest.raises(ValueError, match=r"^`loss` must be one of cross_entropy, mse, but got loss='hinge'"):
        autotune.compile_training(module, x, y, "hinge")
    with pytest.raises(ValueError, match=r"^`optimiser` must be one of sgd, adam, adamw, but got optimiser='lion'"):
        autotune.compile_training(module, x, y, "mse", "lion")
    with pytest.raises(ValueError, match=r"^`batches` must be at least 1, but got batches=0$"):
        autotune.compile_training(module, x, y, batches=0)
    with pytest.raises(ValueError, match=r"^`learning_rate` must be finite and not negative, but got learning_rate=-1"):
        SGD(-1.0)
    with pytest.raises(GraphError, match=r"^parameters must be float32, but got 0\.weight: float16\[32,20\]$"):
        autotune.compile_training(module.half(), x.half(), y)
    with pytest.raises(UnsupportedModelError, match="`model` must be a module that torch.export reads, but"):
        autotune.compile_training(nn.Linear(3, 3), x, y)
    with pytest.raises(TypeError, match="`example_inputs` and `targets` must be given for a module"):
        autotune.compile_training(module, x)
    with pytest.raises(TypeError, match="must come with a module of PyTorch"):
        autotune.compile_training("net.onnx", x, y)


class RunningSum(nn.Module):
    """A layer with a sum of means that the kernel of a reduction would replace."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(20, 5)
        self.register_buffer("mean", torch.zeros(20))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.mean.copy_(self.mean + x.mean(0))
        return self.layer(x - self.mean)


def test_a_buffer_that_a_reduction_replaces_trains_as_in_pytorch() -> None:
    torch.manual_seed(0)
    case = (RunningSum(), torch.randn(8, 20), torch.randint(0, 5, (8,)))
    step = autotune.compile_training(*case, threads=1)
    titles = [each["title"] for each in step.executable.manifest["steps"]]
    assert "copy" in titles and "reduce+add" in titles
    compare(case, *OPTIMISERS[0])


class Buffers(nn.Module):
    """Buffers that a step replaces as a function says.

    Args:
        replace: function of the module, rows (8, 8) and weights (8, 8) that replaces buffers and returns rows.
    """

    def __init__(self, replace: Callable[[Any, torch.Tensor, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.replace = replace
        self.register_buffer("u", torch.randn(8, 8))
        self.register_buffer("v", torch.randn(8, 8))
        self.register_buffer("w", torch.randn(8))
        self.register_buffer("fixed", torch.randn(8, 8) / 3)

    def forward(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return self.replace(self, x, weight)


class AllBuffers(nn.Module):
    """A layer that reads what buffers are replaced by, in turn."""

    def __init__(self, *replacements: Callable[[Any, torch.Tensor, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.all = nn.ModuleList(map(Buffers, replacements))
        self.layer = nn.Linear(8, 5)
        self.weight = nn.Parameter(torch.randn(8, 8) / 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x + sum(each(x, self.weight) for each in self.all))


def swap(own: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    old = own.u.clone()
    own.u.copy_(own.v)
    own.v.copy_(old)
    return x * own.u[0]


def cross(own: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    a, b = own.u * 0.5 + 1, own.v * 0.5 - 1
    own.u.copy_(b)
    own.v.copy_(a)
    return x


def mix(own: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    u, v = own.u.clone(), own.v.clone()
    own.u.copy_(v.T @ own.fixed)
    own.v.copy_(own.fixed @ u + v)
    return x @ own.v


def multiply(own: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    own.w.copy_(own.fixed @ own.w)
    return x * own.w


def multiply_by_trained(own: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    new = weight @ own.w.clone()
    own.w.copy_(new.detach())
    return x * new


def transpose(own: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    own.u.t().copy_(own.u @ own.fixed)
    own.v.copy_(own.v.reshape(4, 16).t().reshape(8, 8))
    return x @ own.u


def read_both(own: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    old = own.u.clone()
    own.u.copy_(own.u * 0.5 + x.mean(0))
    own.w.copy_((old @ own.u).mean(0))
    return x @ (own.u - old) + old @ own.w


def shift(own: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    own.u.copy_(torch.cat([own.u[1:], x.mean(0, keepdim=True)]))
    own.v.copy_(torch.cat([own.v[:, 3:], own.v[:, :3]], 1))
    return x @ own.u


def test_buffers_that_depend_on_old_and_new_ones_train_as_in_pytorch() -> None:
    torch.manual_seed(0)
    module = AllBuffers(swap, cross, mix, multiply, multiply_by_trained, transpose, read_both, shift)
    x, y = torch.randn(8, 8), torch.randint(0, 5, (8,))
    step = autotune.compile_training(module, x, y, optimiser=SGD(0.01), threads=1)
    optimiser = torch.optim.SGD(module.parameters(), 0.01)
    for _ in range(3):
        loss = step_eagerly(module, optimiser, (x,), y)
        assert step.step(y, x) == pytest.approx(loss, rel=1e-4)
    for name, parameter in module.named_parameters():
        np.testing.assert_allclose(step.parameters[name], parameter.detach(), rtol=1e-3, atol=1e-4, err_msg=name)
    assert len(step.buffers) >= 13
    for name, buffer in step.buffers.items():
        np.testing.assert_allclose(buffer, module.get_buffer(name), rtol=1e-4, atol=1e-5, err_msg=name)


def test_an_interrupted_step_counts_if_it_ran(monkeypatch: pytest.MonkeyPatch) -> None:
    module, x, y = perceptron()
    step, same = (autotune.compile_training(module, x, y, optimiser=Adam(), threads=1) for _ in range(2))
    run = step.executable.infer_at

    def run_and_interrupt(addresses: Any) -> None:
        run(addresses)
        raise KeyboardInterrupt  # as Python does where a signal came while native code ran

    monkeypatch.setattr(step.executable, "infer_at", run_and_interrupt)
    with pytest.raises(KeyboardInterrupt):
        step.step(y, x)
    monkeypatch.undo()
    same.step(y, x)
    assert step.steps == same.steps == 1
    assert step.step(y, x) == same.step(y, x)
    for name, array in same.states.items():
        np.testing.assert_array_equal(step.states[name], array)
    with pytest.raises(ExecutableError):
        step.step(y[:3], x)
    assert step.steps == 2 and step.step(y, x) == same.step(y, x)


def test_parameters_are_read_where_they_lie_and_states_are_there_once() -> None:
    module, x, y = convolutions()
    step = autotune.compile_training(module, x, y, optimiser=SGD(0.1, momentum=0.9), threads=1)
    titles = [each["title"] for each in step.executable.manifest["steps"]]
    assert not any(title.startswith("slice") for title in titles)
    sizes = [parameter.numel() + -parameter.numel() % 16 for parameter in module.parameters()]
    buffers = sum(array.nbytes for array in step.buffers.values())
    assert step.state_bytes == 2 * 4 * sum(sizes) + buffers + 8
    first = dict(module.named_parameters())
    for name, array in step.parameters.items():
        np.testing.assert_array_equal(array, first[name].detach(), err_msg=name)


def test_values_that_are_computed_again_change_no_bit(tmp_path: Path) -> None:
    torch.manual_seed(0)
    blocks = [[nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.SiLU(), nn.Dropout(0.2)] for _ in range(2)]
    layers = [nn.Conv2d(3, 8, 1), *(layer for block in blocks for layer in block)]
    module = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5))
    x, y = torch.randn(4, 3, 16, 16), torch.randint(0, 5, (4,))
    plain = autotune.compile_training(module, x, y, optimiser=Adam(1e-2), threads=1)
    arena = plain.executable.manifest["memory"]["arena_bytes"]
    again = autotune.compile_training(module, x, y, optimiser=Adam(1e-2), threads=1, max_arena_mb=0.85 * arena / 1e6)
    assert again.executable.manifest["memory"]["arena_bytes"] <= 0.85 * arena
    assert len(again.executable.manifest["steps"]) > len(plain.executable.manifest["steps"])
    assert [again.step(y, x) for _ in range(2)] == [plain.step(y, x) for _ in range(2)]
    again.save(tmp_path)
    loaded = autotune.load_training(tmp_path)
    assert [loaded.step(y, x) for _ in range(2)] == [plain.step(y, x) for _ in range(2)]
    for name, array in plain.states.items():
        np.testing.assert_array_equal(loaded.states[name], array, err_msg=name)
    with pytest.raises(BuildError, match=r"^`max_arena_mb` must be at least \S+ for Sequential, but got") as error:
        autotune.compile_training(module, x, y, optimiser=Adam(1e-2), threads=1, max_arena_mb=1e-3)
    least = float(str(error.value).split()[5])
    smallest = autotune.compile_training(module, x, y, optimiser=Adam(1e-2), threads=1, max_arena_mb=least)
    assert smallest.executable.manifest["memory"]["arena_bytes"] <= least * 1e6
    for wrong in (-1, float("inf"), float("nan")):
        with pytest.raises(
            ValueError, match=f"^`max_arena_mb` must be positive and finite, but got max_arena_mb={wrong}$"
        ):
            autotune.compile_training(module, x, y, max_arena_mb=wrong)

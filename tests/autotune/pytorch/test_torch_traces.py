"""Graphs that AOTAutograd made are kept: what comes out of the cache computes what PyTorch does, whatever changed."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from autotune.pytorch import backend as backends
from autotune.pytorch.backend import autotune_backend
from autotune.pytorch.plain_graphs import NotPlain, aten_data, aten_module, function_name
from tests.autotune.graph.torch_models import Counting


class TraceCounter:
    """A counter of the graphs that AOTAutograd has traced."""

    times = 0


@pytest.fixture(autouse=True)
def trace_counter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TraceCounter:
    """A cache of the test's own, nothing that Dynamo remembers, and a count of what is traced."""
    monkeypatch.setenv("AUTOTUNE_CACHE", str(tmp_path / "cache"))
    torch._dynamo.reset()
    torch.manual_seed(0)
    found, real = TraceCounter(), backends.aot_autograd

    def count_trace(**how: Any) -> Any:
        found.times += 1
        return real(**how)

    monkeypatch.setattr(backends, "aot_autograd", count_trace)
    return found


def check(model: Any, *inputs: Any, **options: Any) -> Any:
    """Compiles as a new process would; outputs are those of PyTorch. The compiled model."""
    torch._dynamo.reset()
    run = torch.compile(model.eval(), backend=autotune_backend, dynamic=False, options={"threads": 1, **options})
    agree(run, model, *inputs)
    return run


def agree(run: Any, model: Any, *inputs: Any) -> None:
    """Outputs of a compiled model and of PyTorch are the same, and so are their strides."""
    with torch.no_grad():
        found, wanted = run(*inputs), model(*inputs)
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5, check_stride=True)


def block(width: int = 8, **linear: Any) -> Any:
    """Two products and what is between them."""
    return nn.Sequential(nn.Linear(6, width), nn.GELU(), nn.LayerNorm(width), nn.Linear(width, 4, **linear))


def test_a_second_start_traces_nothing_and_has_its_own_weights(trace_counter: TraceCounter) -> None:
    x = torch.randn(3, 6)
    check(block(), x)
    assert trace_counter.times == 1
    other = block()
    run = check(other, x)
    assert trace_counter.times == 1
    with torch.no_grad():
        other[0].weight.mul_(2)
        agree(run, other, x)
        other.load_state_dict(block().state_dict())
        agree(run, other, x)
    assert trace_counter.times == 1


def test_folded_statistics_are_those_of_the_model_at_hand(trace_counter: TraceCounter) -> None:
    def network() -> Any:
        found = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU())
        for name in ("running_mean", "running_var", "weight", "bias"):
            getattr(found[1], name).data = torch.rand(8) + 0.5
        return found

    x = torch.randn(1, 3, 6, 6)
    for _ in range(2):
        check(network(), x)
    assert trace_counter.times == 1


class TiedModule(nn.Module):
    """One table that is read and multiplied with, or two."""

    def __init__(self, tied: bool) -> None:
        super().__init__()
        self.table = nn.Embedding(10, 6)
        self.last = nn.Linear(6, 10, bias=False)
        if tied:
            self.last.weight = self.table.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.last(torch.tanh(self.table(ids)))


def test_shared_parameters(trace_counter: TraceCounter) -> None:
    ids = torch.arange(6).reshape(2, 3)
    for tied in (True, False, True):
        check(TiedModule(tied), ids)
    assert trace_counter.times == 2


class ScaleModule(nn.Module):
    """A function with a number and a tensor of its own."""

    def __init__(self, number: float) -> None:
        super().__init__()
        self.number, self.other = number, torch.tensor([1.0, 2.0, number])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x * self.number + self.other + torch.tensor([0.5, self.number, 1.5]), -1)


def test_numbers_and_tensors_of_the_code_are_told_apart(trace_counter: TraceCounter) -> None:
    x = torch.randn(2, 3)
    for number in (2.0, 3.0, 2.0):
        check(ScaleModule(number), x)
    assert trace_counter.times == 2


def test_types_strides_and_shapes_are_told_apart(trace_counter: TraceCounter) -> None:
    model = nn.Sequential(nn.ReLU(), nn.Flatten(1))
    given = [
        torch.randn(2, 3, 4),
        torch.randn(2, 4, 3),
        torch.randn(2, 4, 3).transpose(1, 2),
        torch.randint(-5, 5, (2, 3, 4)),
    ]
    for x in (*given, *given):
        check(model, x)
    assert trace_counter.times == len(given)


@pytest.mark.parametrize(
    "change",
    [
        lambda patch: patch.setattr(torch, "__version__", "2.13.99"),
        lambda patch: patch.setattr(torch.version, "git_version", "another"),
        lambda patch: patch.setattr("autotune.pytorch.traces.code_digest", lambda: "another"),
        lambda patch: patch.setattr(torch.backends.cuda, "flash_sdp_enabled", lambda: False),
    ],
    ids=["version", "commit", "code", "attention"],
)
def test_versions_and_switches_are_told_apart(
    trace_counter: TraceCounter, monkeypatch: pytest.MonkeyPatch, change: Any
) -> None:
    x = torch.randn(2, 3)
    check(nn.ReLU(), x)
    change(monkeypatch)
    check(nn.ReLU(), x)
    assert trace_counter.times == 2


def test_settings_of_aotautograd_are_told_apart(trace_counter: TraceCounter) -> None:
    x = torch.randn(2, 3)
    check(nn.ReLU(), x)
    with torch._functorch.config.patch(activation_memory_budget=0.5):
        check(nn.ReLU(), x)
    assert trace_counter.times == 2


def test_options_take_part_behind_the_trace(trace_counter: TraceCounter) -> None:
    model, x = nn.Linear(6, 8), torch.randn(3, 6)
    check(model, x)
    torch._dynamo.reset()
    run = torch.compile(model, backend=autotune_backend, options={"threads": 1, "precision": "bfloat16"})
    with torch.no_grad():
        assert not torch.equal(run(x), model(x))
        torch.testing.assert_close(run(x), model(x), rtol=3e-2, atol=3e-2)
    assert trace_counter.times == 1


class Viewing(nn.Module):
    """A module that returns a view of its input and the input itself beside a value."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.view(-1), torch.relu(x), x


@pytest.mark.parametrize("model", [Counting(), Viewing()], ids=["writes", "views"])
def test_what_takes_code_around_the_graph_is_not_kept(trace_counter: TraceCounter, model: Any) -> None:
    x = torch.randn(3, 4)
    for times in (1, 2):
        torch._dynamo.reset()
        run = torch.compile(model, backend=autotune_backend, options={"threads": 1})
        with torch.no_grad():
            found = run(x)
        assert trace_counter.times == times
        if isinstance(model, Counting):
            torch.testing.assert_close(found, torch.relu(x) * times)
        else:
            assert found[0].data_ptr() == x.data_ptr() and found[2] is x


def test_operators_that_are_left_to_pytorch_are_kept_with_the_graph(trace_counter: TraceCounter) -> None:
    class SortModule(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            values, places = torch.sort(torch.relu(x) + 1, descending=True)
            return values * 2, places, values.sum()

    for _ in range(2):
        check(SortModule(), torch.randn(3, 5))
    assert trace_counter.times == 1


def test_a_damaged_entry_is_traced_again(
    trace_counter: TraceCounter, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model, x = block(), torch.randn(3, 6)
    check(model, x)
    for times, damage in enumerate(
        (lambda data: data[: len(data) // 2], lambda data: b"", lambda data: data[:-1] + b"?")
    ):
        for path in (tmp_path / "cache").glob("??/*"):
            path.write_bytes(damage(path.read_bytes()))
        with caplog.at_level(logging.WARNING):
            check(model, x)
        assert trace_counter.times == times + 2
        assert "damaged" in caplog.text


def test_nothing_is_kept_without_a_cache(trace_counter: TraceCounter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTUNE_CACHE", "none")
    for _ in range(2):
        check(nn.ReLU(), torch.randn(3))
    assert trace_counter.times == 2


def test_gradients_and_autocast_are_traced(trace_counter: TraceCounter) -> None:
    x, model = torch.randn(3, 6), nn.Linear(6, 8)
    for _ in range(2):
        torch._dynamo.reset()
        run = torch.compile(model, backend=autotune_backend, options={"threads": 1})
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            assert run(x).dtype == torch.bfloat16
    assert trace_counter.times == 2
    for _ in range(2):
        torch._dynamo.reset()
        torch.compile(nn.ReLU(), backend=autotune_backend, options={"threads": 1})(x)
    assert trace_counter.times == 4


SCRIPT = """
import sys
import torch
from autotune.pytorch import backend

seed, times, traced = int(sys.argv[1]), [], backend.aot_autograd

def count_trace(**how):
    times.append(1)
    return traced(**how)

backend.aot_autograd = count_trace
torch.manual_seed(seed)
model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.GELU(), torch.nn.LayerNorm(8), torch.nn.Linear(8, 4)).eval()
x = torch.randn(3, 6)
run = torch.compile(model, backend=backend.autotune_backend, dynamic=False, options={"threads": 1})
with torch.no_grad():
    torch.testing.assert_close(run(x), model(x), rtol=1e-5, atol=1e-5)
print(len(times))
"""


def test_another_process_with_other_weights() -> None:
    """Both processes are fresh: what other tests leave in PyTorch's switches is part of an entry's key."""
    for seed, wanted in ((0, "1"), (7, "0")):
        command = [sys.executable, "-c", SCRIPT, str(seed)]
        found = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[3])
        assert (found.returncode, found.stdout.strip()) == (0, wanted), found.stderr


def test_a_graph_comes_back_as_it_was() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> Any:
        parts = torch.split(x.to(torch.bfloat16), [1, 2], 1)
        return parts[1].float() * float("inf"), y[None, ..., 1:], torch.full((2,), 0.1, dtype=torch.float64)

    from torch.fx.experimental.proxy_tensor import make_fx

    module = make_fx(function, tracing_mode="fake")(torch.randn(2, 3), torch.randn(3, 2).t())
    again = aten_module(aten_data(module))
    assert str(again.graph) == str(module.graph)
    assert aten_data(again) == aten_data(module)
    given = torch.randn(2, 3), torch.randn(3, 2).t()
    torch.testing.assert_close(again(*given), module(*given))


class EmptyStateModule(nn.Module):
    """Rows behind those of a state that has none yet, as caches of keys begin."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(torch.cat([torch.tensor([], dtype=x.dtype).view(0, 6), x]))


def test_tensors_of_no_element(trace_counter: TraceCounter) -> None:
    for _ in range(2):
        check(EmptyStateModule(), torch.randn(3, 6))
    assert trace_counter.times == 1


def test_what_is_not_plain_is_refused() -> None:
    def mine(x: torch.Tensor) -> torch.Tensor:
        return x

    with pytest.raises(NotPlain, match="functions must be PyTorch's, but got "):
        function_name(mine)
    assert function_name(torch.relu) == "torch.relu"
    assert function_name(torch.nn.functional.gelu) == "torch._C._nn.gelu"
    graph = torch.fx.symbolic_trace(lambda x: torch.relu(x))
    with pytest.raises(NotPlain, match="operators must be ATen's, but got "):
        aten_data(graph)

"""Graphs that Dynamo traced for any shape, compiled once for a range of sizes: when, how far, and when not."""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from autotune.compiler.executable.shapes import FIXED, ShapeSet
from autotune.pytorch import backend
from autotune.pytorch.backend import autotune_backend
from tests.autotune.pytorch.noted_graphs import noted_graphs

pytestmark = pytest.mark.usefixtures("kernel_cache")

SizeSpans = list[dict[str, tuple[int, int]]]


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """Clears Dynamo's memory, seeds the weights, and fails on graphs that autotune leaves to PyTorch."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.filterwarnings("error", message="autotune leaves")
        yield


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> SizeSpans:
    """Sizes that graphs are compiled for from here on, in order."""
    found: SizeSpans = []
    real = backend.compile_graph

    def note_sizes(graph: Any, options: Any, shapes: ShapeSet = FIXED) -> Any:
        if shapes.sizes:
            found.append(dict(shapes.sizes))
        return real(graph, options, shapes)

    monkeypatch.setattr(backend, "compile_graph", note_sizes)
    return found


@pytest.fixture
def each(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Graphs that are compiled for one shape, in order."""
    return noted_graphs(monkeypatch)


class Block(nn.Module):
    """Causal attention with positions."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.inside, self.out = nn.LayerNorm(16), nn.Linear(16, 48), nn.Linear(16, 16)
        self.positions = nn.Embedding(64, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        x = x + self.positions(torch.arange(length))
        q, k, v = self.inside(self.norm(x)).view(batch, length, 3, 2, 8).permute(2, 0, 3, 1, 4)
        found = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.out(found.transpose(1, 2).reshape(batch, length, 16))


def compile_model(model: Any, **options: Any) -> Any:
    return torch.compile(model, backend=autotune_backend, dynamic=True, options={"threads": 1, "sizes": 16, **options})


def check(run: Any, model: Any, *inputs: Any) -> None:
    """Outputs are those of PyTorch, in its layout."""
    found, wanted = run(*inputs), model(*inputs)
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
    assert found.stride() == wanted.stride()


def test_all_batches_and_lengths_are_one_executable(spans: SizeSpans, each: list[Any]) -> None:
    model = Block().eval()
    run = compile_model(model)
    for batch, length in ((2, 5), (3, 16), (16, 2), (7, 11), (2, 5)):
        check(run, model, torch.randn(batch, length, 16))
    assert [sorted(found.values()) for found in spans] == [[(2, 16), (2, 16)]] and not each


def test_a_larger_size_is_compiled_for_up_to_the_next_power_of_two(spans: SizeSpans, each: list[Any]) -> None:
    model = nn.Linear(4, 6).eval()
    run = compile_model(model)
    for batch in (3, 16, 17, 31, 5, 64):
        check(run, model, torch.randn(batch, 4))
    assert [list(found.values()) for found in spans] == [[(2, 16)], [(2, 32)], [(2, 128)]] and not each


def test_bounds_that_are_marked_hold(spans: SizeSpans) -> None:
    model = nn.Linear(4, 6).eval()
    run = torch.compile(model, backend=autotune_backend, options={"threads": 1})
    for batch in (5, 9):
        x = torch.randn(batch, 4)
        torch._dynamo.mark_dynamic(x, 0, min=3, max=40)
        check(run, model, x)
    assert [list(found.values()) for found in spans] == [[(3, 40)]]


def test_changed_parameters_are_compiled_anew_once(spans: SizeSpans) -> None:
    model = nn.Linear(4, 6).eval()
    run = compile_model(model)
    for _ in range(2):
        for batch in (3, 9):
            check(run, model, torch.randn(batch, 4))
        model.weight.mul_(2)
    assert len(spans) == 2


def test_trials_are_measured_where_ranges_begin(spans: SizeSpans) -> None:
    model = nn.Linear(4, 6).eval()
    run = compile_model(model, trials=4, sizes=4)
    for batch in (2, 3, 4):
        check(run, model, torch.randn(batch, 4))
    assert len(spans) == 1


@pytest.mark.parametrize(
    ("model", "shapes", "why"),
    [
        (nn.Conv1d(3, 4, 3, stride=2), [(2, 3, 9), (3, 3, 14)], "at all sizes|must follow from the sizes"),
        (lambda x: (torch.relu(x), x.shape[0])[0] * x.shape[0], [(3, 4), (5, 4)], "at all sizes"),
        (
            lambda x: torch.relu(x).transpose(0, 1),
            [(3, 4), (5, 6)],
            "outputs of a graph of open sizes must be computed tensors",
        ),
    ],
)
def test_what_is_not_one_graph_is_compiled_for_each_shape(
    model: Any, shapes: list[tuple[int, ...]], why: str, each: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    run = compile_model(model)
    with caplog.at_level(logging.INFO, logger="autotune.pytorch.program"):
        for shape in shapes:
            check(run, model, torch.randn(shape))
    said = [r.getMessage() for r in caplog.records if "compiled for each shape" in r.getMessage()]
    assert len(said) == 1 and len(each) == len(shapes)
    assert re.search(why, said[0])


@pytest.mark.parametrize("sizes", [-1, 1.5, True, None])
def test_a_number_of_sizes_that_is_none_is_refused(sizes: Any) -> None:
    with pytest.raises(Exception, match="`sizes` must be a whole number of at least 0"):
        compile_model(nn.ReLU(), sizes=sizes)(torch.randn(3))

"""Recurrent layers of PyTorch: read as loops, and compiled as such."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

import autotune
from autotune.compiler.modes import precision_mode
from autotune.compiler.options import CompileOptions
from autotune.compiler.pipeline import make_pipeline
from autotune.graph.errors import UnsupportedModelError
from autotune.graph.evaluate import evaluate
from autotune.graph.frontends.aten import import_exported
from autotune.graph.ir import Graph
from autotune.graph.loops import list_loops
from targets import registry

pytestmark = [
    pytest.mark.filterwarnings("ignore:The tensor attributes self.layers:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*is_leaf:FutureWarning"),
]


def lower_graph(graph: Graph, target: str, precision: str = "float32") -> Graph:
    return make_pipeline(CompileOptions(registry.get(target), precision=precision_mode(precision))).run(graph).graph


class Layers(torch.nn.Module):
    """Recurrent layers, and all that they give."""

    def __init__(self, kind: str, **options: Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = getattr(torch.nn, kind)(6, 8, **options)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y, last = self.layers(x)
        return (y, *last) if isinstance(last, tuple) else (y, last)


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(3, 11, 6, generator=torch.Generator().manual_seed(1))


def import_module(module: torch.nn.Module, x: torch.Tensor) -> Graph:
    return import_exported(torch.export.export(module, (x,)))


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("LSTM", {"num_layers": 2, "bidirectional": True, "batch_first": True}),
        ("GRU", {"bidirectional": True, "bias": False}),
        ("RNN", {"num_layers": 2, "nonlinearity": "relu", "batch_first": True}),
    ],
)
def test_exported_layers_are_loops(kind: str, options: dict[str, Any], x: torch.Tensor) -> None:
    module = Layers(kind, **options).eval()
    graph = import_module(module, x)
    directions = (1 + options.get("bidirectional", False)) * options.get("num_layers", 1)
    assert len(list_loops(graph)) == directions
    values = evaluate(graph, {name: x.numpy() for name in graph.inputs})
    with torch.no_grad():
        wanted = module(x)
    for name, tensor in zip(graph.outputs, wanted, strict=True):
        np.testing.assert_allclose(values[name], tensor.numpy(), rtol=1e-5, atol=1e-6)
    steps = x.shape[int(options.get("batch_first", False))]
    assert len(list_loops(lower_graph(graph, "cpu"))) == (directions if steps >= 8 else 0)
    assert not list_loops(lower_graph(graph, "c"))
    assert not list_loops(lower_graph(graph, "cpu", "bfloat16"))


def test_a_model_of_dynamo_is_one_piece(x: torch.Tensor) -> None:
    module = Layers("LSTM", bidirectional=True, batch_first=True).eval()
    with torch._dynamo.config.patch(allow_rnn=True), torch.no_grad():
        found = autotune.explain(module, x)
        assert (found.graphs, found.pieces) == (1, 1)
        torch._dynamo.reset()
        ours = torch.compile(module, backend="autotune", options={"threads": 1})(x)
        for mine, theirs in zip(ours, module(x), strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)
    torch._dynamo.reset()


def test_what_is_refused(x: torch.Tensor) -> None:
    with pytest.raises(
        UnsupportedModelError, match=r"lstm\.input node '.*' must have 4 weights and no projection, but got 5"
    ):
        import_module(Layers("LSTM", proj_size=4).eval(), x)
    with pytest.raises(UnsupportedModelError, match=r"gru\.input node '.*' must not be trained, but got dropout=0\.5"):
        import_module(Layers("GRU", dropout=0.5, num_layers=2), x)

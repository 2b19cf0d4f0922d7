"""Networks by `torch.export` and by ONNX: both ways lead to the same tasks, which compute the same."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from autotune.graph.errors import UnsupportedModelError  # noqa: E402
from autotune.graph.evaluate import evaluate  # noqa: E402
from autotune.graph.frontends.aten import import_exported  # noqa: E402
from autotune.graph.frontends.onnx.importer import import_model  # noqa: E402
from autotune.graph.frontends.onnx.model import load_model  # noqa: E402
from autotune.graph.ir import Graph  # noqa: E402
from autotune.graph.partition import partition  # noqa: E402
from autotune.graph.passes import optimise  # noqa: E402
from benchmarks.survey.exports import write_onnx  # noqa: E402
from tests.autotune.graph.torch_models import MODELS, Counting  # noqa: E402


def import_module(module: Any, *inputs: Any) -> Graph:
    """The graph of what `torch.export` gives."""
    with torch.no_grad():
        return import_exported(torch.export.export(module.eval(), inputs))


def by_onnx(module: Any, inputs: dict[str, Any], file: Path) -> Graph:
    """The graph of what `torch.onnx` writes."""
    write_onnx(module, inputs, file, ["script"])
    return import_model(load_model(file))


def outputs(graph: Graph, *arrays: Any) -> list[Any]:
    """Evaluates a graph by NumPy."""
    values = evaluate(graph, dict(zip(graph.inputs, arrays, strict=True)))
    return [values[name] for name in graph.outputs]


def tasks(graph: Graph) -> Counter[str]:
    """Workloads, and how often each occurs."""
    return Counter(group.workload.key for group in partition(graph) if group.workload is not None)


@pytest.mark.parametrize("name", MODELS)
def test_both_ways_lead_to_the_same_tasks(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    module, inputs = MODELS[name]()
    module.eval()
    direct = optimise(import_module(module, *inputs.values()))
    other = optimise(by_onnx(module, inputs, tmp_path / "model.onnx"))
    arrays = [tensor.numpy() for tensor in inputs.values()]
    with torch.no_grad():
        wanted = module(*inputs.values()).numpy()
    for graph in (direct, other):
        (found,) = outputs(graph, *arrays)
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())
    assert tasks(direct) == tasks(other)


def test_parameters_stay_on_the_memory_of_the_module() -> None:
    class Table(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Parameter(torch.randn(50, 4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(self.table[x])

    module = Table()
    graph = import_module(module, torch.tensor([3, 1, 4]))
    (constant,) = (array for array in graph.constants.values() if array.shape == (50, 4))
    assert np.shares_memory(constant, module.table.detach().numpy())


def test_operators_that_are_not_supported_are_named() -> None:
    class UnsupportedModule(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.sort(x)[0] + torch.fft.fft(x).abs()

    with pytest.raises(
        UnsupportedModelError, match=r"must have a conversion to kernels, but .* \(not supported here: .*sort.*fft"
    ):
        import_module(UnsupportedModule(), torch.randn(4))


class Converting(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x > 0).float() * x.to(torch.float32)


def test_checks_that_export_adds_to_conversions_are_removed() -> None:
    graph = import_module(Converting(), torch.randn(4))
    assert [node.op for node in graph.nodes] == ["less", "cast", "multiply"]


def test_shapes_that_are_not_known_are_refused() -> None:
    program = torch.export.export(nn.ReLU(), (torch.randn(3, 4),), dynamic_shapes=[{0: torch.export.Dim.AUTO}])
    with pytest.raises(UnsupportedModelError, match="shapes must be known before a network runs"):
        import_exported(program)


def test_a_program_that_changes_its_state_is_refused() -> None:
    with pytest.raises(UnsupportedModelError, match="a program must not change its state, but it gives"):
        import_module(Counting(), torch.randn(4))

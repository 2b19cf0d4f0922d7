"""Graphs that Dynamo traced for any shape: compiled for a range or for each shape, held to eager PyTorch."""

from __future__ import annotations

import logging
import operator
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

import autotune

pytest.importorskip("torch")

import torch
from torch import nn
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from autotune.pytorch.backend import autotune_backend
from autotune.pytorch.program import Programs
from autotune.pytorch.shapes import Recent
from tests.autotune.pytorch.noted_graphs import noted_graphs

pytestmark = pytest.mark.usefixtures("kernel_cache")


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """Clears Dynamo's memory, seeds the weights, and fails on graphs that autotune leaves to PyTorch."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    torch.manual_seed(0)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.filterwarnings("error", message="autotune leaves")
        yield


@pytest.fixture
def compiled_graphs(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Graphs that were compiled, in order."""
    return noted_graphs(monkeypatch)


@pytest.fixture(params=[0, 16], ids=["each shape", "a range"])
def sizes(request: pytest.FixtureRequest) -> int:
    """The option of that name."""
    return int(request.param)


def compile_model(model: Any, dynamic: bool | None = True, sizes: int = 0, **options: Any) -> Any:
    """The model by our backend, on one thread; by default compiled for each shape."""
    stated = {"threads": 1, "sizes": sizes, **options}
    return torch.compile(model, backend=autotune_backend, dynamic=dynamic, options=stated)


def check(run: Any, model: Any, *inputs: Any) -> None:
    """Outputs are those of PyTorch."""
    torch.testing.assert_close(run(*inputs), model(*inputs), rtol=1e-5, atol=1e-5)


class Layer(nn.Module):
    """A normalised product."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(8), nn.Linear(8, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.linear(self.norm(x)))


class SizeModule(nn.Module):
    """Outputs whose shapes and values depend on the length of the input, and a number that does."""

    def forward(self, x: torch.Tensor) -> tuple[Any, ...]:
        length = x.shape[1]
        return torch.cat([x, x * length], 1), torch.arange(length) + 1, x.reshape(-1) * 2, length * 3 + 1


def test_batch_and_length_are_of_any_size(compiled_graphs: list[Any]) -> None:
    model = Layer().eval()
    run = compile_model(model)
    for batch, length in ((2, 5), (3, 7), (2, 5), (4, 2)):
        check(run, model, torch.randn(batch, length, 8))
    assert len(compiled_graphs) == 3  # each shape once
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


def test_attention_over_any_length(sizes: int) -> None:
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, activation="gelu").eval()
    run = compile_model(layer, sizes=sizes)
    for length in (5, 6):
        check(run, layer, torch.randn(2, length, 16))


def test_outputs_that_depend_on_a_size(sizes: int) -> None:
    run = compile_model(SizeModule(), sizes=sizes)
    for length in (4, 3, 4):
        check(run, SizeModule(), torch.randn(2, length))
    assert run(torch.randn(2, 5))[3] == 16


def test_a_second_shape_needs_neither_option_nor_warning(compiled_graphs: list[Any]) -> None:
    model = Layer().eval()
    run = compile_model(model, dynamic=None)
    for batch in (2, 3, 4, 3):
        check(run, model, torch.randn(batch, 8))
    assert [len(graph.inputs) for graph in compiled_graphs] == [1, 1, 1]


def test_a_dimension_that_is_marked() -> None:
    model = Layer().eval()
    run = compile_model(model, dynamic=None)
    for batch in (2, 5):
        x = torch.randn(batch, 8)
        torch._dynamo.mark_dynamic(x, 0)
        check(run, model, x)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


def test_two_sizes_that_are_equal(sizes: int) -> None:
    def add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.relu(x + y) @ y.transpose(0, 1)

    run = compile_model(add, sizes=sizes)
    for rows, columns in ((3, 4), (5, 4), (5, 5)):
        check(run, add, torch.randn(rows, columns), torch.randn(rows, columns))


def test_numbers_among_the_inputs(sizes: int) -> None:
    def scale(x: torch.Tensor, count: int, factor: float) -> torch.Tensor:
        return torch.relu(x[:, :count]) * factor + count

    run = compile_model(scale, sizes=sizes)
    for count, factor in ((2, 0.5), (3, 1.5), (3, 2.5)):
        check(run, scale, torch.randn(3, 6), count, factor)


def test_inputs_that_lie_in_another_way(sizes: int) -> None:
    model = Layer().eval()
    run = compile_model(model, sizes=sizes)
    check(run, model, torch.randn(3, 5, 8))
    check(run, model, torch.randn(5, 3, 8).transpose(0, 1))


def test_under_inference_mode(sizes: int) -> None:
    model = Layer().eval()
    run = compile_model(model, sizes=sizes)
    with torch.inference_mode():
        for batch in (2, 3):
            check(run, model, torch.randn(batch, 8))


def test_an_input_of_any_shape_that_is_written_to(sizes: int) -> None:
    def grow(x: torch.Tensor, by: torch.Tensor) -> torch.Tensor:
        x.add_(by)
        return torch.relu(x) * x.shape[0]

    run = compile_model(grow, sizes=sizes)
    for rows in (2, 3):
        x, by = torch.randn(rows, 4), torch.randn(rows, 4)
        mine = x.clone()
        torch.testing.assert_close(run(mine, by), grow(x, by))
        torch.testing.assert_close(mine, x)


def test_changed_parameters_are_compiled_anew_for_each_shape(sizes: int) -> None:
    model = nn.Linear(6, 8)
    run = compile_model(model, sizes=sizes)
    for batch in (2, 3):
        check(run, model, torch.randn(batch, 6))
    model.weight.mul_(2)
    for batch in (2, 3):
        check(run, model, torch.randn(batch, 6))


def test_shapes_are_kept_up_to_a_number(compiled_graphs: list[Any], caplog: pytest.LogCaptureFixture) -> None:
    run = compile_model(nn.ReLU(), shapes=2)
    with caplog.at_level(logging.WARNING, logger="autotune.pytorch.shapes"):
        for batch in (2, 3, 2, 4, 2, 3):  # 4 takes the place of 3, which then takes that of 4
            check(run, nn.ReLU(), torch.randn(batch, 4))
    assert [graph.type(graph.outputs[0]).shape[0] for graph in compiled_graphs] == [2, 3, 4, 3]
    assert [record.getMessage() for record in caplog.records] == [
        "a graph of any shape has come in more than 2 shapes (option `shapes`): the one that was used least recently "
        "is dropped, and compiled anew where it comes again"
    ] * 2


def test_what_is_asked_for_again_is_kept() -> None:
    recent: Recent[object] = Recent(2)
    first = recent.of("a", object)
    recent.of("b", object)
    assert recent.of("a", object) is first
    recent.of("c", object)
    assert recent.of("a", object) is first


def test_shapes_that_data_decide_are_left_to_pytorch() -> None:
    def nonzero(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x = torch.relu(x * 2)
        return torch.nonzero(x) * 3, x + 1

    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        run = compile_model(nonzero)
        for rows in (2, 3):
            check(run, nonzero, torch.randn(rows, 4))
        said = autotune.explain(nonzero, torch.randn(2, 4), dynamic=True)
    reasons = {left.operator: left.reason for left in said.left}
    assert reasons["nonzero.default"] == (
        "operators must have a conversion to kernels, but aten.nonzero.default of node 'nonzero' has none"
    )
    assert "shapes must be known before a network runs, but 'nonzero' is of [u0, 2]" in reasons.values()


def test_what_data_decide_as_a_graph_is_traced_stays_with_pytorch() -> None:
    def choose(x: torch.Tensor) -> torch.Tensor:
        count = x.sum().to(torch.int64).item()
        torch._check(count >= 2)
        torch._check(count <= x.shape[0])
        return torch.relu(x)[:count] * 2

    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        run = compile_model(choose)
        check(run, choose, torch.tensor([1.0, 1.0, 0.0]))
        check(run, choose, torch.tensor([1.0, 1.0, 1.0, 0.0]))


def test_a_graph_whose_shapes_cannot_be_told_is_left_to_pytorch() -> None:
    graph = torch.fx.Graph()
    size, x = graph.placeholder("size"), graph.placeholder("x")
    size.meta["val"] = ShapeEnv().create_unbacked_symint()
    count = graph.call_function(torch.ops.aten._local_scalar_dense.default, (x,))
    graph.output((graph.call_function(bool, (graph.call_function(operator.gt, (count, size)),)),))
    program = Programs(torch.fx.GraphModule(torch.nn.Module(), graph), (), no_kernels, 16)
    said = "shapes must follow from those of the inputs, but that of 'bool_1' depends on elements of tensors"
    with pytest.warns(UserWarning, match=f"autotune leaves a graph to PyTorch: {said}"):
        assert program(2, torch.tensor(3)) == (True,)


def no_kernels(graph: Any) -> Any:
    raise AssertionError("nothing is compiled")


def test_explanations_tell_of_graphs_of_any_shape() -> None:
    said = autotune.explain(SizeModule(), torch.randn(2, 4), dynamic=True)
    assert (said.graphs, said.any_shape, said.pieces, said.left) == (1, 1, 1, ())
    assert "1 graphs of any shape: compiled for a range of sizes, or for each shape" in str(said).splitlines()
    assert autotune.explain(SizeModule(), torch.randn(2, 4)).any_shape == 0

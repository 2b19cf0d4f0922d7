"""Compiled pieces called on tensors: what lies in any way is taken, results are the caller's own, threads are right."""

from __future__ import annotations

import gc
import itertools
import logging
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

from autotune.graph.ir import Graph
from autotune.pytorch.backend import autotune_backend
from autotune.pytorch.building import LoadedGraph
from autotune.pytorch.calls import Call, make_call
from autotune.pytorch.kernels import compile_graph
from autotune.pytorch.options import Options
from autotune.pytorch.pieces import Piece, split
from autotune.pytorch.program import Program, make_program
from targets.manifest import ExecutableError

pytestmark = pytest.mark.usefixtures("kernel_cache")


def compile_piece(model: Callable[..., Any], *inputs: torch.Tensor, threads: int = 1) -> tuple[Call, LoadedGraph]:
    """A model of one piece, and its executable."""
    with torch.no_grad():
        (piece,) = split(make_fx(model)(*inputs), {}).pieces
        loaded = compile_graph(piece.graph, Options(threads=threads))
    return make_call(piece, loaded), loaded


def scale_and_add(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Two outputs, the second of which PyTorch lays out by columns."""
    return torch.relu(x) * 2 + y, x.transpose(0, 1) - y.transpose(0, 1)


@pytest.fixture(scope="module")
def call() -> Call:
    return compile_piece(scale_and_add, torch.randn(6, 8), torch.randn(6, 8))[0]


def at(address: int, tensor: torch.Tensor) -> torch.Tensor:
    """Returns a copy of a tensor that begins `address` bytes behind a 64-byte boundary."""
    memory = np.zeros(tensor.nbytes + 128, np.uint8)
    start = -memory.ctypes.data % 64 + address
    found = torch.frombuffer(memory, dtype=tensor.dtype, offset=start, count=tensor.numel()).view(tensor.shape)
    assert found.data_ptr() % 64 == address % 64
    return found.copy_(tensor)


LAID_OUT: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "dense": lambda x: x,
    "by columns": lambda x: x.t().contiguous().t(),
    "every other element": lambda x: torch.stack([x, -x], -1).flatten(1)[:, ::2],
    "a row for all": lambda x: x[:1].expand(6, 8),
    "behind a boundary": lambda x: at(4, x),
    "at an odd address": lambda x: at(1, x),
    "negative by a bit": lambda x: torch._neg_view(-x),
    "zeros without memory": lambda x: torch._efficientzerotensor(x.shape),
    "with a gradient": lambda x: x.clone().requires_grad_(),
    "a view": lambda x: torch.cat([x, x])[3:9],
}


@pytest.mark.parametrize("first, second", [*itertools.product(LAID_OUT, ("dense", "by columns"))])
def test_inputs_lie_in_any_way(call: Call, first: str, second: str) -> None:
    torch.manual_seed(0)
    x, y = LAID_OUT[first](torch.randn(6, 8)), LAID_OUT[second](torch.randn(6, 8))
    before = tuple(t.detach().clone(memory_format=torch.contiguous_format) for t in (x, y))
    found, wanted = call(x, y), scale_and_add(*before)
    for mine, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(mine, theirs)
        assert mine.stride() == theirs.stride() and not mine.requires_grad
    torch.testing.assert_close((x.detach(), y.detach()), before, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.uint8, torch.bool])
def test_every_type_is_taken_and_given(dtype: torch.dtype) -> None:
    x = (torch.randn(5, 7) * 3).to(dtype)
    run, _ = compile_piece(lambda x: torch.cat([x, x.flip(0)]), x)
    for given in (x, x.t().contiguous().t()):
        (found,) = run(given)
        assert found.dtype == dtype and torch.equal(found, torch.cat([x, x.flip(0)]))


def test_outputs_are_the_callers_own(call: Call) -> None:
    x, y = torch.randn(6, 8), torch.randn(6, 8)
    wanted = scale_and_add(x, y)
    results = [call(x, y) for _ in range(3)]
    places = {tensor.data_ptr() for tensor in (x, y, *itertools.chain(*results))}
    assert len(places) == 2 + 3 * 2
    for tensor in results[0]:
        tensor.fill_(7)
    for found in results[1:]:
        torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(call(x, x), scale_and_add(x, x))


def test_what_outputs_held_before_is_of_no_account() -> None:
    model = nn.Sequential(nn.LayerNorm(13), nn.Linear(13, 19), nn.Softmax(-1)).eval()
    x = torch.randn(5, 13)
    _, loaded = compile_piece(model, x)
    with torch.no_grad():
        wanted = model(x)
    for before in (np.nan, np.inf, 0.0):
        found = torch.full((5, 19), before)
        loaded.executable.infer_at([x.data_ptr(), found.data_ptr()])
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


def test_other_tensors_are_refused(call: Call) -> None:
    x = torch.randn(6, 8)
    said = r"input 1 must be torch\.float32 of shape \(6, 8\) on the CPU, but got "
    for wrong, what in (
        (torch.randn(6, 7), r"torch\.float32 of shape \(6, 7\) on cpu"),
        (torch.randn(0, 8), r"torch\.float32 of shape \(0, 8\) on cpu"),
        (torch.randn(48), r"torch\.float32 of shape \(48,\) on cpu"),
        (x.double(), r"torch\.float64 of shape \(6, 8\) on cpu"),
        (x.int(), r"torch\.int32 of shape \(6, 8\) on cpu"),
        (x.to("meta"), r"torch\.float32 of shape \(6, 8\) on meta"),
    ):
        with pytest.raises(ExecutableError, match=said + what):
            call(x, wrong)
    with pytest.raises(ValueError, match="zip"):
        call(x)


def test_addresses_are_as_many_as_arrays() -> None:
    _, loaded = compile_piece(scale_and_add, torch.randn(6, 8), torch.randn(6, 8))
    with pytest.raises(ExecutableError, match=r"`addresses` must be 4 and none of them 0, but got \[64, 64\]"):
        loaded.executable.infer_at([64, 64])


def test_an_empty_batch_is_right() -> None:
    model = nn.Linear(8, 4).eval()
    torch._dynamo.reset()
    run = torch.compile(model, backend=autotune_backend, dynamic=True, options={"threads": 1})
    with torch.no_grad():
        for batch in (3, 0):
            x = torch.randn(batch, 8)
            torch.testing.assert_close(run(x), model(x))


def test_no_default_device_and_no_inference_mode_is_in_the_way(call: Call) -> None:
    x, y = torch.randn(6, 8), torch.randn(6, 8)
    wanted = scale_and_add(x, y)
    with torch.device("meta"):
        torch.testing.assert_close(call(x, y), wanted)
    with torch.inference_mode():
        assert all(tensor.is_inference() for tensor in call(x, y))
    assert not any(tensor.is_inference() for tensor in call(x, y))


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_may_call_at_the_same_time(threads: int) -> None:
    inputs = [torch.randn(67, 16) for _ in range(60)]
    run, _ = compile_piece(nn.Sequential(nn.Linear(16, 40), nn.Softmax(-1)).eval(), inputs[0], threads=threads)
    alone = [run(x)[0] for x in inputs]
    with ThreadPoolExecutor(4) as pool:
        for found, wanted in zip(pool.map(lambda x: run(x)[0], inputs), alone, strict=True):
            assert torch.equal(found, wanted)


# Programs: what runs is what their constants are now.


def program(model: nn.Module, x: torch.Tensor) -> tuple[Program, list[Graph]]:
    """A program whose inputs are the parameters of a model and `x`, and the graphs that it compiles."""
    made: list[Graph] = []
    parameters = dict(model.named_parameters())

    def call_model(*inputs: torch.Tensor) -> tuple[torch.Tensor]:
        return (torch.func.functional_call(model, dict(zip(parameters, inputs, strict=False)), inputs[-1]),)

    def make(graph: Graph) -> LoadedGraph:
        made.append(graph)
        return compile_graph(graph, Options(threads=1))

    with torch.no_grad():
        traced = make_fx(call_model)(*parameters.values(), x)
    return make_program(traced, range(len(parameters)), make), made


@pytest.fixture
def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


CHANGES: dict[str, Callable[[nn.Sequential], object]] = {
    "in place": lambda model: model[0].weight.mul_(2),
    "an element": lambda model: model[2].bias[1].fill_(3),
    "a new parameter": lambda model: setattr(model[2], "weight", nn.Parameter(torch.randn(4, 16))),
    "new data": lambda model: setattr(model[0].weight, "data", torch.randn(16, 8)),
    "a state": lambda model: model.load_state_dict({k: v + 1 for k, v in model.state_dict().items()}),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changes_are_seen_by_the_next_call(model: nn.Sequential, change: str, caplog: pytest.LogCaptureFixture) -> None:
    x = torch.randn(3, 8)
    run, made = program(model, x)
    with torch.no_grad(), caplog.at_level(logging.WARNING):
        for _ in range(2):
            torch.testing.assert_close(run(*model.parameters(), x)[0], model(x))
        CHANGES[change](model)
        for _ in range(2):
            torch.testing.assert_close(run(*model.parameters(), x)[0], model(x))
    assert len(made) == 2
    assert caplog.messages == ["parameters of a compiled model have changed: it is compiled anew"]


def test_parameters_of_inference_mode(model: nn.Sequential) -> None:
    x = torch.randn(3, 8)
    run, made = program(model, x)
    with torch.inference_mode():
        mine = [parameter.clone() for parameter in model.parameters()]
        for _ in range(2):
            torch.testing.assert_close(run(*mine, x)[0], model(x))
        other = [parameter * 2 for parameter in mine]
        run(*other, x)
    assert len(made) == 2


def test_what_was_compiled_goes_with_its_constants(model: nn.Sequential) -> None:
    x = torch.randn(3, 8)
    run, made = program(model, x)
    with torch.no_grad():
        run(*model.parameters(), x)
        executable = weakref.ref(run._current.run.args[0].autotune_piece_0._loaded_graph.executable)
        model[2] = nn.Linear(16, 4)
        gc.collect()
        assert executable() is None and run._current is None
        torch.testing.assert_close(run(*model.parameters(), x)[0], model(x))
    assert len(made) == 2


def test_constants_that_are_made_for_each_call_are_known_again(model: nn.Sequential) -> None:
    x = torch.randn(3, 8)
    run, made = program(model, x)
    with torch.no_grad():
        for _ in range(4):
            torch.testing.assert_close(run(*(p.detach() for p in model.parameters()), x)[0], model(x))
    assert len(made) <= 2


def test_a_program_that_threads_call_first_is_compiled_once(model: nn.Sequential) -> None:
    x = torch.randn(3, 8)
    run, made = program(model, x)
    together = threading.Barrier(4)

    def call_together(_: int) -> torch.Tensor:
        together.wait()
        return run(*model.parameters(), x)[0]

    with torch.no_grad(), ThreadPoolExecutor(4) as pool:
        wanted = model(x)
        for found in pool.map(call_together, range(4)):
            torch.testing.assert_close(found, wanted)
    assert len(made) == 1


def test_a_piece_may_be_computed_by_anything_that_takes_arrays() -> None:
    x, y = torch.randn(6, 8), torch.randn(6, 8)
    (piece,) = split(make_fx(scale_and_add)(x, y), {}).pieces
    assert isinstance(piece, Piece)
    wanted = scale_and_add(x, y)
    found = make_call(
        piece,
        lambda arrays: tuple(np.ascontiguousarray(t.numpy()) for t in scale_and_add(*map(torch.from_numpy, arrays))),
    )(x.t().contiguous().t(), y)
    for mine, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(mine, theirs)
        assert mine.stride() == theirs.stride()

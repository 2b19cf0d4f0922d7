"""Memory as callers see it: strides of outputs, tensors that share memory, and what `as_strided` reads of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch._dynamo.backends.common import aot_autograd  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402

from autotune.pytorch.backend import autotune_backend  # noqa: E402
from autotune.pytorch.pieces import split  # noqa: E402


def images() -> Any:
    """Channels-last, all elements distinct."""
    return torch.arange(120.0).reshape(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)


def rows() -> Any:
    return torch.arange(12.0).reshape(3, 4)


def shared(y: Any) -> tuple[Any, Any]:
    return y, y.view(-1)


FUNCTIONS: dict[str, tuple[Callable[..., Any], Callable[[], Any]]] = {
    "an input expanded": (lambda x: (x[:1].expand(3, 3, 4), x + 1), rows),
    "a value expanded": (lambda x: ((x + 1).expand(2, 3, 4), x * 2), rows),
    "a value expanded for PyTorch": (lambda x: torch.sort((x + 1)[:1].expand(3, 4), 1)[0], rows),
    "a view of an input": (lambda x: (x.t(), x.view(12), x * 2), rows),
    "a value and its view": (lambda x: shared(x * 2), rows),
    "parts of a value": (lambda x: (x * 2).split(1), rows),
    "a view that is read, too": (lambda x: (lambda y: (y.t(), y.t() @ y))(x * 2), rows),
    "a diagonal": (lambda x: (x * 2).diagonal(), rows),
    "channels last": (lambda x: (x * 2, x.mean((2, 3), keepdim=True), x.flip(1)), images),
    "rolled": (lambda x: torch.roll(x, 1, 3), images),
    "groups in turns": (lambda x: torch.nn.functional.channel_shuffle(torch.cat([x, x], 1), 2), images),
    "rolled and read by strides": (lambda x: torch.roll(x, 1, 3).as_strided((24,), (1,)) * 1.0, images),
    "pooled": (lambda x: torch.nn.functional.adaptive_avg_pool2d(x * 2, 1) * 3, images),
    "read by strides from the start": (lambda x: x[1:].as_strided((8,), (1,), 0) + 1, rows),
}


def outcome(function: Callable[..., Any], x: Any) -> list[Any]:
    """Strides of each output, the first tensor that it shares memory with, and all values after writing to each."""
    with torch.no_grad():
        found = function(x)
        tensors = [x, *(found if isinstance(found, (tuple, list)) else [found])]
    memory = [tensor.untyped_storage().data_ptr() for tensor in tensors]
    facts = [
        (tuple(tensor.shape), tensor.stride(), memory.index(at)) for tensor, at in zip(tensors, memory, strict=True)
    ]
    before = [tensor.tolist() for tensor in tensors]
    for number, tensor in enumerate(tensors[1:]):
        tensor[(0,) * tensor.dim()] += 100.0 * (number + 1)
    return [facts, before, [tensor.tolist() for tensor in tensors]]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_outputs_lie_and_share_memory_as_without_compiling(name: str) -> None:
    function, drawn = FUNCTIONS[name]
    torch._dynamo.reset()
    run = torch.compile(function, backend=autotune_backend, dynamic=False, options={"threads": 1})
    assert outcome(run, drawn()) == outcome(function, drawn())


@pytest.mark.parametrize("count", [1, 2])
def test_strides_that_move_no_element_leave_no_operator_to_pytorch(count: int) -> None:
    """The last layers of Swin: PyTorch writes global pooling of channels-last images as `mean` and `as_strided`."""

    def pool(x: Any) -> Any:
        images = torch.nn.functional.silu(torch.roll(x, 1, 2)).permute(0, 3, 1, 2)
        return torch.nn.functional.adaptive_avg_pool2d(images, 1).flatten(1)

    modules: list[Any] = []

    def record(module: Any, _: Any) -> Any:
        modules.append(module)
        return module

    with torch.no_grad():
        torch.compile(pool, backend=aot_autograd(fw_compiler=record), dynamic=False)(torch.ones(count, 4, 5, 6))
    (module,) = modules
    assert "aten.as_strided.default" in {str(node.target) for node in module.graph.nodes}
    found = split(module, {})
    assert len(found.pieces) == 1 and not found.refusals


def test_views_of_outputs_stay_out_of_the_piece_and_no_other() -> None:
    """PyTorch transposes the output; the kernel that reads the transposition has a view of its own."""
    with torch.no_grad():
        found = split(make_fx(FUNCTIONS["a view that is read, too"][0])(rows()), {})
        dense = split(make_fx(lambda x: (x * 2).view(12))(rows()), {})
    called = [str(node.target) for node in found.module.graph.nodes if node.op == "call_function"]
    assert called.count("aten.t.default") == 1
    assert len(found.pieces) == 1 and not found.refusals
    assert tuple(dense.pieces[0].examples[0].shape) == (12,)

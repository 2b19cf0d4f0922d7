"""Values that are saved for gradients: their memory is used again, and by nobody at the same time."""

from __future__ import annotations

import io
from collections.abc import Callable

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor, nn

from autotune.pytorch import saved_memory
from autotune.pytorch.backend import autotune_backend
from autotune.pytorch.saved_memory import SavedBlocks
from targets.arrays import allocate_aligned


@pytest.fixture
def blocks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Sizes of the blocks that are allocated."""
    sizes: list[int] = []

    def note_size(shape: tuple[int], *arguments: str) -> np.ndarray:
        sizes.append(*shape)
        return allocate_aligned(shape, *arguments)

    monkeypatch.setattr(saved_memory, "allocate_aligned", note_size)
    return sizes


def compile_both() -> tuple[nn.Module, Callable[[Tensor], Tensor]]:
    """A perceptron, eager and compiled."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 24), nn.Tanh(), nn.Linear(24, 16), nn.Tanh())
    run = torch.compile(module, backend=autotune_backend, options={"training": True, "threads": 1})
    return module, run


def gradients(module: nn.Module, loss: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(loss, list(module.parameters())))


def test_steps_use_one_block(blocks: list[int]) -> None:
    module, run = compile_both()
    kept = []
    for step in range(4):
        x = torch.randn(8, 16, generator=torch.Generator().manual_seed(step))
        out = run(x)
        kept.append(out.detach())  # a result that is held holds no saved value
        torch.testing.assert_close(gradients(module, out.sum()), gradients(module, module(x).sum()))
        del out
    assert len(blocks) == 1


def test_passes_that_live_together_have_blocks_of_their_own(blocks: list[int]) -> None:
    module, run = compile_both()
    first, second = torch.randn(8, 16), torch.randn(8, 16)
    for _ in range(2):
        found = gradients(module, (run(first) * run(second)).sum())
        torch.testing.assert_close(found, gradients(module, (module(first) * module(second)).sum()))
        del found
    assert len(blocks) == 3  # one of the two waits for the next step


def test_hooks_store_each_saved_value_by_itself() -> None:
    module, run = compile_both()
    sizes = []

    def store(tensor: Tensor) -> bytes:
        assert tensor.untyped_storage().nbytes() == tensor.nbytes
        sizes.append(tensor.nbytes)
        stream = io.BytesIO()
        torch.save(tensor, stream)
        return stream.getvalue()

    x = torch.randn(8, 16)
    with torch.autograd.graph.saved_tensors_hooks(store, lambda data: torch.load(io.BytesIO(data))):
        out = run(x)
    torch.testing.assert_close(gradients(module, out.sum()), gradients(module, module(x).sum()))
    assert len(sizes) > 2


def test_blocks_hold_tensors_of_any_kind_apart_and_come_back_with_the_last() -> None:
    shapes = [((3, 4), (4, 1), torch.float32), ((2, 3), (1, 2), torch.int64), ((0, 3), (3, 1), torch.float32)]
    blocks = SavedBlocks([*shapes, ((5,), (1,), torch.uint8), ((), (), torch.bfloat16)])
    tensors = blocks.take()
    for number, tensor in enumerate(tensors):
        tensor.fill_(number)
    addresses = [tensor.data_ptr() for tensor in tensors if tensor.numel()]
    assert all((tensor == number).all() for number, tensor in enumerate(tensors))
    assert [tuple(tensor.stride()) for tensor in tensors[:2]] == [(4, 1), (1, 2)]
    assert all(address % 64 == 0 for address in addresses) and len(set(addresses)) == len(addresses)
    last = tensors[1]
    del tensors, tensor
    others = blocks.take()
    assert others[0].data_ptr() != addresses[0], "a tensor of the first block is left"
    del last
    assert blocks.take()[0].data_ptr() == addresses[0]

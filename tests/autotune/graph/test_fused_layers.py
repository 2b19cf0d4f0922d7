"""PyTorch's fused layers of transformers, taken apart: what its own operators give, and nothing left to PyTorch."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest

import autotune

pytest.importorskip("torch")

import torch
from torch import nn

from autotune.graph.frontends.aten.fused_layers import encoder_layer, multi_head_attention

SEQUENCES, LENGTH, WIDTH, HEADS = 3, 7, 16, 4


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch.manual_seed(0)
    torch._dynamo.reset()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.filterwarnings("error", message="autotune leaves")
        yield


def masks() -> dict[str, tuple[torch.Tensor | None, int | None]]:
    """Each with what it is of; every row attends to something."""
    pairs = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)
    padding = torch.zeros(SEQUENCES, LENGTH, dtype=torch.bool)
    padding[1, 5:] = True
    every = (pairs[None] | padding[:, None])[:, None].expand(SEQUENCES, HEADS, LENGTH, LENGTH).clone()
    return {"none": (None, None), "pairs": (pairs, 0), "padding": (padding, 1), "all": (every, 2)}


MASKS = ("none", "pairs", "padding", "all")


def attention_weights() -> tuple[torch.Tensor, ...]:
    shapes = ((3 * WIDTH, WIDTH), (3 * WIDTH,), (WIDTH, WIDTH), (WIDTH,))
    return tuple(torch.randn(shape) / 3 for shape in shapes)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize(("gelu", "first"), [(True, False), (False, True)])
def test_a_layer_is_what_its_operator_gives(mask: str, gelu: bool, first: bool) -> None:
    norms = [torch.randn(WIDTH) for _ in range(4)]
    inner = [torch.randn(shape) / 3 for shape in ((32, WIDTH), (32,), (WIDTH, 32), (WIDTH,))]
    given: list[Any] = [torch.randn(SEQUENCES, LENGTH, WIDTH), WIDTH, HEADS, *attention_weights(), gelu, first, 1e-5]
    given += [*norms, *inner, *masks()[mask]]
    found, wanted = encoder_layer(*given), torch._transformer_encoder_layer_fwd(*given)
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize(("weights", "mean"), [(True, True), (True, False), (False, False)])
@pytest.mark.parametrize("own", [True, False])
def test_attention_is_what_its_operator_gives(mask: str, weights: bool, mean: bool, own: bool) -> None:
    x = torch.randn(SEQUENCES, LENGTH, WIDTH)
    inputs = [x, x, x] if own else [x, torch.randn_like(x), torch.randn_like(x)]
    over, kind = masks()[mask]
    given: list[Any] = [*inputs, WIDTH, HEADS, *attention_weights(), over, weights, mean, kind]
    found, wanted = multi_head_attention(*given), torch._native_multi_head_attention(*given)
    torch.testing.assert_close(found[0], wanted[0], rtol=1e-5, atol=1e-5)
    if weights:
        torch.testing.assert_close(found[1], wanted[1], rtol=1e-5, atol=1e-5)


def test_a_mask_of_numbers_is_one_of_truth_values() -> None:
    over = masks()["pairs"][0]
    assert over is not None
    x = torch.randn(SEQUENCES, LENGTH, WIDTH)
    given: list[Any] = [x, x, x, WIDTH, HEADS, *attention_weights()]
    numbers = torch.zeros(LENGTH, LENGTH).masked_fill(over, float("-inf"))
    found = multi_head_attention(*given, numbers, False, True, 0)[0]
    torch.testing.assert_close(found, multi_head_attention(*given, over, False, True, 0)[0], rtol=0, atol=0)


def test_an_encoder_is_compiled_as_a_whole() -> None:
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 32, batch_first=True, activation="gelu")
    model, x = nn.TransformerEncoder(layer, 2).eval(), torch.randn(SEQUENCES, LENGTH, WIDTH)
    said = autotune.explain(model, x)
    assert (said.graphs, said.pieces, said.left) == (1, 1, ())
    run = torch.compile(model, backend="autotune", options={"threads": 1})
    torch.testing.assert_close(run(x), model(x), rtol=1e-5, atol=1e-5)

"""Which of ATen's operators are taken apart before they are converted: those without a converter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._decomp import core_aten_decompositions, get_decompositions
from torch._ops import OpOverload

from autotune.graph.aten.fused_layers import fused_layers
from autotune.graph.aten.registry import CONVERTERS, name_of

_ATEN = torch.ops.aten
Table = dict[OpOverload, Callable[..., Any]]


def decompositions() -> Table:
    """Core ATen's decompositions and those of fused layers, but for operators that have a converter."""
    table: Any = {**core_aten_decompositions(), **fused_layers()}
    return {op: how for op, how in table.items() if name_of(op) not in CONVERTERS}


def training_decompositions() -> Table:
    """Those for graphs in which parameters are inputs, and for gradients.

    Normalisation whose converter needs constants or gives no statistics is taken apart, dropout into a mask, which is
    PyTorch's to draw, and what is done with it. Gradients of tables are added up by PyTorch.
    """
    more: Any = get_decompositions(
        [
            _ATEN._native_batch_norm_legit_functional,
            _ATEN._native_batch_norm_legit,
            _ATEN._native_batch_norm_legit_no_training,
            _ATEN.native_batch_norm,
            _ATEN.native_group_norm,
            _ATEN._fused_rms_norm,
        ]
    )
    table = {**decompositions(), **more}
    table[_ATEN.native_dropout.default] = _dropout
    del table[_ATEN.embedding_dense_backward.default]
    return table


def _dropout(x: torch.Tensor, p: float, train: bool | None) -> tuple[torch.Tensor, torch.Tensor]:
    """The mask is drawn as PyTorch's own operator does, so that a seed gives the same; it waits for no other value."""
    if not train:
        return x, torch.ones_like(x, dtype=torch.bool)
    stride = torch.empty_like(x).stride()
    order = sorted(range(x.dim()), key=lambda axis: -stride[axis])  # numbers are drawn in the order of memory
    drawn = torch.empty([x.shape[axis] for axis in order], dtype=torch.bool, device=x.device)
    kept = _ATEN.bernoulli.p(drawn, 1 - p)
    if order != sorted(order):
        kept = kept.permute([order.index(axis) for axis in range(x.dim())])
    return x * kept * (0.0 if p == 1 else 1 / (1 - p)), kept

"""Decompositions of ATen operators that have no converter."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch._decomp import core_aten_decompositions, get_decompositions
from torch._ops import OpOverload
from torch.utils._pytree import tree_leaves

from autotune.graph.frontends.aten.fused_layers import fused_layers
from autotune.graph.frontends.aten.registry import CONVERTERS, operator_name

_ATEN = torch.ops.aten
Table = dict[OpOverload, Callable[..., Any]]


_STRICT = (
    *(_ATEN.linalg_cross.default, _ATEN._softmax_backward_data.default, _ATEN._log_softmax_backward_data.default),
    *(_ATEN.nll_loss_forward.default, _ATEN.nll_loss2d_forward.default),
    *(_ATEN.huber_loss.default, _ATEN.soft_margin_loss.default, _ATEN.heaviside.default),
    *(_ATEN.index_fill.int_Tensor, _ATEN.native_group_norm.default),
)
"""Operators whose kernels treat operands of mixed dtypes differently from their decompositions."""
_INDIVISIBLE = (
    *(_ATEN.max_unpool2d.default, _ATEN.max_unpool3d.default, _ATEN.binary_cross_entropy.default),
    *(_ATEN.index_add.default, _ATEN.index_copy.default),
)
"""Operators whose decompositions differ from their kernels in memory layout, or accept inputs that kernels reject."""


def _for_one_type(how: Callable[..., Any]) -> Callable[..., Any]:
    """Restricts a decomposition to calls whose floating-point operands have one dtype; PyTorch runs the others."""

    @wraps(how)
    def taken_apart(*args: Any, **kwargs: Any) -> Any:
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        if len({tensor.dtype for tensor in tensors if tensor.is_floating_point()}) > 1:
            return NotImplemented
        return how(*args, **kwargs)

    return taken_apart


def decompositions() -> Table:
    """Collects decompositions of core ATen and of fused layers, without operators that have a converter."""
    # PyTorch's own kernel returns statistics of another dtype than a trace states
    training = get_decompositions([_ATEN._native_batch_norm_legit_functional, _ATEN._native_batch_norm_legit])
    table: Any = {**core_aten_decompositions(), **training, **fused_layers()}
    table |= {op: _for_one_type(table[op]) for op in _STRICT if op in table}
    return {op: how for op, how in table.items() if operator_name(op) not in CONVERTERS and op not in _INDIVISIBLE}


def training_decompositions() -> Table:
    """Collects decompositions for graphs whose parameters are inputs, and for gradients.

    A normalisation whose converter needs constants or returns no statistics is decomposed. Dropout is decomposed into
    a mask, which PyTorch draws, and a product with it. PyTorch sums the gradients of embedding tables.
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
    more |= {op: _for_one_type(how) for op, how in more.items() if op in _STRICT}
    table = {**decompositions(), **more}
    table[_ATEN.native_dropout.default] = _dropout
    del table[_ATEN.embedding_dense_backward.default]
    return table


def _dropout(x: torch.Tensor, p: float, train: bool | None) -> tuple[torch.Tensor, torch.Tensor]:
    """Draws the mask like PyTorch's own operator, so that a seed gives the same mask, independent of other values."""
    if not train:
        return x, torch.ones_like(x, dtype=torch.bool)
    stride = torch.empty_like(x).stride()
    order = sorted(range(x.dim()), key=lambda axis: -stride[axis])  # numbers are drawn in the order of memory
    drawn = torch.empty([x.shape[axis] for axis in order], dtype=torch.bool, device=x.device)
    keep = _ATEN.bernoulli.p(drawn, 1 - p)
    if order != sorted(order):
        keep = keep.permute([order.index(axis) for axis in range(x.dim())])
    return x * keep * (0.0 if p == 1 else 1 / (1 - p)), keep

"""Decompositions of transformer layers that PyTorch runs as one operator in evaluation mode.

`torch.nn.TransformerEncoderLayer` and `MultiheadAttention` use these operators if no gradient is needed ("fast path").
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._ops import OpOverload
from torch.nn import functional as F

_ATEN = torch.ops.aten
OVER_KEYS, PADDING = 0, 1
"""Kinds of masks: over pairs of positions, over positions of each sequence; others cover heads and sequences, too."""


def fused_layers() -> dict[OpOverload, Callable[..., Any]]:
    """Returns the decompositions by operator."""
    return {
        _ATEN._transformer_encoder_layer_fwd.default: encoder_layer,
        _ATEN._native_multi_head_attention.default: multi_head_attention,
    }


def encoder_layer(
    src: torch.Tensor,
    embed_dim: int,
    num_heads: int,
    qkv_weight: torch.Tensor,
    qkv_bias: torch.Tensor,
    proj_weight: torch.Tensor,
    proj_bias: torch.Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: torch.Tensor,
    norm_bias_1: torch.Tensor,
    norm_weight_2: torch.Tensor,
    norm_bias_2: torch.Tensor,
    ffn_weight_1: torch.Tensor,
    ffn_bias_1: torch.Tensor,
    ffn_weight_2: torch.Tensor,
    ffn_bias_2: torch.Tensor,
    mask: torch.Tensor | None = None,
    mask_type: int | None = None,
) -> torch.Tensor:
    """Computes a transformer encoder layer: attention and a feed-forward block, each with a norm and a residual.

    Args:
        src: (sequences, places, embed_dim).
        mask: true or nonzero at positions that are not attended to.
        mask_type: kind of the mask.
    """

    def first(x: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x, (embed_dim,), norm_weight_1, norm_bias_1, eps)

    def second(x: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x, (embed_dim,), norm_weight_2, norm_bias_2, eps)

    x = first(src) if norm_first else src
    weights = (qkv_weight, qkv_bias, proj_weight, proj_bias)
    found, _ = multi_head_attention(x, x, x, embed_dim, num_heads, *weights, mask, False, True, mask_type)
    x = src + found if norm_first else first(src + found)
    inner = F.linear(second(x) if norm_first else x, ffn_weight_1, ffn_bias_1)
    x = x + F.linear(F.gelu(inner) if use_gelu else F.relu(inner), ffn_weight_2, ffn_bias_2)
    return x if norm_first else second(x)


def multi_head_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    embed_dim: int,
    num_head: int,
    qkv_weight: torch.Tensor,
    qkv_bias: torch.Tensor,
    proj_weight: torch.Tensor,
    proj_bias: torch.Tensor,
    mask: torch.Tensor | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Computes multi-head attention with its input and output projections.

    Args:
        query, key, value: (sequences, places, embed_dim).
        mask: true or nonzero at positions that are not attended to.
        need_weights: whether attention weights are returned.
        average_attn_weights: whether the weights are averaged over the heads.
        mask_type: kind of the mask.

    Returns:
        (sequences, places, embed_dim), and the weights or None.
    """
    sequences, length, _ = query.shape

    def heads(x: torch.Tensor, part: int) -> torch.Tensor:
        rows = slice(part * embed_dim, (part + 1) * embed_dim)
        made = F.linear(x, qkv_weight[rows], qkv_bias[rows])
        return made.view(sequences, x.shape[1], num_head, embed_dim // num_head).transpose(1, 2)

    if query is key and key is value:
        every = F.linear(query, qkv_weight, qkv_bias).view(sequences, length, 3, num_head, embed_dim // num_head)
        q, k, v = every.permute(2, 0, 3, 1, 4).unbind(0)
    else:
        q, k, v = (heads(x, part) for part, x in enumerate((query, key, value)))
    visible = None if mask is None else _visible_positions(mask, mask_type)
    weights = None
    if need_weights:
        scores = q @ k.transpose(-1, -2) * (embed_dim // num_head) ** -0.5
        scores = scores if visible is None else scores.masked_fill(~visible, float("-inf"))
        weights = scores.softmax(-1)
        attended = weights @ v
        weights = weights.mean(1) if average_attn_weights else weights
    else:
        attended = F.scaled_dot_product_attention(q, k, v, visible)
    joined = attended.transpose(1, 2).reshape(sequences, length, embed_dim)
    return F.linear(joined, proj_weight, proj_bias), weights


def _visible_positions(mask: torch.Tensor, mask_type: int | None) -> torch.Tensor:
    """Returns a mask of the positions that are attended to, which broadcasts to (sequences, heads, places, places)."""
    kept = ~mask if mask.dtype == torch.bool else mask == 0
    if mask_type == PADDING:
        return kept[:, None, None, :]
    return kept[None, None] if mask_type == OVER_KEYS and kept.dim() == 2 else kept

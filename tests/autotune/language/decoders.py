"""Decoders computed plainly in NumPy, position by position and head by head, of weights by Hugging Face's names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.language import GPT2, Llama

Array = NDArray[np.float32]
Wide = NDArray[np.float64]
Weights = Mapping[str, Array]


def gpt2_weights(sizes: GPT2, seed: int = 0) -> dict[str, Array]:
    """Drawn so that no part of the model is without effect."""
    rng, h, n = np.random.default_rng(seed), sizes.hidden, sizes.inner or 4 * sizes.hidden
    shapes = {"wte.weight": (sizes.vocabulary, h), "wpe.weight": (sizes.positions, h)}
    for layer in range(sizes.layers):
        at = f"h.{layer}"
        for part, inputs, outputs in (
            ("attn.c_attn", h, 3 * h),
            ("attn.c_proj", h, h),
            ("mlp.c_fc", h, n),
            ("mlp.c_proj", n, h),
        ):
            shapes |= {f"{at}.{part}.weight": (inputs, outputs), f"{at}.{part}.bias": (outputs,)}
        shapes |= {f"{at}.{norm}.{kind}": (h,) for norm in ("ln_1", "ln_2") for kind in ("weight", "bias")}
    shapes |= {"ln_f.weight": (h,), "ln_f.bias": (h,)}
    return {f"transformer.{name}": _draw(rng, name, shape) for name, shape in shapes.items()}


def llama_weights(sizes: Llama, seed: int = 0) -> dict[str, Array]:
    """Draws weights of Llama's kind so that no part of the model is without effect."""
    rng, h, s = np.random.default_rng(seed), sizes.hidden, sizes.sizes
    queries, keys = s.heads * s.head_width, s.kv_heads * s.head_width
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (sizes.vocabulary, h), "model.norm.weight": (h,)}
    for layer in range(sizes.layers):
        at = f"model.layers.{layer}"
        for part, outputs, inputs in (
            ("self_attn.q_proj", queries, h),
            ("self_attn.k_proj", keys, h),
            ("self_attn.v_proj", keys, h),
            ("self_attn.o_proj", h, queries),
            ("mlp.gate_proj", sizes.inner, h),
            ("mlp.up_proj", sizes.inner, h),
            ("mlp.down_proj", h, sizes.inner),
        ):
            shapes[f"{at}.{part}.weight"] = (outputs, inputs)
        if sizes.biases:
            shapes |= {f"{at}.self_attn.{p}_proj.bias": (n,) for p, n in (("q", queries), ("k", keys), ("v", keys))}
        if sizes.head_norms:
            shapes |= {f"{at}.self_attn.{p}_norm.weight": (s.head_width,) for p in ("q", "k")}
        shapes |= {f"{at}.{norm}.weight": (h,) for norm in ("input_layernorm", "post_attention_layernorm")}
    if not sizes.tied:
        shapes["lm_head.weight"] = (sizes.vocabulary, h)
    return {name: _draw(rng, name, shape) for name, shape in shapes.items()}


def _draw(rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> Array:
    scale = 0.3 if len(shape) == 1 else shape[0] ** -0.5
    mean = 1.0 if "ln_" in name or "norm" in name else 0.0
    return (rng.standard_normal(shape) * scale + mean * name.endswith("weight") * (len(shape) == 1)).astype(np.float32)


# ------------------------------------------------------------------ the oracle
def gpt2_logits(sizes: GPT2, weights: Weights, tokens: NDArray[np.int64]) -> Wide:
    """Returns the logits of every position, (tokens, vocabulary)."""
    w = {name.removeprefix("transformer."): array.astype(np.float64) for name, array in weights.items()}
    width = sizes.hidden // sizes.heads
    x = w["wte.weight"][tokens] + w["wpe.weight"][: len(tokens)]

    def norm(x: Wide, at: str) -> Wide:
        x = x - x.mean(-1, keepdims=True)
        x = x / np.sqrt((x * x).mean(-1, keepdims=True) + sizes.epsilon)
        return x * w[f"{at}.weight"] + w[f"{at}.bias"]

    def linear(x: Wide, at: str) -> Wide:
        found: Wide = x @ w[f"{at}.weight"] + w[f"{at}.bias"]
        return found

    for layer in range(sizes.layers):
        at = f"h.{layer}"
        joint = linear(norm(x, f"{at}.ln_1"), f"{at}.attn.c_attn")
        q, k, v = (part.reshape(len(x), sizes.heads, width) for part in np.split(joint, 3, axis=-1))
        x = x + linear(attend(q, k, v), f"{at}.attn.c_proj")
        up = linear(norm(x, f"{at}.ln_2"), f"{at}.mlp.c_fc")
        inner = 0.5 * up * (1 + np.tanh(np.sqrt(2 / np.pi) * (up + 0.044715 * up**3)))
        x = x + linear(inner, f"{at}.mlp.c_proj")
    found: Wide = norm(x, "ln_f") @ w["wte.weight"].T
    return found


def llama_logits(
    sizes: Llama, weights: Weights, tokens: NDArray[np.int64], divisors: NDArray[Any] | float = 1.0
) -> Wide:
    """Returns the logits of every position, (tokens, vocabulary)."""
    w = {name.removeprefix("model."): array.astype(np.float64) for name, array in weights.items()}
    s = sizes.sizes
    half = s.head_width // 2
    angles = np.outer(np.arange(len(tokens)), sizes.theta ** (-np.arange(half) / half) / divisors)[:, None]

    def norm(x: Wide, at: str) -> Wide:
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + sizes.epsilon) * w[f"{at}.weight"]

    def turn(x: Wide) -> Wide:
        a, b = x[..., :half], x[..., half:]
        cos, sin = np.cos(angles), np.sin(angles)
        return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)

    x = w["embed_tokens.weight"][tokens]
    for layer in range(sizes.layers):
        at = f"layers.{layer}"
        read = norm(x, f"{at}.input_layernorm")
        q, k, v = (
            (read @ w[f"{at}.self_attn.{part}_proj.weight"].T + w.get(f"{at}.self_attn.{part}_proj.bias", 0)).reshape(
                len(x), -1, s.head_width
            )
            for part in ("q", "k", "v")
        )
        if sizes.head_norms:
            q, k = norm(q, f"{at}.self_attn.q_norm"), norm(k, f"{at}.self_attn.k_norm")
        x = x + attend(turn(q), turn(k), v) @ w[f"{at}.self_attn.o_proj.weight"].T
        read = norm(x, f"{at}.post_attention_layernorm")
        gate = read @ w[f"{at}.mlp.gate_proj.weight"].T
        inner = gate / (1 + np.exp(-gate)) * (read @ w[f"{at}.mlp.up_proj.weight"].T)
        x = x + inner @ w[f"{at}.mlp.down_proj.weight"].T
    head = w["embed_tokens.weight"] if sizes.tied else w["lm_head.weight"]
    found: Wide = norm(x, "norm") @ head.T
    return found


def attend(q: Wide, k: Wide, v: Wide) -> Wide:
    """Queries (n, heads, d), keys and values (n, kv_heads, d) → (n, heads * d); a position sees those up to its own."""
    count, heads, width = q.shape
    group = heads // k.shape[1]
    out = np.empty_like(q)
    for position in range(count):
        for head in range(heads):
            scores = k[: position + 1, head // group] @ q[position, head] / np.sqrt(width)
            shares = np.exp(scores - scores.max())
            out[position, head] = shares / shares.sum() @ v[: position + 1, head // group]
    return out.reshape(count, heads * width)

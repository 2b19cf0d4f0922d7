"""BERT (Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers", 2018), in the form of exporters."""

from __future__ import annotations

import math

import numpy as np
import onnx
from onnx import TensorProto

from autotune.graph.zoo.network import Network


def build(
    seed: int = 0,
    layers: int = 12,
    hidden: int = 768,
    heads: int = 12,
    sequence: int = 128,
    batch: int = 1,
    vocabulary: int = 30522,
    fused_normalisation: bool = True,
    any_sequence: bool = False,
) -> onnx.ModelProto:
    """Builds the encoder from int64 token ids (batch, sequence) to hidden states (batch, sequence, hidden).

    Args:
        hidden: width of hidden states, a multiple of heads.
        fused_normalisation: whether to use LayerNormalization nodes; otherwise ReduceMean, Sub, Pow, Sqrt and Div.
        any_sequence: whether the second dimension of the input stays open, up to `sequence`.

    Raises:
        ValueError: heads do not divide hidden.
    """
    if hidden % heads:
        raise ValueError(f"`heads` must divide hidden, but got heads={heads}, hidden={hidden}")
    net = Network("bert", seed)
    tokens = net.input("tokens", (batch, "sequence" if any_sequence else sequence), TensorProto.INT64)
    words = net.add("Gather", net.normal(vocabulary, hidden, scale=1.0), tokens)
    positions = net.normal(sequence, hidden, scale=0.1)
    if any_sequence:
        zero = net.constant(np.zeros(1, np.int64))
        positions = net.add("Slice", positions, zero, net.add("Shape", tokens, start=1, end=2), zero)
    x = net.add("Add", words, positions)
    size = (batch, -1 if any_sequence else sequence)

    def normalise(x: str) -> str:
        scale, shift = net.uniform(hidden, low=0.8, high=1.2), net.normal(hidden, scale=0.1)
        if fused_normalisation:
            return net.add("LayerNormalization", x, scale, shift, axis=-1, epsilon=1e-12)
        centred = net.add("Sub", x, net.add("ReduceMean", x, axes=[-1]))
        variance = net.add("ReduceMean", net.add("Pow", centred, net.number(2.0)), axes=[-1])
        deviation = net.add("Sqrt", net.add("Add", variance, net.number(1e-12)))
        return net.add("Add", net.add("Mul", net.add("Div", centred, deviation), scale), shift)

    x = normalise(x)
    for _ in range(layers):
        attended = _attention(net, x, hidden, heads, size)
        x = normalise(net.add("Add", net.linear(attended, hidden, hidden), x))
        inner = _gelu(net, net.linear(x, hidden, 4 * hidden))
        x = normalise(net.add("Add", net.linear(inner, 4 * hidden, hidden), x))
    return net.finish(x, (batch, "sequence" if any_sequence else sequence, hidden))


def _attention(net: Network, x: str, hidden: int, heads: int, size: tuple[int, int]) -> str:
    width = hidden // heads
    split, joined = (net.constant(np.array(s, np.int64)) for s in ((*size, heads, width), (*size, hidden)))

    def project(axes: list[int]) -> str:
        return net.add("Transpose", net.add("Reshape", net.linear(x, hidden, hidden), split), perm=axes)

    query, key, value = project([0, 2, 1, 3]), project([0, 2, 3, 1]), project([0, 2, 1, 3])
    scores = net.add("Div", net.add("MatMul", query, key), net.number(math.sqrt(width)))
    mixed = net.add("MatMul", net.add("Softmax", scores, axis=-1), value)
    return net.add("Reshape", net.add("Transpose", mixed, perm=[0, 2, 1, 3]), joined)


def _gelu(net: Network, x: str) -> str:
    """Computes x * (1 + erf(x / sqrt 2)) / 2."""
    bell = net.add("Erf", net.add("Div", x, net.number(math.sqrt(2))))
    return net.add("Mul", net.add("Mul", x, net.add("Add", bell, net.number(1.0))), net.number(0.5))

"""Quantisation of product weights to 4 or 8 bits, for the memory-bound decoders of language models.

No calibration is needed. Each group of weights along the sum gets the scale and zero with the least squared error,
among a few that clip its ends differently.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from autotune.config import Quantisation
from autotune.graph.ir import Array, Graph, GraphBuilder, GraphError, Node, rewrite
from autotune.graph.quantise.formats import Format
from autotune.graph.quantise.rewriting import QuantisedGraph, left_by_options
from targets.arrays import contiguous

BITS = {"weights8": 8, "weights4": 4}
"""Bits of weights by the names of `network.quantise`."""
MULTIPLE = 8
"""Divisor of the number of weights in a group."""
LEAST_ROWS = 16
"""Minimum rows of weights: fewer stay in floats, as they would save next to nothing."""
CLIP_SHARES = (1.0, 0.95, 0.9, 0.85, 0.8, 0.75, 0.7)
"""Shares of a group's range that are tried."""
TINIEST = 2.0**-100
"""Least scale of a group, so that a group of zeros has one, too."""


class Groups(Format):
    """A format of float values of a product whose weights are in groups of a few bits."""

    def __init__(self, bits: int, group: int) -> None:
        super().__init__(1.0)
        object.__setattr__(self, "bits", bits)
        object.__setattr__(self, "group", group)

    bits: int
    group: int

    def decode(self, array: Array) -> Array:
        """Returns the values unchanged."""
        return array

    def __str__(self) -> str:
        return f"int{self.bits} by {self.group}"


def quantise_weights(weight: Array, bits: int, group: int, symmetric: bool = True) -> tuple[Array, ...]:
    """Quantises weights for `matmul_nbits`: bytes, scales and, unless `symmetric`, zeros.

    Args:
        weight: float (k, n).
        bits: 4 or 8.
        group: rows that share a scale and a zero, a multiple of 8; the last group may have fewer.
        symmetric: whether zeros are all 2**(bits - 1).

    Returns:
        uint8 (groups, group * bits / 8, n), scales (groups, n), and uint8 (groups, n). Scales of 4-bit weights are
        float16, as float32 scales would be a fifth of the memory traffic, unless one exceeds float16's normal numbers.
        Scales of 8-bit weights are float32.
    """
    depth, columns = weight.shape
    groups, top = -(-depth // group), (1 << bits) - 1
    blocks = np.zeros((groups * group, columns), np.float32)
    blocks[:depth] = weight
    blocks = blocks.reshape(groups, group, columns)
    middle = 1 << (bits - 1)
    low, high = np.minimum(blocks.min(1), 0), np.maximum(blocks.max(1), 0)
    dtype: type[np.floating[Any]] = (
        np.float16 if bits == 4 and _halves_hold(np.maximum(-low, high) / top) else np.float32
    )
    least = np.float32(max(TINIEST, float(np.finfo(dtype).tiny)))
    best = np.full((groups, columns), np.inf, np.float32)
    scales, zeros = np.ones_like(best), np.full(best.shape, middle, np.uint8)
    for part in CLIP_SHARES:
        # Negative numbers have one step more than positive ones.
        scale = np.maximum(-low / middle, high / (top - middle)) if symmetric else (high - low) / top
        scale = np.maximum(scale * np.float32(part), least).astype(dtype).astype(np.float32)
        zero = np.float32(middle) if symmetric else np.clip(np.rint(-low * np.float32(part) / scale), 0, top)
        found = np.clip(np.rint(blocks / scale[:, None]) + np.broadcast_to(zero, scale.shape)[:, None], 0, top)
        error = (((found - np.broadcast_to(zero, scale.shape)[:, None]) * scale[:, None] - blocks) ** 2).sum(1)
        better = error < best
        best = np.where(better, error, best)
        scales = np.where(better, scale, scales)
        zeros = np.where(better, np.broadcast_to(zero, scale.shape), zeros).astype(np.uint8)
    numbers = np.clip(np.rint(blocks / scales[:, None]) + zeros[:, None], 0, top).astype(np.uint8)
    if bits == 4:
        numbers = (numbers[:, 0::2] + 16 * numbers[:, 1::2]).astype(np.uint8)
    stored = scales.astype(dtype)
    return (numbers, stored) if symmetric else (numbers, stored, zeros)


def _halves_hold(ends: Array) -> bool:
    """Tells whether all scales that are tried are normal float16 numbers; `ends` are the groups' largest scales."""
    some, half = ends[ends > 0], np.finfo(np.float16)
    return bool(
        np.all(some * CLIP_SHARES[-1] >= half.tiny) and np.all(some * 4 <= half.max)
    )  # symmetric has fewer steps


QuantisedWeightCache = dict[bytes, tuple[Array, ...]]
"""Quantised weights by a digest of the original ones: a network of open sizes is quantised at several sizes."""


def quantise_weights_only(
    graph: Graph, mode: str, options: Quantisation | None = None, cache: QuantisedWeightCache | None = None
) -> QuantisedGraph:
    """Quantises the weights of products in groups of a few bits.

    Args:
        graph: optimised graph in floats.
        mode: one of `BITS`.
        options: options of which `group`, `symmetric`, `activations`, `first`, `last` and `floats` are read.
        cache: weights that the same mode and options quantised before; new ones are added.

    Raises:
        GraphError: the graph has no product with constant weights.
        ValueError: `floats` has other names than these products.
    """
    options = options or Quantisation()
    found = [node.name for node in graph.nodes if _quantisable(graph, node)]
    if not found:
        raise GraphError(f"a graph to quantise must have a product with constant weights, but {graph.name} has none")
    skipped = left_by_options(graph, found, options)
    bits, formats, names = BITS[mode], {}, {}
    product = "dynamic_matmul" if options.activations == "bytes" else "matmul_nbits"
    shared: dict[str, list[str]] = {}

    def visit(builder: GraphBuilder, node: Node, inputs: list[str]) -> str | None:
        if node.name not in found or node.name in skipped:
            return None
        weight = graph.constants[node.inputs[1]]
        group = min(options.group or len(weight), -(-len(weight) // MULTIPLE) * MULTIPLE)
        group = -(-group // MULTIPLE) * MULTIPLE
        if node.inputs[1] not in shared:
            made = _made_once(np.asarray(weight, np.float32), bits, group, options.symmetric, cache)
            shared[node.inputs[1]] = [builder.constant(array, node.inputs[1]) for array in made]
        formats[node.name] = Groups(bits, group)
        names[node.name] = builder.add(product, [inputs[0], *shared[node.inputs[1]]], node.name, bits=bits)
        return names[node.name]

    made = rewrite(graph, visit)
    return QuantisedGraph(made, formats, names, len(formats), skipped, mode)


def _made_once(
    weight: Array, bits: int, group: int, symmetric: bool, cache: QuantisedWeightCache | None
) -> tuple[Array, ...]:
    if cache is None:
        return quantise_weights(weight, bits, group, symmetric)
    key = hashlib.sha256(repr((weight.shape, bits, group, symmetric)).encode())
    key.update(contiguous(weight).data)
    digest = key.digest()
    if digest not in cache:
        cache[digest] = quantise_weights(weight, bits, group, symmetric)
    return cache[digest]


def _quantisable(graph: Graph, node: Node) -> bool:
    weight = graph.constants.get(node.inputs[1]) if node.op == "matmul" else None
    return weight is not None and node.type.dtype == "float32" and len(weight) >= LEAST_ROWS

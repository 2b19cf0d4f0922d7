"""Weights of products in 4 or 8 bits, all else in floats: what the memory of a language model's decoder asks for.

Nothing is calibrated: of every group of weights along the sum, the scale and the zero with the least squared error are
taken among a few that clip its ends more or less.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from autotune.config import Quantisation
from autotune.graph.ir import Array, Builder, Graph, GraphError, Node, rewrite
from autotune.graph.quantise.formats import Format
from autotune.graph.quantise.rewriting import Quantised, left_by_options
from targets.arrays import contiguous

BITS = {"weights8": 8, "weights4": 4}
"""Of weights, by the names of `network.quantise`."""
MULTIPLE = 8
"""Of which the weights in a group are a multiple."""
LEAST_ROWS = 16
"""Weights of fewer rows stay in floats: there is next to nothing to save."""
CLIPPED = (1.0, 0.95, 0.9, 0.85, 0.8, 0.75, 0.7)
"""Parts of a group's range that are tried."""
TINIEST = 2.0**-100


class Groups(Format):
    """Values in floats of a product whose weights are in groups of a few bits."""

    def __init__(self, bits: int, group: int) -> None:
        super().__init__(1.0)
        object.__setattr__(self, "bits", bits)
        object.__setattr__(self, "group", group)

    bits: int
    group: int

    def decode(self, array: Array) -> Array:
        """The values as they are."""
        return array

    def __str__(self) -> str:
        return f"int{self.bits} by {self.group}"


def quantise_weights(weight: Array, bits: int, group: int, symmetric: bool = True) -> tuple[Array, ...]:
    """Weights as `matmul_nbits` takes them: bytes, scales and, unless `symmetric`, zeros.

    Args:
        weight: float (k, n).
        bits: 4 or 8.
        group: rows that share a scale and a zero, a multiple of 8; the last group may have fewer.
        symmetric: whether zeros are all 2**(bits - 1).

    Returns:
        uint8 (groups, group * bits / 8, n), scales (groups, n), and uint8 (groups, n). Scales of weights of 4 bits are
        float16, as they are a fifth of what is read otherwise, unless one would lie beyond its normal numbers; those of
        8 bits are float32.
    """
    depth, columns = weight.shape
    groups, top = -(-depth // group), (1 << bits) - 1
    whole = np.zeros((groups * group, columns), np.float32)
    whole[:depth] = weight
    whole = whole.reshape(groups, group, columns)
    middle = 1 << (bits - 1)
    low, high = np.minimum(whole.min(1), 0), np.maximum(whole.max(1), 0)
    kept: type[np.floating[Any]] = (
        np.float16 if bits == 4 and _halves_hold(np.maximum(-low, high) / top) else np.float32
    )
    least = np.float32(max(TINIEST, float(np.finfo(kept).tiny)))
    best = np.full((groups, columns), np.inf, np.float32)
    scales, zeros = np.ones_like(best), np.full(best.shape, middle, np.uint8)
    for part in CLIPPED:
        # The end that is further off has one step more on the side of the negative numbers.
        scale = np.maximum(-low / middle, high / (top - middle)) if symmetric else (high - low) / top
        scale = np.maximum(scale * np.float32(part), least).astype(kept).astype(np.float32)
        zero = np.float32(middle) if symmetric else np.clip(np.rint(-low * np.float32(part) / scale), 0, top)
        found = np.clip(np.rint(whole / scale[:, None]) + np.broadcast_to(zero, scale.shape)[:, None], 0, top)
        error = (((found - np.broadcast_to(zero, scale.shape)[:, None]) * scale[:, None] - whole) ** 2).sum(1)
        better = error < best
        best = np.where(better, error, best)
        scales = np.where(better, scale, scales)
        zeros = np.where(better, np.broadcast_to(zero, scale.shape), zeros).astype(np.uint8)
    numbers = np.clip(np.rint(whole / scales[:, None]) + zeros[:, None], 0, top).astype(np.uint8)
    if bits == 4:
        numbers = (numbers[:, 0::2] + 16 * numbers[:, 1::2]).astype(np.uint8)
    stored = scales.astype(kept)
    return (numbers, stored) if symmetric else (numbers, stored, zeros)


def _halves_hold(ends: Array) -> bool:
    """Whether scales that are tried are normal numbers in float16; of groups whose largest is `ends` steps."""
    some, half = ends[ends > 0], np.finfo(np.float16)
    return bool(np.all(some * CLIPPED[-1] >= half.tiny) and np.all(some * 4 <= half.max))  # symmetric: fewer steps


Known = dict[bytes, tuple[Array, ...]]
"""What weights were made into, by a digest of them: a network of open sizes is made at several."""


def quantise_weights_only(
    graph: Graph, mode: str, options: Quantisation | None = None, known: Known | None = None
) -> Quantised:
    """The graph with weights of products in groups of a few bits.

    Args:
        graph: in floats, optimised.
        mode: one of `BITS`.
        options: `group`, `symmetric`, `activations`, `first`, `last` and `floats` are read.
        known: of weights that were quantised before by the same mode and options; what is made now is added.

    Raises:
        GraphError: no product with constant weights.
        ValueError: `floats` that are no such products.
    """
    options = options or Quantisation()
    found = [node.name for node in graph.nodes if _quantisable(graph, node)]
    if not found:
        raise GraphError(f"a graph to quantise must have a product with constant weights, but {graph.name} has none")
    skipped = left_by_options(graph, found, options)
    bits, formats, names = BITS[mode], {}, {}
    product = "dynamic_matmul" if options.activations == "bytes" else "matmul_nbits"
    shared: dict[str, list[str]] = {}

    def visit(builder: Builder, node: Node, inputs: list[str]) -> str | None:
        if node.name not in found or node.name in skipped:
            return None
        weight = graph.constants[node.inputs[1]]
        group = min(options.group or len(weight), -(-len(weight) // MULTIPLE) * MULTIPLE)
        group = -(-group // MULTIPLE) * MULTIPLE
        if node.inputs[1] not in shared:
            made = _made_once(np.asarray(weight, np.float32), bits, group, options.symmetric, known)
            shared[node.inputs[1]] = [builder.constant(array, node.inputs[1]) for array in made]
        formats[node.name] = Groups(bits, group)
        names[node.name] = builder.add(product, [inputs[0], *shared[node.inputs[1]]], node.name, bits=bits)
        return names[node.name]

    made = rewrite(graph, visit)
    return Quantised(made, formats, names, len(formats), skipped, mode)


def _made_once(weight: Array, bits: int, group: int, symmetric: bool, known: Known | None) -> tuple[Array, ...]:
    if known is None:
        return quantise_weights(weight, bits, group, symmetric)
    key = hashlib.sha256(repr((weight.shape, bits, group, symmetric)).encode())
    key.update(contiguous(weight).data)
    digest = key.digest()
    if digest not in known:
        known[digest] = quantise_weights(weight, bits, group, symmetric)
    return known[digest]


def _quantisable(graph: Graph, node: Node) -> bool:
    weight = graph.constants.get(node.inputs[1]) if node.op == "matmul" else None
    return weight is not None and node.type.dtype == "float32" and len(weight) >= LEAST_ROWS

"""Products with weights of many zeros, which leave blocks of zeros out.

Weights of float32 products and 1x1 convolutions are packed in the blocks that leave the least time, by figures for
blocks of each size. A zero times infinity or NaN is NaN, and a product that is left out is not. So the pass runs only
on request, although its outputs are otherwise those of the products.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from autotune.graph.ir import Array, Graph, GraphError, Node
from autotune.graph.passes.pipeline import FunctionPass, GraphPass, Repeat
from autotune.graph.passes.simplify import simplify
from autotune.graph.passes.site import Site, pair, sweep
from search_space.operators.sparse import pack_blocks

COSTS: Mapping[str, Mapping[tuple[int, int], float]] = MappingProxyType(
    {
        "float32": {
            (32, 1): 1.1,
            (16, 1): 1.45,
            (8, 1): 1.5,
            (4, 4): 1.55,
            (4, 1): 1.7,
            (2, 2): 2.1,
            (1, 16): 3.3,
            (1, 1): 3.7,
        },
        "bfloat16": {(32, 1): 2.6, (16, 1): 3.0, (8, 1): 3.1, (4, 4): 3.2, (4, 1): 3.5},
        "int8": {(16, 4): 2.0, (8, 4): 2.2, (4, 4): 2.3, (32, 1): 4.7, (16, 1): 4.8, (4, 1): 5.5},
    }
)
"""Type of a weight → columns and depth of blocks → seconds of a product in them over those of a dense kernel's.

Measured for 64 rows of data and weights of 1024x1024 with AVX-512, see docs/sparsity.md.
"""

OPERANDS = (("float32", "float32"), ("bfloat16", "bfloat16"), ("uint8", "int8"))
"""Types of data and weights of sparse products."""

WINOGRAD = 0.5
"""Seconds of dense 3x3 windows by Winograd's algorithm over those of the definition, see docs/sparsity.md."""

SPARSE = ("sparse_matmul", "sparse_conv2d")
"""Operations that leave blocks of zeros out."""

NEAR, MOST_SIZES = 1.3, 3
"""Greatest ratio of expected times at which other blocks are measured, too, and greatest number of their sizes."""

MOST_SWEEPS = 64
"""Greatest number of sweeps after the products are rewritten, each of which moves a reshape behind one operation."""


@dataclass(frozen=True)
class SparseProducts(GraphPass):
    """A pass that leaves blocks of zeros out of products with constants.

    Attributes:
        least: least share of a weight that must lie in blocks of zeros.
        required: whether a graph without such a weight is an error.
        ranks: name of a product → which of `list_blocks` it takes; by default the first.
    """

    least: float = 0.5
    required: bool = False
    ranks: Mapping[str, int] = field(default_factory=dict, repr=False)
    name = "sparse_products"

    def __post_init__(self) -> None:
        if isinstance(self.least, bool) or not 0 < self.least <= 1:
            raise ValueError(f"`least` must be above 0 and at most 1, but got least={self.least!r}")

    def apply(self, graph: Graph) -> Graph:
        """Rewrites the products.

        Raises:
            GraphError: no weight has as many zeros, and one is required.
        """
        sparse = sweep(graph, self._rewrite)
        if any(node.op in SPARSE for node in sparse.nodes):
            # Reshapes around the product of a convolution move behind its epilogue, which is fused then.
            return Repeat((FunctionPass("simplify", simplify),), MOST_SWEEPS).apply(sparse).graph
        if self.required:
            shares = [
                find_zeros(weight).share for node in graph.nodes if (weight := find_weight(graph, node)) is not None
            ]
            most = f"{max(shares):.3g} in {len(shares)} weights" if shares else "no weight"
            raise GraphError(
                f"`sparsity` must be at most the largest share of a weight in blocks of zeros, "
                f"but got sparsity={self.least:g}, and {most}"
            )
        return graph

    def _rewrite(self, site: Site, node: Node) -> str | None:
        weight = find_weight(site.graph, node)
        sizes = () if weight is None else list_blocks(node, weight, self.least)
        if weight is None or not sizes:
            return None
        zeros = sizes[self.ranks.get(node.name, 0)]
        values, positions, counts = pack_blocks(weight.reshape(-1, weight.shape[-1]), zeros.block)
        packed = [
            site.constant(values, node.inputs[1]),
            *(site.builder.constant(array, node.inputs[1]) for array in (positions, counts)),
        ]
        blocks = max(1, int(counts.sum()))
        if _has_window(node, weight):
            window = {name: node.attrs[name] for name in ("stride", "padding", "dilation")}
            data = site.new[node.inputs[0]]
            return site.add(
                "sparse_conv2d", [data, *packed], node.name, blocks=blocks, kernel=weight.shape[:2], **window
            )
        depth, columns = weight.shape[-2:]
        data = site.reshape(_read_pixels(site, node), (node.type.size // columns, depth))
        product = site.add("sparse_matmul", [data, *packed], node.name, blocks=blocks)
        return site.reshape(product, node.type.shape)


@dataclass(frozen=True)
class Zeros:
    """The blocks of zeros of a weight.

    Attributes:
        block: columns and depth of a block.
        share: share of the weight in blocks of zeros.
        cost: expected time of the other products, over that of all of them.
    """

    block: tuple[int, int]
    share: float
    cost: float


def find_zeros(weight: Array) -> Zeros:
    """Chooses the blocks that leave the least time, see `measure_blocks`."""
    return measure_blocks(weight)[0]


def list_blocks(node: Node, weight: Array, least: float) -> Sequence[Zeros]:
    """Lists the blocks that a layer may take, the least expected time first; nothing if it stays dense.

    The first decides whether it does. A measurement may prefer the others, whose expected times are near to its.
    """
    first, *others = measure_blocks(weight)
    if first.share < least or first.cost >= _dense_cost(node, weight):
        return ()
    near = [zeros for zeros in others if zeros.cost <= first.cost * NEAR]
    return (first, *near[: MOST_SIZES - 1])


def count_sizes(graph: Graph, least: float) -> dict[str, int]:
    """Counts the sizes of blocks that each layer may take, for those that do not stay dense."""
    weights = {node.name: (node, find_weight(graph, node)) for node in graph.nodes}
    counts = {
        name: len(list_blocks(node, weight, least)) for name, (node, weight) in weights.items() if weight is not None
    }
    return {name: count for name, count in counts.items() if count}


def measure_blocks(weight: Array) -> list[Zeros]:
    """Lists the blocks of `COSTS` that divide a weight (..., k, n), those of the least expected time first.

    A block lies within one position of a window, so that its depth divides the channels.
    """
    (depth, columns), costs = weight.shape[-2:], COSTS[str(weight.dtype)]
    nonzero = (weight != 0).reshape(-1, columns)  # not a number is no zero

    def measure(block: tuple[int, int]) -> Zeros:
        blocks = nonzero.reshape(-1, block[1], columns // block[0], block[0]).any((1, 3))
        used = float(np.mean(blocks))
        return Zeros(block, 1 - used, used * costs[block])

    fitting = [block for block in costs if columns % block[0] == 0 and depth % block[1] == 0]
    return sorted(map(measure, fitting), key=lambda zeros: zeros.cost) or [Zeros((1, 1), 0.0, 1.0)]


def find_weight(graph: Graph, node: Node) -> Array | None:
    """Returns the constant of a product (k, n) or a convolution (height, width, k, n) of a type of `COSTS`.

    It is None for other nodes, and for convolutions with groups.
    """
    weight = graph.constants.get(node.inputs[1]) if node.op in ("matmul", "conv2d") else None
    if weight is None or (graph.type(node.inputs[0]).dtype, str(weight.dtype)) not in OPERANDS:
        return None
    return None if node.op == "conv2d" and node.attrs["groups"] != 1 else weight


def _has_window(node: Node, weight: Array) -> bool:
    """Tells whether a node is a convolution that is no product of its pixels."""
    return node.op == "conv2d" and (weight.shape[:2] != (1, 1) or bool(np.any(node.attrs["padding"])))


def _dense_cost(node: Node, weight: Array) -> float:
    """Returns the time of the dense kernel, over that of the definition: Winograd's algorithm has fewer products."""
    if weight.dtype != np.float32 or weight.shape[:-2] != (3, 3):
        return 1.0
    plain = pair(node.attrs["stride"]) == pair(node.attrs["dilation"]) == (1, 1)
    return WINOGRAD if plain else 1.0


def _read_pixels(site: Site, node: Node) -> str:
    """Returns the data that a product reads: all, or the pixels that a 1x1 convolution with strides reaches."""
    data = site.new[node.inputs[0]]
    if node.op == "matmul" or pair(node.attrs["stride"]) == (1, 1):
        return data
    size = (*node.type.shape[:-1], site.type(node.inputs[0]).shape[-1])
    return site.add("slice", [data], begin=(0,) * 4, size=size, step=(1, *pair(node.attrs["stride"]), 1))

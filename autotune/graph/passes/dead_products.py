"""Matrix products without the rows and columns of a constant factor whose results are never read.

A slice behind a product, with only transpositions and reshapes between them, is traced back to the product. An example
is a slice of the real parts of a Fourier transform. If it selects rows from a constant left factor, or columns from a
constant right factor, the constant is cut instead, and the slice disappears.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from autotune.graph.ir import Graph, Node
from autotune.graph.passes.layout import inverse, runs
from autotune.graph.passes.site import Site, sweep

Cut = tuple[range, ...]
"""The indices of each axis that are read."""


def dead_products(graph: Graph) -> Graph:
    """Cuts constant factors of products to the rows and columns whose results are read."""
    return sweep(graph, _shrink_product)


def _shrink_product(site: Site, node: Node) -> str | None:
    if node.op != "slice":
        return None
    bounds = zip(node.attrs["begin"], node.attrs["size"], node.attrs["step"], strict=True)
    cut: Cut | None = tuple(range(begin, begin + size * step, step) for begin, size, step in bounds)
    source, moves = node.inputs[0], list[Node]()
    cuts = [cut]
    while cut is not None and site.private(source) and (move := site.node(source, "transpose", "reshape")):
        cut = _before(site, move, cut)
        moves.append(move)
        cuts.append(cut)
        source = move.inputs[0]
    product = site.node(source, "matmul", "batch_matmul")
    value = _product(site, product, cut) if product is not None and cut is not None and site.private(source) else None
    if value is None:
        return None
    # Nodes between the product and the slice are added again, smaller; the slice itself is gone.
    for move, left in zip(reversed(moves), reversed(cuts[:-1]), strict=True):
        assert left is not None
        attrs: dict[str, Any] = {"shape": tuple(map(len, left))} if move.op == "reshape" else dict(move.attrs)
        value = site.add(move.op, [value], **attrs)
    return value


def _before(site: Site, move: Node, cut: Cut) -> Cut | None:
    """Returns the part of a moving node's input that a part of its result reads; None if it is not a slice."""
    if move.op == "transpose":
        return tuple(cut[place] for place in inverse(move.attrs["axes"]))
    shape, result = site.type(move.inputs[0]).shape, move.type.shape
    parts = [range(extent) for extent in shape]
    for sources, targets in runs(shape, result):
        if all(cut[axis] == range(result[axis]) for axis in targets):
            continue
        many = [axis for axis in sources if shape[axis] > 1]
        # Elements of a run of several longer axes are read across them, which is not a slice along each.
        if len(many) != 1:
            return None
        flat = np.arange(prod(result[axis] for axis in targets)).reshape([result[axis] for axis in targets])
        indices = flat[np.ix_(*(cut[axis] for axis in targets))].reshape(-1)
        step = int(indices[1] - indices[0]) if len(indices) > 1 else 1
        if (np.diff(indices) != step).any():
            return None
        parts[many[0]] = range(int(indices[0]), int(indices[0]) + len(indices) * step, step)
    return tuple(parts)


def _product(site: Site, product: Node, cut: Cut) -> str | None:
    """Adds the product with its constant cut, if no slice remains after it; otherwise returns None."""
    *batch, rows, columns = [
        None if part == range(n) else part for part, n in zip(cut, product.type.shape, strict=True)
    ]
    left, right = (site.array(name) for name in product.inputs)
    if any(part is not None for part in batch) or (rows is columns is None):
        return None
    if (rows is not None and left is None) or (columns is not None and right is None):
        return None
    inputs = [site.new[name] for name in product.inputs]
    if rows is not None and left is not None:
        inputs[0] = site.builder.constant(left[..., list(rows), :], product.inputs[0])
    if columns is not None and right is not None:
        inputs[1] = site.builder.constant(right[..., list(columns)], product.inputs[1])
    return site.add(product.op, inputs, product.name)

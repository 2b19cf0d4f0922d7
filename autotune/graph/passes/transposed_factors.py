"""Products with a large transposed factor that is computed at run time: x w^T = (w x^T)^T leaves it in place.

So a layer with few rows does not move all its weights. If many products read the transposed factor, as the steps of an
unrolled recurrence do, it is transposed once for all of them.
"""

from __future__ import annotations

from autotune.graph.decisions import decide
from autotune.graph.ir import Graph, Node
from autotune.graph.passes.site import Site, sweep
from search_space.dtypes import FLOATS


def transposed_factors(graph: Graph) -> Graph:
    """Transposes the other factor and the result in place of a transposed factor, if fewer elements are moved."""
    return sweep(graph, _transpose_others)


def _transpose_others(site: Site, node: Node) -> str | None:
    """Replaces x w^T by (w x^T)^T."""
    if node.op != "matmul" or (factor := site.node(node.inputs[1], "transpose")) is None:
        return None
    if factor.attrs["axes"] != (1, 0) or any(site.type(name).dtype not in FLOATS for name in node.inputs):
        return None  # of bytes, the first factor alone has no sign
    if not decide("transpose", f"{factor.inputs[0]} {node.name}", _moves_more(site, factor)):
        return None
    left = site.add("transpose", [site.new[node.inputs[0]]], axes=(1, 0))
    product = site.add("matmul", [site.new[factor.inputs[0]], left], node.name)
    return site.add("transpose", [product], axes=(1, 0))


def _moves_more(site: Site, factor: Node) -> bool:
    """Tells whether a transposed factor has more elements than the other factors and results of all its products."""
    if site.array(factor.inputs[0]) is not None or factor.name in site.graph.outputs:
        return False
    readers = site.readers(factor.name)
    if any(reader.op != "matmul" or reader.inputs[0] == factor.name for reader in readers):
        return False
    return factor.type.size > sum(site.type(reader.inputs[0]).size + reader.type.size for reader in readers)

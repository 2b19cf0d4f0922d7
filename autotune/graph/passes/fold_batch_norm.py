"""Folds products with constants, and sums, into the weights and the bias of the layer before them.

Batch normalisation with fixed statistics is one such product and sum per channel (`affine`). New weights are computed
from the old ones in float64 and rounded once. `reassociation.py` decides which constants may be combined.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autotune.graph.ir import Array, Graph, Node
from autotune.graph.passes.reassociation import GREATEST, add_constants, is_exact_divisor, is_moderate, is_sign
from autotune.graph.passes.site import Site, sweep
from search_space.dtypes import NARROW

LAYERS = ("conv2d", "depthwise_conv2d", "matmul")
"""Operations whose weights have the output's channels as their last axis."""

LINEAR = ("affine", "multiply", "add", "subtract", "divide", "negative")


@dataclass(frozen=True)
class _Linear:
    """A value that is `source` times `scale` plus `shift`, in float64; None stands for one and zero."""

    source: str
    scale: Array | None
    shift: Array | None

    def then(self, scale: Array | None, shift: Array | None, exact: bool) -> _Linear | None:
        """Appends a product and a sum; returns None if the constants must not be combined.

        Args:
            scale: factor of the product; None: 1.
            shift: summand; None: 0.
            exact: whether results must stay the same bit by bit; otherwise a layer is to take the constants.
        """
        if exact and not (is_sign(scale) or (is_sign(self.scale) and self.shift is None)):
            return None
        if exact and self.shift is not None and shift is not None:
            return None
        factor = scale if self.scale is None else self.scale if scale is None else self.scale * scale
        if (
            not exact
            and factor is not None
            and not all(is_moderate(f) for f in (self.scale, scale, factor) if f is not None)
        ):
            return None
        first = self.shift if scale is None or self.shift is None else self.shift * scale
        if first is None or shift is None:
            return _Linear(self.source, factor, shift if first is None else first)
        total = add_constants(first, shift)
        return None if total is None else _Linear(self.source, factor, total)


def fold_batch_norm(graph: Graph) -> Graph:
    """Folds constants after a layer into it, and consecutive constants into one operation.

    A value with other readers, or that is an output, stays unchanged.
    """
    return sweep(_into_following(graph), _fold)


def _fold(site: Site, node: Node) -> str | None:
    """Folds the chain that ends at a node; a chain that continues is folded at its later node."""
    found = _chain(site, node, exact=False)
    layer = site.node(found[0].source, *LAYERS) if found is not None else None
    if found is not None and layer is not None and site.private(layer.name):
        flat = _per_channel(found[0], node.type.shape[-1])
        if flat is not None and _is_foldable(site, layer, flat):
            return _folded_layer(site, node, layer, flat)
    alone = _chain(site, node, exact=True)
    # A single sum or product is in canonical form already.
    return _as_one(site, node, alone[0]) if alone is not None and alone[1] > 1 else None


def _is_foldable(site: Site, layer: Node, linear: _Linear) -> bool:
    """Tells whether a layer's weights may be multiplied.

    16-bit weights would be rounded again, and a product that ends a kernel hardly costs more than a sum.
    """
    weight = site.array(layer.inputs[1])
    if weight is None or linear.scale is None:
        return weight is not None
    return str(weight.dtype) not in NARROW and is_moderate(linear.scale) and _stays_moderate(weight, linear.scale)


def _stays_moderate(weight: Array, scale: Array) -> bool:
    """Tells whether weights keep a usual magnitude once multiplied: they may have taken factors before."""
    return bool(np.abs(weight.astype(np.float64) * scale).max(initial=0.0) <= GREATEST)


def _chain(site: Site, node: Node, exact: bool) -> tuple[_Linear, int] | None:
    """Returns a node as a linear function of the earliest value it can be traced to, and the chain's length."""
    step = _step(site, node, exact)
    if step is None:
        return None
    before = site.node(step.source, *LINEAR)
    if before is not None and site.private(step.source) and (found := _chain(site, before, exact)) is not None:
        linear, length = found
        if (longer := linear.then(step.scale, step.shift, exact)) is not None:
            return longer, length + 1
    return step, 1


def _step(site: Site, node: Node, exact: bool) -> _Linear | None:
    """Returns one node as a product and a sum; None for other nodes, or if its operand has another shape."""
    if node.op not in LINEAR or not node.type.dtype.startswith("float"):
        return None
    names = node.inputs
    values = [None if (a := site.array(name)) is None else a.astype(np.float64) for name in names]
    variable = 1 if values[0] is not None and len(values) == 2 else 0
    if values[variable] is not None or any(v is None for i, v in enumerate(values) if i != variable):
        return None
    if site.type(names[variable]).shape != node.type.shape:
        return None
    one = values[1 - variable] if len(values) == 2 else None
    if node.op == "affine":
        return _Linear(names[0], values[1], values[2])
    if node.op == "negative":
        return _Linear(names[0], np.array(-1.0), None)
    if node.op == "add":
        return _Linear(names[variable], None, one)
    if node.op == "multiply":
        return _Linear(names[variable], one, None)
    assert one is not None
    if node.op == "subtract":
        return _Linear(names[0], None, -one) if variable == 0 else _Linear(names[1], np.array(-1.0), one)
    possible = is_exact_divisor(one) if exact else bool(one.all())
    return _Linear(names[0], 1 / one, None) if variable == 0 and possible else None


def _per_channel(linear: _Linear, channels: int) -> _Linear | None:
    """Reshapes the constants to (channels,); returns None if they vary along another axis."""

    def flat(value: Array | None) -> tuple[bool, Array | None]:
        if value is None:
            return True, None
        if value.size == 1:
            return True, np.full(channels, value.reshape(()))
        ok = value.size == channels and value.shape[-1] == channels
        return ok, value.reshape(-1) if ok else None

    (scale_ok, scale), (shift_ok, shift) = flat(linear.scale), flat(linear.shift)
    return _Linear(linear.source, scale, shift) if scale_ok and shift_ok else None


def _folded_layer(site: Site, node: Node, layer: Node, linear: _Linear) -> str | None:
    """Adds the layer with new weights, and a bias if needed; returns None if the nodes have that form already."""
    data, weight = layer.inputs
    if linear.scale is None:
        if linear.shift is None or (node.op == "add" and node.inputs[0] == layer.name and _is_bias(site, node)):
            return None
        new = site.new[weight]
    else:
        new = site.constant(np.asarray(site.array(weight), np.float64) * linear.scale, weight)
    name = site.add(layer.op, [site.new[data], new], layer.name, **layer.attrs)
    return name if linear.shift is None else site.add("add", [name, site.constant(linear.shift, node.name)], node.name)


def _is_bias(site: Site, node: Node) -> bool:
    return site.type(node.inputs[1]).shape == node.type.shape[-1:]


def _as_one(site: Site, node: Node, linear: _Linear) -> str | None:
    """Adds a chain as one operation."""
    source = site.new[linear.source]
    operands = [site.constant(value, node.name) for value in (linear.scale, linear.shift) if value is not None]
    op = "affine" if len(operands) == 2 else "multiply" if linear.scale is not None else "add"
    return site.add(op, [source, *operands], node.name)


def _into_following(graph: Graph) -> Graph:
    """Folds products with constants before a layer into its weights.

    Sums are not folded: for x close to -c, x + c is exact, while sums of products with x round as large numbers do.
    """
    return sweep(graph, _scale_following)


def _scale_following(site: Site, node: Node) -> str | None:
    """Folds a per-channel product before a layer with constant weights into them."""
    if node.op not in ("conv2d", "matmul") or node.attrs.get("groups", 1) != 1:
        return None
    weight, before = site.array(node.inputs[1]), site.node(node.inputs[0], *LINEAR)
    if weight is None or str(weight.dtype) in NARROW or before is None or not site.private(before.name):
        return None
    # A product after another layer is folded into that layer.
    found = _chain(site, before, exact=False)
    if found is None or site.node(found[0].source, *LAYERS) is not None:
        return None
    linear = _per_channel(found[0], before.type.shape[-1])
    if linear is None or linear.scale is None or linear.shift is not None or not is_moderate(linear.scale):
        return None
    scale = linear.scale[:, None]
    if not _stays_moderate(weight, scale):
        return None
    constant = site.constant(weight.astype(np.float64) * scale, node.inputs[1])
    return site.add(node.op, [site.new[linear.source], constant], node.name, **node.attrs)

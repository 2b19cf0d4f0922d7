"""Folds products with and sums of constants into the weights and the bias of the layer before them.

Batch normalisation with fixed statistics is such a product and sum, one of each a channel (`affine`). New weights are
computed in float64 from the old ones and rounded once. `reassociation.py` says which constants may be taken together.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autotune.graph.ir import Array, Graph, Node
from autotune.graph.passes.reassociation import GREATEST, added, is_exact_divisor, is_moderate, is_sign
from autotune.graph.passes.site import Site, sweep
from search_space.dtypes import NARROW

LAYERS = ("conv2d", "depthwise_conv2d", "matmul")
"""Operations with weights whose last axis is that of the output's channels."""

LINEAR = ("affine", "multiply", "add", "subtract", "divide", "negative")


@dataclass(frozen=True)
class _Linear:
    """A value that is `source` times `scale` plus `shift`, in float64; None stands for one and zero."""

    source: str
    scale: Array | None
    shift: Array | None

    def then(self, scale: Array | None, shift: Array | None, exact: bool) -> _Linear | None:
        """Another product and sum after it; None where the constants may not be taken together.

        Args:
            scale: of the product.
            shift: of the sum.
            exact: whether no result may be another one; otherwise a layer is to take the constants.
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
        total = added(first, shift)
        return None if total is None else _Linear(self.source, factor, total)


def fold_batch_norm(graph: Graph) -> Graph:
    """The graph in which constants after a layer are folded into it, and those after each other into one operation.

    A value that another node reads, or the caller, is left as it is.
    """
    return sweep(_into_following(graph), _fold)


def _fold(site: Site, node: Node) -> str | None:
    """Folds the chain that ends here, unless it goes on: then the node after it does."""
    found = _chain(site, node, exact=False)
    layer = site.node(found[0].source, *LAYERS) if found is not None else None
    if found is not None and layer is not None and site.private(layer.name):
        flat = _per_channel(found[0], node.type.shape[-1])
        if flat is not None and _is_foldable(site, layer, flat):
            return _folded_layer(site, node, layer, flat)
    alone = _chain(site, node, exact=True)
    # A sum alone, or a product alone, is in its one form already.
    return _as_one(site, node, alone[0]) if alone is not None and alone[1] > 1 else None


def _is_foldable(site: Site, layer: Node, linear: _Linear) -> bool:
    """Whether a layer's weights may be multiplied.

    Those of 16 bits would be rounded again, and a product that ends a kernel costs hardly more than a sum.
    """
    weight = site.array(layer.inputs[1])
    if weight is None or linear.scale is None:
        return weight is not None
    return str(weight.dtype) not in NARROW and is_moderate(linear.scale) and _stays_moderate(weight, linear.scale)


def _stays_moderate(weight: Array, scale: Array) -> bool:
    """Whether weights are of usual size once they are multiplied: some have taken factors before."""
    return bool(np.abs(weight.astype(np.float64) * scale).max(initial=0.0) <= GREATEST)


def _chain(site: Site, node: Node, exact: bool) -> tuple[_Linear, int] | None:
    """What the node is of the earliest value that it can be traced back to, and in how many nodes."""
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
    """One node as a product and a sum; None where it is none, or brings its operand to another shape."""
    if node.op not in LINEAR or not node.type.dtype.startswith("float"):
        return None
    names = node.inputs
    values = [None if (a := site.array(name)) is None else a.astype(np.float64) for name in names]
    place = 1 if values[0] is not None and len(values) == 2 else 0
    if values[place] is not None or any(v is None for i, v in enumerate(values) if i != place):
        return None
    if site.type(names[place]).shape != node.type.shape:
        return None
    one = values[1 - place] if len(values) == 2 else None
    if node.op == "affine":
        return _Linear(names[0], values[1], values[2])
    if node.op == "negative":
        return _Linear(names[0], np.array(-1.0), None)
    if node.op == "add":
        return _Linear(names[place], None, one)
    if node.op == "multiply":
        return _Linear(names[place], one, None)
    assert one is not None
    if node.op == "subtract":
        return _Linear(names[0], None, -one) if place == 0 else _Linear(names[1], np.array(-1.0), one)
    possible = is_exact_divisor(one) if exact else bool(one.all())
    return _Linear(names[0], 1 / one, None) if place == 0 and possible else None


def _per_channel(linear: _Linear, channels: int) -> _Linear | None:
    """The same with (channels,) arrays, where no number differs along another axis."""

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
    """The layer with new weights, and a bias where there is one; None where that is what stands here."""
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
    """A chain as one operation."""
    source = site.new[linear.source]
    operands = [site.constant(value, node.name) for value in (linear.scale, linear.shift) if value is not None]
    op = "affine" if len(operands) == 2 else "multiply" if linear.scale is not None else "add"
    return site.add(op, [source, *operands], node.name)


def _into_following(graph: Graph) -> Graph:
    """Products with constants before a layer go into its weights.

    Sums do not: where x is close to -c, x + c is exact, while a sum of products with x is rounded as large numbers are.
    """
    return sweep(graph, _scale_following)


def _scale_following(site: Site, node: Node) -> str | None:
    """A product of each channel before a layer with constant weights."""
    if node.op not in ("conv2d", "matmul") or node.attrs.get("groups", 1) != 1:
        return None
    weight, before = site.array(node.inputs[1]), site.node(node.inputs[0], *LINEAR)
    if weight is None or str(weight.dtype) in NARROW or before is None or not site.private(before.name):
        return None
    # What stands after another layer is folded into that one.
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

"""Conversions from and to 16-bit floats: values move in the narrow dtype, and operations widen what they read."""

from __future__ import annotations

from autotune.graph.ir import Node
from autotune.graph.ops import find
from autotune.graph.passes.site import Rule, Site
from search_space.dtypes import FLOATS, NARROW

MOVES = ("reshape", "transpose", "slice", "broadcast_to")
"""Operations with one input that commute with a conversion."""


def _widening(site: Site, name: str) -> Node | None:
    """Returns the node that converts 16 bits to float32 and produces a value, or None."""
    node = site.node(name, "cast")
    widens = node is not None and node.type.dtype == "float32" and site.type(node.inputs[0]).dtype in NARROW
    return node if widens else None


def cast_of_same_type(site: Site, node: Node) -> str | None:
    """Removes conversions to a value's own dtype, also by way of float32, which loses nothing."""
    if node.op != "cast" or node.type.dtype not in FLOATS:
        return None
    if site.type(node.inputs[0]).dtype == node.type.dtype:
        return site.new[node.inputs[0]]
    before = _widening(site, node.inputs[0])
    if before is None:
        return None
    source = site.new[before.inputs[0]]
    same = site.type(before.inputs[0]).dtype == node.type.dtype
    return source if same else site.add("cast", [source], node.name, dtype=node.type.dtype)


def widened_where_read(site: Site, node: Node) -> str | None:
    """Removes conversions before an operation that widens its inputs itself."""
    if find(node.op).moves or not any(_widening(site, name) for name in node.inputs):
        return None
    before = [_widening(site, name) for name in node.inputs]
    inputs = [site.new[n if w is None else w.inputs[0]] for n, w in zip(node.inputs, before, strict=True)]
    return site.add(node.op, inputs, node.name, **node.attrs)


def widened_after_moving(site: Site, node: Node) -> str | None:
    """Rewrites move(cast(x)) as cast(move(x)), which moves half the bytes."""
    before = _widening(site, node.inputs[0]) if node.op in MOVES else None
    if before is None:
        return None
    moved = site.add(node.op, [site.new[before.inputs[0]]], **node.attrs)
    return site.add("cast", [moved], node.name, dtype=node.type.dtype)


def rounded_before_moving(site: Site, node: Node) -> str | None:
    """Rewrites cast(move(x)) as move(cast(x)) if move(x) has no other reader: x's kernel may end with the rounding."""
    if node.op != "cast" or node.type.dtype not in NARROW:
        return None
    before = site.node(node.inputs[0], *MOVES)
    if before is None or before.type.dtype != "float32" or not site.private(before.name):
        return None
    if before.op == "slice" and not site.private(before.inputs[0]):
        return None
    rounded = site.add("cast", [site.new[before.inputs[0]]], dtype=node.type.dtype)
    return site.add(before.op, [rounded], node.name, **before.attrs)


RULES: tuple[Rule, ...] = (cast_of_same_type, widened_where_read, widened_after_moving, rounded_before_moving)

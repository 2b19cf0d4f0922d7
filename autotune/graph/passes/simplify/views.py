"""Operations that only move elements: those without effect are removed, consecutive ones are merged."""

from __future__ import annotations

from autotune.graph.ir import Node
from autotune.graph.ops import Kind, find
from autotune.graph.passes.layout import compose, identity, inverse, keeps_order, through_reshape
from autotune.graph.passes.site import Rule, Site

MOST_PARTS = 64
"""Maximum number of parts of a merged concatenation."""


def drop_idle_moves(site: Site, node: Node) -> str | None:
    """Removes reshapes to the same shape, slices of everything, concatenations of one part, and empty padding."""
    if node.op not in ("reshape", "transpose", "slice", "concat", "pad") or len(node.inputs) != 1:
        return None
    same = node.type == site.type(node.inputs[0])
    if node.op == "transpose":
        same = node.attrs["axes"] == identity(len(node.type.shape))
    if node.op == "slice":
        same = same and all(step > 0 for step in node.attrs["step"])
    return site.new[node.inputs[0]] if same else None


def reshape_of_reshape(site: Site, node: Node) -> str | None:
    """Merges two reshapes into the last."""
    before = site.node(node.inputs[0], "reshape") if node.op == "reshape" else None
    return None if before is None else site.reshape(site.new[before.inputs[0]], node.type.shape)


def transpose_of_transpose(site: Site, node: Node) -> str | None:
    """Merges two transpositions into one, or none."""
    before = site.node(node.inputs[0], "transpose") if node.op == "transpose" else None
    if before is None:
        return None
    source, axes = site.new[before.inputs[0]], compose(before.attrs["axes"], node.attrs["axes"])
    return source if axes == identity(len(axes)) else site.add("transpose", [source], node.name, axes=axes)


def transpose_of_reshaped_transpose(site: Site, node: Node) -> str | None:
    """Merges transpositions around a reshape if that keeps the axes together which the second one moves."""
    between = site.node(node.inputs[0], "reshape") if node.op == "transpose" else None
    before = site.node(between.inputs[0], "transpose") if between is not None else None
    if between is None or before is None or not (site.private(between.name) and site.private(before.name)):
        return None
    way = through_reshape(node.type.shape, inverse(node.attrs["axes"]), before.type.shape)
    if way.inner != identity(len(node.type.shape)):
        return None
    axes = compose(before.attrs["axes"], inverse(way.axes))
    return site.reshape(site.add("transpose", [site.new[before.inputs[0]]], axes=axes), node.type.shape)


def transpose_as_reshape(site: Site, node: Node) -> str | None:
    """Rewrites a transposition that moves only axes of extent 1 as a reshape."""
    if node.op != "transpose" or not keeps_order(site.type(node.inputs[0]).shape, node.attrs["axes"]):
        return None
    return site.reshape(site.new[node.inputs[0]], node.type.shape)


def slice_of_slice(site: Site, node: Node) -> str | None:
    """Merges two slices into one of the source."""
    before = site.node(node.inputs[0], "slice") if node.op == "slice" else None
    if before is None:
        return None
    steps = list(zip(before.attrs["begin"], before.attrs["step"], strict=True))
    begin = [b + s * inner for (b, s), inner in zip(steps, node.attrs["begin"], strict=True)]
    step = [s * inner for (_, s), inner in zip(steps, node.attrs["step"], strict=True)]
    source = site.new[before.inputs[0]]
    return site.add("slice", [source], node.name, begin=begin, size=node.attrs["size"], step=step)


def slice_of_concat(site: Site, node: Node) -> str | None:
    """Replaces a slice within one part of a concatenation by a slice of that part."""
    concat = site.node(node.inputs[0], "concat") if node.op == "slice" else None
    if concat is None:
        return None
    axis = concat.attrs["axis"]
    begin, size, step = (list(node.attrs[name]) for name in ("begin", "size", "step"))
    ends = sorted((begin[axis], begin[axis] + (size[axis] - 1) * step[axis]))
    start = 0
    for part in concat.inputs:
        stop = start + site.type(part).shape[axis]
        if start <= ends[0] and ends[1] < stop:
            begin[axis] -= start
            return site.add("slice", [site.new[part]], node.name, begin=begin, size=size, step=step)
        start = stop
    return None


def concat_of_concat(site: Site, node: Node) -> str | None:
    """Merges nested concatenations up to a limit of parts: a kernel with very many would choose in a deep tree."""
    if node.op != "concat":
        return None
    parts: list[str] = []
    for name in node.inputs:
        inner = site.node(name, "concat")
        if inner is not None and inner.attrs["axis"] == node.attrs["axis"] and site.private(name):
            parts += inner.inputs
        else:
            parts.append(name)
    if len(parts) == len(node.inputs) or len(parts) > max(MOST_PARTS, len(node.inputs)):
        return None
    return site.add("concat", [site.new[name] for name in parts], node.name, **node.attrs)


def pad_of_pad(site: Site, node: Node) -> str | None:
    """Merges two paddings of the same value."""
    before = site.node(node.inputs[0], "pad") if node.op == "pad" else None
    if before is None or before.attrs["value"] != node.attrs["value"] or not site.private(before.name):
        return None
    sides = {
        side: tuple(a + b for a, b in zip(before.attrs[side], node.attrs[side], strict=True))
        for side in ("before", "after")
    }
    return site.add("pad", [site.new[before.inputs[0]]], node.name, **sides, value=node.attrs["value"])


def reshape_after_elementwise(site: Site, node: Node) -> str | None:
    """Moves a reshape that splits the first axis, as after a matrix product, behind an element-wise operation.

    The operation can then end the product's kernel. Its other operands are constant along that axis (a bias) or are
    reshaped themselves.
    """
    if find(node.op).kind is not Kind.elementwise:
        return None
    moved = next((r for name in node.inputs if (r := _splitting(site, name, node)) is not None), None)
    if moved is None:
        return None
    rows = site.type(moved.inputs[0]).shape
    inputs, split = [], len(node.type.shape) - len(rows) + 1
    for name in node.inputs:
        shape = site.type(name).shape
        full = (1,) * (len(node.type.shape) - len(shape)) + shape
        if name == moved.name:
            inputs.append(site.new[moved.inputs[0]])
        elif shape == node.type.shape:
            inputs.append(site.reshape(site.new[name], rows))
        elif all(extent == 1 for extent in full[:split]):
            inputs.append(site.reshape(site.new[name], full[split:]))
        else:
            return None
    return site.reshape(site.add(node.op, inputs, **node.attrs), node.type.shape)


def _splitting(site: Site, name: str, node: Node) -> Node | None:
    """Returns the reshape that splits the first axis of its input and computes a value for this node alone, or None."""
    before = site.node(name, "reshape")
    if before is None or before.type.shape != node.type.shape or not site.private(name):
        return None
    source, made = site.type(before.inputs[0]).shape, site.graph.node(before.inputs[0])
    if made is None or find(made.op).kind not in (Kind.compute, Kind.elementwise) or not site.private(made.name):
        return None
    shape = before.type.shape
    return before if 2 <= len(source) < len(shape) and source[1:] == shape[len(shape) - len(source) + 1 :] else None


RULES: tuple[Rule, ...] = (
    drop_idle_moves,
    reshape_of_reshape,
    transpose_as_reshape,
    transpose_of_transpose,
    transpose_of_reshaped_transpose,
    slice_of_slice,
    slice_of_concat,
    concat_of_concat,
    pad_of_pad,
    reshape_after_elementwise,
)

"""Padding that the layer after it can do itself."""

from __future__ import annotations

import math

from autotune.graph.ir import Node
from autotune.graph.passes.simplify.identities import bounds
from autotune.graph.passes.site import Rule, Site, pair, sides

Sides = tuple[tuple[int, int], tuple[int, int]]


def _padded(site: Site, node: Node) -> tuple[Node, Sides] | None:
    """The pad before a layer, and both paddings together, where rows and columns alone are padded."""
    pad = site.node(node.inputs[0], "pad")
    if pad is None or len(pad.type.shape) != 4:
        return None
    batch, rows, columns, channels = zip(pad.attrs["before"], pad.attrs["after"], strict=True)
    if any((*batch, *channels)):
        return None
    own = sides(node.attrs["padding"])
    height, width = ((p[0] + q[0], p[1] + q[1]) for p, q in zip(own, (rows, columns), strict=True))
    return pad, (height, width)


def into_convolution(site: Site, node: Node) -> str | None:
    """Zeros before a convolution are its padding."""
    if node.op not in ("conv2d", "depthwise_conv2d") or (found := _padded(site, node)) is None:
        return None
    pad, padding = found
    if pad.attrs["value"] != 0:
        return None
    inputs = [site.new[pad.inputs[0]], site.new[node.inputs[1]]]
    return site.add(node.op, inputs, node.name, **{**node.attrs, "padding": padding})


def into_pool(site: Site, node: Node) -> str | None:
    """Padding before a pool that is as good as the pool's own.

    What a largest element ignores is the least number, or zero among numbers that are not negative, as a window always
    has an element of the data. Zeros before a mean are padding that counts.
    """
    if node.op not in ("max_pool2d", "avg_pool2d") or (found := _padded(site, node)) is None:
        return None
    pad, padding = found
    attrs, value = {**node.attrs, "padding": padding}, pad.attrs["value"]
    if not _has_data(site, pad, node, padding):
        return None
    if node.op == "max_pool2d":
        if value != -math.inf and (value != 0 or bounds(site, pad.inputs[0])[0] < 0):
            return None
    elif value != 0 or (any(map(any, sides(node.attrs["padding"]))) and not node.attrs["count_padding"]):
        return None
    else:
        attrs["count_padding"] = True
    return site.add(node.op, [site.new[pad.inputs[0]]], node.name, **attrs)


def _has_data(site: Site, pad: Node, pool: Node, padding: Sides) -> bool:
    """Whether each window holds an element of the data; padding alike at both ends must be at most half of it."""
    kernel, stride = pair(pool.attrs["kernel"]), pair(pool.attrs["stride"])
    extents, outputs = site.type(pad.inputs[0]).shape[1:3], pool.type.shape[1:3]
    return all(
        before < k and (m - 1) * s < before + n and (before != after or 2 * before <= k)
        for (before, after), k, s, n, m in zip(padding, kernel, stride, extents, outputs, strict=True)
    )


RULES: tuple[Rule, ...] = (into_convolution, into_pool)

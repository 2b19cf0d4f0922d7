"""Padding that the layer after it can do itself."""

from __future__ import annotations

import math

from autotune.graph.ir import Node
from autotune.graph.passes.simplify.identities import bounds
from autotune.graph.passes.site import Rule, Site, pair
from search_space.operators.windows import both_sides, normalise_padding

Sides = tuple[tuple[int, int], ...]


def _find_pad(site: Site, node: Node) -> tuple[Node, Sides] | None:
    """Returns the pad node before a layer, if it pads only rows and columns, and the sum of both paddings."""
    pad = site.node(node.inputs[0], "pad")
    if pad is None or len(pad.type.shape) != 4:
        return None
    batch, rows, columns, channels = zip(pad.attrs["before"], pad.attrs["after"], strict=True)
    own = both_sides(normalise_padding(2, node.attrs["padding"]))
    total = tuple((b + p, a + q) for (b, a), (p, q) in zip(own, (rows, columns), strict=True))
    return None if any(batch) or any(channels) else (pad, total)


def into_convolution(site: Site, node: Node) -> str | None:
    """Turns zeros padded before a convolution into its padding."""
    if node.op not in ("conv2d", "depthwise_conv2d") or (found := _find_pad(site, node)) is None:
        return None
    pad, total = found
    if pad.attrs["value"] != 0:
        return None
    inputs = [site.new[pad.inputs[0]], site.new[node.inputs[1]]]
    return site.add(node.op, inputs, node.name, **{**node.attrs, "padding": normalise_padding(2, total)})


def into_pool(site: Site, node: Node) -> str | None:
    """Turns padding before a pooling into its own padding if that is equivalent.

    Maxima ignore minus infinity, and zeros among numbers that are not negative, as every window has an element of the
    image. Zeros before a mean are padding that counts.
    """
    if node.op not in ("max_pool2d", "avg_pool2d") or (found := _find_pad(site, node)) is None:
        return None
    pad, total = found
    own, attrs = both_sides(normalise_padding(2, node.attrs["padding"])), dict(node.attrs)
    if any(2 * max(sides) > k for sides, k in zip(total, pair(attrs["kernel"]), strict=True)):
        return None
    value = pad.attrs["value"]
    if node.op == "max_pool2d":
        if value != -math.inf and (value != 0 or bounds(site, pad.inputs[0])[0] < 0):
            return None
    elif value != 0 or (any(map(any, own)) and not attrs["count_padding"]):
        return None
    else:
        attrs["count_padding"] = True
    return site.add(node.op, [site.new[pad.inputs[0]]], node.name, **{**attrs, "padding": normalise_padding(2, total)})


RULES: tuple[Rule, ...] = (into_convolution, into_pool)

"""Input images of byte layers: one kernel transposes, rounds and fills pixels up to four channels, a word per pixel.

Words are padded afterwards: that copies rows, whereas bytes of a pixel would be moved one by one.
"""

from __future__ import annotations

import numpy as np

from autotune.graph.ir import Graph, Node
from autotune.graph.ops import find
from autotune.graph.ops.images import BYTES, pixel_word
from autotune.graph.passes.site import Site, sweep

ROUNDINGS = ("quantise", "quantise_linear")
CHANNELS_LAST = (0, 2, 3, 1)


def with_image_words(graph: Graph) -> Graph:
    """Transposes, rounds to uint8 and pads input images as words, of which bytes are a view.

    Graphs with layers of an accelerator stay unchanged: their steps share no views of other dtypes.
    """
    if any(find(node.op).offloaded for node in graph.nodes):
        return graph
    return sweep(graph, _as_words)


def _as_words(site: Site, node: Node) -> str | None:
    if node.op not in ("pad", "pad_with") or node.type.dtype != "uint8" or len(node.type.shape) != 4:
        return None
    rounded = site.node(node.inputs[0], *ROUNDINGS)
    if rounded is None or not site.private(rounded.name):
        return None
    turned = site.node(rounded.inputs[0], "transpose")
    numbers = [site.array(name) for name in rounded.inputs[1:]]
    if turned is None or not site.private(turned.name) or turned.attrs["axes"] != CHANNELS_LAST:
        return None
    image, (before, after) = turned.inputs[0], (node.attrs["before"], node.attrs["after"])
    channels = turned.type.shape[-1]
    fits = before[0] == after[0] == before[3] == 0 and channels < BYTES and channels + after[3] == BYTES
    if image not in site.graph.inputs or site.type(image).dtype != "float32" or not fits:
        return None
    if any(array is None or array.size != 1 for array in numbers):
        return None
    value = site.scalar(node.inputs[1]) if node.op == "pad_with" else node.attrs["value"]
    if value is None:
        return None
    filled = np.full(BYTES, int(value), np.uint8)
    words = [np.where(np.arange(BYTES) < channels, 0, filled), filled]
    more, outside = (site.builder.constant(np.array([pixel_word(pixel)])) for pixel in words)
    given = [site.builder.constant(array.reshape(1)) for array in numbers if array is not None]
    made = site.add("image_words", [site.new[image], *given, more], inverse=rounded.op == "quantise")
    if any(before[1:3] + after[1:3]):
        made = site.add("pad_with", [made, outside], before=before[:3], after=after[:3])
    return site.add("as_bytes", [made], node.name)


def rounded_behind_transposition(site: Site, node: Node) -> str | None:
    """Moves the transposition of an image before its rounding, so that one kernel does both."""
    if node.op != "transpose" or not site.private(node.inputs[0]):
        return None
    wide = site.node(node.inputs[0], "dequantise")
    rounding = (
        None if wide is None or not site.private(wide.inputs[0]) else site.node(wide.inputs[0], "quantise_linear")
    )
    if wide is None or rounding is None or rounding.inputs[0] not in site.graph.inputs:
        return None
    numbers = (*rounding.inputs[1:], *wide.inputs[1:])
    if any((array := site.array(name)) is None or array.size != 1 for name in numbers):
        return None
    moved = site.add("transpose", [rounding.inputs[0]], **node.attrs)
    # The old nodes were visited before this one, so their constants have new names.
    constants = [
        [site.builder.constant(site.graph.constants[n].reshape(1)) for n in x.inputs[1:]] for x in (rounding, wide)
    ]
    return site.add(
        "dequantise", [site.add("quantise_linear", [moved, *constants[0]], **rounding.attrs), *constants[1]]
    )

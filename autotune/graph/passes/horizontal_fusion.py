"""Layers that read the same value become one with the channels of all, of which each gets its slice."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np

from autotune.graph.ir import Graph, Node
from autotune.graph.passes.site import Site, pair, sweep

UNARY = ("relu", "relu6", "sigmoid", "tanh", "gelu", "silu", "clip")
"""What may follow each layer alike."""


@dataclass(frozen=True)
class _Layers:
    """Layers side by side.

    Attributes:
        chains: of each layer: itself, and the bias and activation that follow it, as far as all have them alike.
        offsets: the first channel of each, and the end.
    """

    chains: tuple[tuple[Node, ...], ...]
    offsets: tuple[int, ...]


def horizontal_fusion(graph: Graph, most_channels: int | None = None) -> Graph:
    """The graph in which convolutions and products with constant weights that read one value are one.

    Convolutions must have the same kernel, stride, padding and dilation, and one group. Biases and activations that
    follow each alike are merged as well.

    Args:
        graph: stays as it is.
        most_channels: layers are merged up to so many channels together; as many as there are where it is None.
    """
    read = Site(graph)
    groups: dict[Hashable, list[Node]] = {}
    for node in graph.nodes:
        if (key := _key(read, node)) is not None:
            groups.setdefault(key, []).append(node)
    merged: dict[str, _Layers] = {}
    for nodes in groups.values():
        for few in _split(nodes, most_channels):
            layers = _layers(read, few)
            merged |= {node.name: layers for chain in layers.chains for node in chain}
    done: dict[int, str] = {}

    def rule(site: Site, node: Node) -> str | None:
        layers = merged.get(node.name)
        if layers is None:
            return None
        if id(layers) not in done:
            done[id(layers)] = _merge(site, layers)
        place = next(i for i, chain in enumerate(layers.chains) if node in chain)
        if node is not layers.chains[place][-1]:
            return None  # Read by the next of the chain alone: nobody will.
        shape = node.type.shape
        begin = (*(0 for _ in shape[1:]), layers.offsets[place])
        return site.add("slice", [done[id(layers)]], node.name, begin=begin, size=shape)

    return sweep(graph, rule)


def _key(site: Site, node: Node) -> Hashable | None:
    """What layers must have in common."""
    if node.op not in ("conv2d", "matmul") or site.array(node.inputs[1]) is None or node.attrs.get("groups", 1) != 1:
        return None
    window = tuple(pair(node.attrs[name]) for name in ("stride", "padding", "dilation") if name in node.attrs)
    return node.op, node.inputs[0], site.type(node.inputs[1]).shape[:-1], site.type(node.inputs[1]).dtype, window


def _split(nodes: list[Node], most: int | None) -> list[list[Node]]:
    """Layers in order, as many together as may be; those that stay alone are left out."""
    found: list[list[Node]] = [[]]
    for node in nodes:
        if most is not None and sum(n.type.shape[-1] for n in (*found[-1], node)) > most:
            found.append([])
        found[-1].append(node)
    return [few for few in found if len(few) > 1]


def _layers(site: Site, nodes: list[Node]) -> _Layers:
    chains = [[node] for node in nodes]
    readers = site.graph.consumers()
    while all(site.private(chain[-1].name) for chain in chains):
        following = [readers[chain[-1].name][0] for chain in chains]
        biases = all(_is_bias(site, chain[-1], node) for chain, node in zip(chains, following, strict=True))
        alike = len({(node.op, tuple(sorted(node.attrs.items()))) for node in following}) == 1
        if not biases and not (alike and following[0].op in UNARY):
            break
        for chain, node in zip(chains, following, strict=True):
            chain.append(node)
    offsets = np.cumsum([0, *(node.type.shape[-1] for node in nodes)]).tolist()
    return _Layers(tuple(map(tuple, chains)), tuple(offsets))


def _is_bias(site: Site, layer: Node, node: Node) -> bool:
    if node.op != "add" or node.type != layer.type:
        return False
    other = site.array(node.inputs[node.inputs[0] == layer.name])
    return other is not None and other.shape == layer.type.shape[-1:]


def _merge(site: Site, layers: _Layers) -> str:
    """The layer of all, and what follows it."""
    first = layers.chains[0]
    weights = [site.array(chain[0].inputs[1]) for chain in layers.chains]
    weight = site.constant(np.concatenate([w for w in weights if w is not None], -1), first[0].inputs[1])
    name = site.add(first[0].op, [site.new[first[0].inputs[0]], weight], **first[0].attrs)
    for place, node in enumerate(first[1:], 1):
        if node.op != "add":
            name = site.add(node.op, [name], **node.attrs)
            continue
        biases = [a for chain in layers.chains for i in chain[place].inputs if (a := site.array(i)) is not None]
        name = site.add("add", [name, site.constant(np.concatenate(biases), _constant_of(node, site))])
    return name


def _constant_of(node: Node, site: Site) -> str:
    """The operand of a sum that is a constant."""
    return next(name for name in node.inputs if site.array(name) is not None)

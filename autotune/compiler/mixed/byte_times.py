"""Seconds that layers of a network save on bytes, and costs of their values in bytes and in floats."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.compiler.mixed.precision_times import Kernels, Times
from autotune.graph.mixed.byte_layers import ByteLayers
from autotune.graph.precision import LAYERS

CONVERSIONS = ("quantise", "pad_with", "pad")
"""Operations that begin a kernel which makes a layer's bytes."""

WRITE_SHARE = 0.5
"""Share of a kernel's seconds that writing its value in float32 takes at most."""


@dataclass(frozen=True, eq=False)
class ByteSeconds:
    """Seconds saved compared with float32.

    Attributes:
        layers: seconds saved by each layer on bytes, without its writing.
        values: negative seconds of each value that is stored in bytes: its cost.
        floats: negative seconds of each value that is stored in float32, too: its cost. Values with other readers than
            such layers have no entry: they are floats in any case.
        readers: names of the readers of each of these values.
    """

    layers: dict[str, float]
    values: dict[str, float]
    floats: dict[str, float]
    readers: dict[str, tuple[str, ...]]


def byte_seconds(layers: ByteLayers, wide: Kernels, on_bytes: Kernels, times: Times, bandwidth: float) -> ByteSeconds:
    """Estimates the seconds of each layer and value.

    A layer writes bytes for layers on bytes and floats for all others, and both if both read it: so writing, at
    `bandwidth`, counts for the values. Values that a separate kernel rounds to bytes or pads cost its seconds.

    Args:
        layers: layers that may be on bytes.
        wide: kernels with all in float32.
        on_bytes: kernels with all of these layers on bytes.
        times: seconds of both.
        bandwidth: memory bandwidth in bytes per second.
    """
    graph = layers.graph
    producers = {wide.origin(group.output): name for name, group in wide.groups.items()}
    kernels = dict(wide.groups)
    old = {new: name for name, new in layers.quantised_graph.names.items()}

    def kernel_seconds(name: str) -> float:
        workload = kernels[name].workload
        return 0.0 if workload is None else times(name, workload)

    def write_seconds(value: str) -> float:
        """Estimates the seconds to write one byte per element of a value."""
        node = graph.node(value)
        moved = 0.0 if node is None else graph.type(value).nbytes / 4 / bandwidth
        return min(moved, WRITE_SHARE * kernel_seconds(producers[value]) / 4) if value in producers else moved

    def float_name(value: str) -> str:
        """Returns the float32 name of a value of the quantised graph."""
        name = on_bytes.origin(value)
        return old.get(name, name)

    data = [site.name for site in layers.sites if site.name not in graph.constants]
    savings = ByteSeconds({}, {name: -write_seconds(name) for name in data}, {}, {})
    for group in (*on_bytes.groups.values(), *on_bytes.casts):
        if group.workload is None:
            continue
        value, first = float_name(group.output), group.nodes[0]
        name = producers.get(value, "")
        if first.op in (*LAYERS, "depthwise_conv2d") and first.type.dtype == "int32" and name in layers.names:
            size = 1 if on_bytes.graph.type(group.output).dtype == "uint8" else 4
            saved = kernel_seconds(name) - times(name, group.workload)
            savings.layers[name] = saved - (4 - size) * write_seconds(value)
        elif group.inputs and (source := float_name(group.inputs[0])) in savings.values and first.op in CONVERSIONS:
            savings.values[source] -= times(source, group.workload)
    for site in layers.sites:
        readers = {name for name, group in wide.groups.items() if site.name in map(wide.origin, group.inputs)}
        if site.values and site.name not in graph.outputs and readers <= set(site.kernels):
            savings.floats[site.name] = -4 * write_seconds(site.name)
            savings.readers[site.name] = tuple(sorted(readers))
    return savings

"""What layers of a network save on bytes, and what their values cost in bytes and in floats."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.compiler.mixed.precision_times import Kernels, Times
from autotune.graph.mixed.byte_layers import ByteLayers
from autotune.graph.precision import LAYERS

CONVERSIONS = ("quantise", "pad_with", "pad")
"""Operations that begin a kernel which makes a layer's bytes."""

WRITTEN = 0.5
"""Share of a kernel's seconds that writing its value in float32 takes at most."""


@dataclass(frozen=True, eq=False)
class ByteSeconds:
    """Seconds saved beside float32.

    Attributes:
        layers: by each of them on bytes, but for what it writes.
        values: by each value that is stored in bytes; below 0, for that costs some.
        floats: by each value that is stored in floats, too; below 0, in float32. Of values that something else than
            such layers reads there is none: they are floats in any case.
        readers: of each of these, by name.
    """

    layers: dict[str, float]
    values: dict[str, float]
    floats: dict[str, float]
    readers: dict[str, tuple[str, ...]]


def byte_seconds(layers: ByteLayers, wide: Kernels, on_bytes: Kernels, times: Times, bandwidth: float) -> ByteSeconds:
    """What each layer and value accounts for.

    A layer writes bytes for layers on bytes and floats for all else, and both where both read it: so writing, at
    `bandwidth`, is the values' part. Values that a kernel of its own rounds to bytes or pads cost its seconds.

    Args:
        layers: that may be on bytes.
        wide: kernels with all in float32.
        on_bytes: with all of these layers on bytes.
        times: of both.
        bandwidth: of memory, bytes a second.
    """
    graph = layers.graph
    producers = {wide.origin(group.output): name for name, group in wide.groups.items()}
    kernels = dict(wide.groups)
    old = {new: name for name, new in layers.whole.names.items()}

    def seconds_of(name: str) -> float:
        workload = kernels[name].workload
        return 0.0 if workload is None else times(name, workload)

    def written(value: str) -> float:
        """Seconds for a byte an element."""
        node = graph.node(value)
        moved = 0.0 if node is None else graph.type(value).nbytes / 4 / bandwidth
        return min(moved, WRITTEN * seconds_of(producers[value]) / 4) if value in producers else moved

    def float_name(value: str) -> str:
        """Of a value of the quantised graph."""
        name = on_bytes.origin(value)
        return old.get(name, name)

    data = [place.name for place in layers.places if place.name not in graph.constants]
    found = ByteSeconds({}, {name: -written(name) for name in data}, {}, {})
    for group in (*on_bytes.groups.values(), *on_bytes.casts):
        if group.workload is None:
            continue
        value, first = float_name(group.output), group.nodes[0]
        name = producers.get(value, "")
        if first.op in (*LAYERS, "depthwise_conv2d") and first.type.dtype == "int32" and name in layers.names:
            size = 1 if on_bytes.graph.type(group.output).dtype == "uint8" else 4
            saved = seconds_of(name) - times(name, group.workload)
            found.layers[name] = saved - (4 - size) * written(value)
        elif group.inputs and (source := float_name(group.inputs[0])) in found.values and first.op in CONVERSIONS:
            found.values[source] -= times(source, group.workload)
    for place in layers.places:
        readers = {name for name, group in wide.groups.items() if place.name in map(wide.origin, group.inputs)}
        if place.values and place.name not in graph.outputs and readers <= set(place.kernels):
            found.floats[place.name] = -4 * written(place.name)
            found.readers[place.name] = tuple(sorted(readers))
    return found

"""Layers that may work on bytes beside others in floats: their names, their rounding, and graphs with some of them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from autotune.config import Quantisation
from autotune.graph.ir import Array, Graph
from autotune.graph.mixed.rounding_sites import RoundingSite
from autotune.graph.precision import list_narrow_kernels, lower_precision
from autotune.graph.quantise import (
    TEST_INPUTS,
    Calibration,
    QuantisedGraph,
    calibrate,
    load_feeds,
    quantise,
    random_feeds,
)
from autotune.graph.quantise.formats import quantise_weights, weight_scales
from autotune.graph.quantise.units import UnitRole, layers, units


@dataclass(frozen=True, eq=False)
class ByteLayers:
    """The layers of a graph that may be in int8.

    Attributes:
        graph: graph in float32, after the passes.
        calibration: calibration of the graph.
        options: quantisation options.
        quantised_graph: the graph with all of these layers on bytes.
    """

    graph: Graph
    calibration: Calibration
    options: Quantisation
    quantised_graph: QuantisedGraph

    @classmethod
    def of(cls, graph: Graph, seed: int, options: Quantisation) -> ByteLayers | None:
        """Collects the layers of a graph, calibrated as for quantisation of the whole network; None without layers.

        Args:
            graph: graph in float32, after the passes.
            seed: seed of random inputs and of the calibration's samples.
            options: quantisation options; the last sets of its `data` are reserved for measurements.

        Raises:
            ValueError: layers are unknown, or data do not fit.
        """
        if not layers(graph):
            return None
        if options.data is None:
            feeds = random_feeds(graph.inputs, seed, options.inputs)
        else:
            feeds = load_feeds(Path(options.data), graph.inputs)
            if len(feeds) <= TEST_INPUTS:
                raise ValueError(f"`data` must hold more than {TEST_INPUTS} sets of inputs, but got {len(feeds)}")
            feeds = feeds[:-TEST_INPUTS]
        calibration = calibrate(graph, feeds, seed)
        return cls(graph, calibration, options, quantise(graph, calibration, options))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the layers, in order."""
        return tuple(name for name in layers(self.graph) if name not in self.quantised_graph.left_float)

    @cached_property
    def sites(self) -> list[RoundingSite]:
        """Values that layers read as bytes, then weights: each is active if one of its layers is in int8.

        A layer that returns bytes reads its residual as bytes, too.
        """
        readers: dict[str, list[str]] = {}
        for unit in units(self.graph, self.quantised_graph.left_float):
            if unit.part is UnitRole.layer:
                gives_bytes = unit.output.name in self.quantised_graph.names
                for name in unit.data if gives_bytes else unit.data[:1]:
                    readers.setdefault(name, []).append(unit.nodes[0].name)
        values = []
        for name, reading_layers in readers.items():
            stored = self.graph.node(name) is not None
            values.append(RoundingSite(name, tuple(reading_layers), (name,) if stored else (), "" if stored else name))
        weights: dict[str, list[str]] = {}
        for name in self.names:
            node = self.graph.node(name)
            assert node is not None
            weights.setdefault(node.inputs[1], []).append(name)
        return [
            *values,
            *(RoundingSite(name, tuple(reading_layers), (), name) for name, reading_layers in weights.items()),
        ]

    def round_value(self, name: str, array: Array) -> Array:
        """Rounds a value, or the weights of a layer, to the numbers that bytes represent."""
        if name in self.graph.constants:
            scales = weight_scales(array, self.options.per_channel)
            return quantise_weights(array, scales).decode().astype(array.dtype)
        at = self.calibration.format([name], self.options.method)
        return at.decode(at.encode(array)).astype(array.dtype)

    def graph_with(self, names: Collection[str]) -> Graph:
        """Returns the graph with these layers on bytes, the others in float32."""
        if not names:
            return self.graph
        if set(names) == set(self.names):
            return self.quantised_graph.graph
        floats = [name for name in layers(self.graph) if name not in names]
        return quantise(self.graph, self.calibration, self.options.model_copy(update={"floats": floats})).graph


def in_types(
    graph: Graph, dtype: str, narrow: Collection[str], in_bytes: Collection[str] = (), layers: ByteLayers | None = None
) -> Graph:
    """Returns the graph with each kernel in its type.

    Floats that a kernel on bytes returns are stored in `dtype`, like those of a kernel in `dtype`.

    Args:
        graph: graph in float32, after the passes.
        dtype: `bfloat16` or `float16`.
        narrow: kernels in `dtype`, from `list_narrow_kernels`.
        in_bytes: layers in int8.
        layers: layers that may be in int8; None: there are no such layers.
    """
    known = set(list_narrow_kernels(graph))
    quantised = graph if layers is None else layers.graph_with(in_bytes)
    full = [name for name in list_narrow_kernels(quantised) if name in known and name not in narrow]
    return lower_precision(quantised, dtype, full)

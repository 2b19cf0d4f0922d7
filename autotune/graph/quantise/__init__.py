"""Post-training quantisation: from graphs in floats to graphs on bytes with scales and zeros."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.config import Quantisation
from autotune.graph.ir import Graph
from autotune.graph.quantise.accuracy import Accuracy, measure_accuracy
from autotune.graph.quantise.calibration import Calibration, Feeds, calibrate, load_feeds, random_feeds
from autotune.graph.quantise.dot_products import with_dot_products
from autotune.graph.quantise.formats import METHODS, Format
from autotune.graph.quantise.images import with_image_words
from autotune.graph.quantise.imported import ByteGraph, has_roundings, is_quantised, with_byte_layers
from autotune.graph.quantise.rewriting import QuantisedGraph, quantise
from autotune.graph.quantise.shifting import quantise_shift
from autotune.graph.quantise.weights import BITS, quantise_weights_only

__all__ = [
    "BITS",
    "METHODS",
    "MODES",
    "TEST_INPUTS",
    "Accuracy",
    "Calibration",
    "Feeds",
    "Format",
    "ByteGraph",
    "QuantisedGraph",
    "calibrate",
    "has_roundings",
    "is_quantised",
    "load_feeds",
    "measure_accuracy",
    "quantise",
    "quantise_shift",
    "quantise_weights_only",
    "quantise_with_report",
    "random_feeds",
    "with_byte_layers",
    "with_dot_products",
    "with_image_words",
]

TEST_INPUTS = 2
"""Sets of inputs that are reserved for the measurement of accuracy."""
MODES = {"int8": quantise, "shift8": quantise_shift}
"""Quantisation methods by the names of `network.quantise`."""


def quantise_with_report(
    graph: Graph,
    seed: int = 0,
    options: Quantisation | None = None,
    feeds: Sequence[Feeds] | None = None,
    mode: str = "int8",
) -> tuple[QuantisedGraph, Accuracy]:
    """Quantises a graph on some sets of inputs, and measures its accuracy on others.

    Args:
        graph: optimised graph in floats.
        seed: seed of random inputs and of the calibration's samples.
        options: quantisation options, `data` is not read; None: all layers, one scale per channel.
        feeds: sets of inputs in place of random ones; the last ones serve for the measurement.
        mode: one of `MODES`.

    Raises:
        GraphError: the graph has no layer with constant weights.
        ValueError: a method or layer is unknown, or there are too few sets.
    """
    if feeds is not None and len(feeds) <= TEST_INPUTS:
        raise ValueError(f"`feeds` must hold more than {TEST_INPUTS} sets of inputs, but got {len(feeds)}")
    options = options or Quantisation()
    train = random_feeds(graph.inputs, seed, options.inputs) if feeds is None else feeds[:-TEST_INPUTS]
    test = random_feeds(graph.inputs, seed + 1, TEST_INPUTS) if feeds is None else feeds[-TEST_INPUTS:]
    found = MODES[mode](graph, calibrate(graph, train, seed), options)
    return found, measure_accuracy(graph, found, test)

"""Estimate of a layer's signal-to-noise ratio in bytes, before the graph is rewritten."""

from __future__ import annotations

import numpy as np

from autotune.graph.ir import Graph, Node
from autotune.graph.quantise.calibration import Calibration
from autotune.graph.quantise.formats import decibels, quantise_weights, squared_error, weight_scales


def layer_decibels(graph: Graph, node: Node, calibration: Calibration, method: str, per_channel: bool) -> float:
    """Estimates the ratio of a layer's output to the errors from bytes of its data and weights, in dB.

    Both errors are assumed independent. A channel's noise is the sum of its squared weights times the data's squared
    error, plus its weights' squared errors times the data's mean square. Nothing is evaluated, as the calibration has
    samples of data and output.

    Args:
        graph: graph in floats.
        node: layer with constant weights.
        calibration: calibration of the graph.
        method: method by which the data's format is chosen.
        per_channel: whether each channel's weights have a scale of their own.
    """
    source, weight = node.inputs[:2]
    data = calibration.observations[source].sample.astype(np.float64)
    columns = graph.constants[weight].reshape(-1, graph.constants[weight].shape[-1]).astype(np.float64)
    weights = quantise_weights(columns, weight_scales(columns, per_channel))
    rounded = squared_error(data, calibration.format([source], method))
    noise = rounded * float((columns**2).sum(0).mean())
    noise += float((data**2).mean()) * float(((weights.values * weights.scales - columns) ** 2).sum(0).mean())
    signal = float((calibration.observations[node.name].sample.astype(np.float64) ** 2).mean())
    return decibels(signal, noise)

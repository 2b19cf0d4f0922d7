"""What a layer's bytes would cost, known before anything is rewritten: signal to noise of its output."""

from __future__ import annotations

import numpy as np

from autotune.graph.ir import Graph, Node
from autotune.graph.quantise.calibration import Calibration
from autotune.graph.quantise.formats import decibels, quantise_weights, squared_error, weight_scales


def layer_decibels(graph: Graph, node: Node, calibration: Calibration, method: str, per_channel: bool) -> float:
    """Ratio of a layer's output to what bytes of its data and weights add to it, dB.

    Both errors are taken to be independent of all else, so that an output channel has the sum of its squared weights
    times the data's squared error, and its weights' squared errors times the data's mean square. Nothing is evaluated:
    the calibration has seen data and output.

    Args:
        graph: in floats.
        node: a layer with constant weights.
        calibration: of the graph.
        method: by which the data's format is chosen.
        per_channel: whether each channel's weights have a scale of their own.
    """
    source, weight = node.inputs[:2]
    data = calibration.observed[source].sample.astype(np.float64)
    columns = graph.constants[weight].reshape(-1, graph.constants[weight].shape[-1]).astype(np.float64)
    weights = quantise_weights(columns, weight_scales(columns, per_channel))
    rounded = squared_error(data, calibration.format([source], method))
    noise = rounded * float((columns**2).sum(0).mean())
    noise += float((data**2).mean()) * float(((weights.values * weights.scales - columns) ** 2).sum(0).mean())
    signal = float((calibration.observed[node.name].sample.astype(np.float64) ** 2).mean())
    return decibels(signal, noise)

"""Quantisation after training: graphs in floats to graphs on bytes with scales that are powers of two."""

from __future__ import annotations

from autotune.graph.ir import Graph
from autotune.graph.quantise.accuracy import Accuracy, measure_accuracy
from autotune.graph.quantise.calibration import Calibration, calibrate, random_feeds
from autotune.graph.quantise.formats import METHODS, Format
from autotune.graph.quantise.rewriting import Options, Quantised, quantise

__all__ = [
    "METHODS",
    "Accuracy",
    "Calibration",
    "Format",
    "Options",
    "Quantised",
    "calibrate",
    "measure_accuracy",
    "quantise",
    "quantise_with_report",
    "random_feeds",
]

CALIBRATION_INPUTS = 4
TEST_INPUTS = 2


def quantise_with_report(graph: Graph, seed: int = 0, options: Options | None = None) -> tuple[Quantised, Accuracy]:
    """Quantises a graph on random inputs, and measures it on others.

    Raises:
        GraphError: no layer with constant weights.
    """
    calibration = calibrate(graph, random_feeds(graph.inputs, seed, CALIBRATION_INPUTS), seed)
    found = quantise(graph, calibration, options)
    return found, measure_accuracy(graph, found, random_feeds(graph.inputs, seed + 1, TEST_INPUTS))

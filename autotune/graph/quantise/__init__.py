"""Quantisation after training: graphs in floats to graphs on bytes with scales that are powers of two."""

from __future__ import annotations

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
    "random_feeds",
]

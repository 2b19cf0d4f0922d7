"""Networks with kernels in float32, bfloat16 and int8: kernels give what the graph gives in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import pytest

import autotune.graph.precision
from autotune.config import Quantisation
from autotune.graph.copies import executable_graph
from autotune.graph.evaluate import evaluate
from autotune.graph.ir import Graph
from autotune.graph.passes import optimise
from autotune.graph.precision import kernels_of, lower_precision
from autotune.graph.quantise import calibrate, quantise, random_feeds
from autotune.graph.quantise.units import layers
from autotune.network.check import TOLERANCE, check_network
from autotune.network.load import Network, load_network
from autotune.network.lowered import stored_values
from autotune.network.schedules import Schedules
from tests.autotune.fakes import settings_with
from tests.graph.nets import residual
from tests.graph.quantise.nets import mixed, transformer
from tests.graph.random_graphs import random_graph

SETTINGS = settings_with(threads=1)
SCHEDULES = Schedules({}, SETTINGS)
"""Of all networks here, so that each workload's space is searched once."""


def in_three_types(graph: Graph, seed: int) -> Graph:
    """A random part of the layers in int8, of the other kernels a random part in bfloat16."""
    rng = np.random.default_rng(seed)
    calibration = calibrate(graph, random_feeds(graph.inputs, seed, 2))
    names = layers(graph)
    floats = [name for name in names if rng.random() < 0.5]
    options = Quantisation(floats=floats, least_decibels=0)
    bytes_too = quantise(graph, calibration, options).graph if len(floats) < len(names) else graph
    return lower_precision(bytes_too, "bfloat16", [name for name in kernels_of(bytes_too) if rng.random() < 0.5])


@pytest.mark.parametrize(
    "make",
    [residual, mixed, transformer, *(partial(random_graph, seed) for seed in range(6))],
    ids=["residual", "mixed", "transformer", *map(str, range(6))],
)
@pytest.mark.parametrize("seed", range(2))
def test_random_choices_agree_with_numpy_kernel_by_kernel(
    make: Callable[[], Graph], seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(autotune.graph.precision, "FEW_CHANNELS", 0)
    graph = optimise(make())
    lowered = executable_graph(in_three_types(graph, seed))
    network = Network("random", onnx.ModelProto(), lowered, (), precision="bfloat16")
    (feeds,) = random_feeds(graph.inputs, 7, 1)
    _, errors = stored_values(network, SCHEDULES, SETTINGS, feeds, tmp_path)
    assert max(errors.values(), default=0.0) < TOLERANCE, errors

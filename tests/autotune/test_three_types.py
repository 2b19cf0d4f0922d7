"""Networks with kernels in float32, bfloat16 and int8: kernels give what the graph gives in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import pytest

import autotune.graph.precision
import autotune.network.lowered
from autotune.config import Quantisation
from autotune.graph.copies import executable_graph
from autotune.graph.ir import Graph
from autotune.graph.onnx_model import load_model
from autotune.graph.passes import optimise
from autotune.graph.precision import kernels_of, lower_precision
from autotune.graph.quantise import calibrate, quantise, random_feeds
from autotune.graph.quantise.units import layers
from autotune.network.check import TOLERANCE, check_network
from autotune.network.load import Network, load_network
from autotune.network.lowered import stored_values
from autotune.network.schedules import Schedules
from tests.autotune.fakes import settings_with
from tests.autotune.test_network import two_layers
from tests.graph.nets import residual
from tests.graph.quantise.nets import transformer
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
    ("make", "seed"),
    [(residual, 0), (transformer, 1), *((partial(random_graph, seed), seed) for seed in range(4))],
    ids=["residual", "transformer", *map(str, range(4))],
)
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


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> onnx.ModelProto:
    return load_model(str(two_layers(tmp_path_factory.mktemp("two") / "two.onnx")))


def test_a_quantised_network_has_its_floats_in_16_bits(model: onnx.ModelProto) -> None:
    how = Quantisation(last=False)
    network = load_network(model, "two", quantise="int8", how=how, precision="bfloat16")
    kinds = {node.type.dtype for node in network.graph.nodes}
    assert {"uint8", "int32", "bfloat16"} <= kinds
    assert network.accuracy is not None and network.accuracy.float_layers == 1
    check = check_network(network, SCHEDULES, SETTINGS)
    assert check.max_error < TOLERANCE
    assert check.rounding["y"].decibels > 20


def test_more_of_one_weight_of_bytes_fails(model: onnx.ModelProto, monkeypatch: pytest.MonkeyPatch) -> None:
    network = load_network(model, "two", quantise="int8", how=Quantisation(last=False), precision="bfloat16")
    compiled = autotune.network.lowered.compile_network

    def changed(network: Network, *rest: object) -> object:
        g = network.graph
        name, old = next((n, a) for n, a in g.constants.items() if a.dtype == np.int8 and a.ndim == 4)
        other = Graph(g.name, g.inputs, {**g.constants, name: old // 2}, g.nodes, g.outputs)
        return compiled(replace(network, graph=other), *rest)

    monkeypatch.setattr(autotune.network.lowered, "compile_network", changed)
    assert check_network(network, SCHEDULES, SETTINGS).max_error > 10 * TOLERANCE


def test_shifted_integers_have_float32_beside_them(model: onnx.ModelProto) -> None:
    with pytest.raises(ValueError, match="`precision` must be float32 beside quantise='shift8', but got precision='bf"):
        load_network(model, "two", quantise="shift8", precision="bfloat16")

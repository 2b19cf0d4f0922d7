"""Networks with kernels in float32, bfloat16 and int8: kernels give what the graph gives in NumPy."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import pytest

import autotune.compiler.checking.check
import autotune.compiler.checking.probing
import autotune.graph.precision
from autotune.compiler.checking.check import TOLERANCE, check_network
from autotune.compiler.checking.lowered import stored_values
from autotune.compiler.options import CompileOptions
from autotune.compiler.prepare import Network, load_network
from autotune.compiler.selection import Limits
from autotune.config import Quantisation
from autotune.graph.copies import executable_graph
from autotune.graph.evaluate import evaluate
from autotune.graph.frontends.onnx.model import load_model
from autotune.graph.ir import Graph
from autotune.graph.mixed import ByteLayers, Mixture, in_types, noise_between, sensitivities
from autotune.graph.passes import optimise
from autotune.graph.precision import list_narrow_kernels
from autotune.graph.quantise import random_feeds
from tests.autotune.compiler.test_mixed import chooser
from tests.autotune.compiler.test_mixed import layers as products
from tests.autotune.compiler.test_network import call, two_layers
from tests.autotune.fakes import settings_with
from tests.autotune.graph.nets import residual
from tests.autotune.graph.quantise.nets import transformer
from tests.autotune.graph.random_graphs import random_graph
from tests.autotune.kept import make_untuned

SETTINGS = settings_with(threads=1)
SCHEDULES = make_untuned(SETTINGS)
"""Schedules of all networks here, so that each workload's space is searched once."""


def in_three_types(graph: Graph, seed: int) -> Graph:
    """A random part of the layers in int8, of the other kernels a random part in bfloat16."""
    rng = np.random.default_rng(seed)
    layers = ByteLayers.of(graph, seed, Quantisation(least_decibels=0, inputs=2))
    in_bytes = [name for name in layers.names if rng.random() < 0.5] if layers is not None else []
    narrow = [name for name in list_narrow_kernels(graph) if name not in in_bytes and rng.random() < 0.5]
    return in_types(graph, "bfloat16", narrow, in_bytes, layers)


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
    network = load_network(model, "two", CompileOptions(quantise="int8", quantisation=how, precision="bfloat16"))
    kinds = {node.type.dtype for node in network.graph.nodes}
    assert {"uint8", "int32", "bfloat16"} <= kinds
    assert network.accuracy is not None and network.accuracy.float_layers == 1
    check = check_network(network, SCHEDULES, SETTINGS)
    assert check.max_error < TOLERANCE
    assert check.rounding["y"].decibels > 20


def test_more_of_one_weight_of_bytes_fails(model: onnx.ModelProto, monkeypatch: pytest.MonkeyPatch) -> None:
    network = load_network(
        model, "two", CompileOptions(quantise="int8", quantisation=Quantisation(last=False), precision="bfloat16")
    )
    compiled = autotune.compiler.checking.check.compile_network

    def compile_other(network: Network, *rest: object) -> object:
        g = network.graph
        name, old = next((n, a) for n, a in g.constants.items() if a.dtype == np.int8 and a.ndim == 4)
        other = Graph(g.name, g.inputs, {**g.constants, name: old // 2}, g.nodes, g.outputs)
        return compiled(replace(network, graph=other), *rest)

    for module in (autotune.compiler.checking.check, autotune.compiler.checking.probing):
        monkeypatch.setattr(module, "compile_network", compile_other)
    assert check_network(network, SCHEDULES, SETTINGS).max_error > 10 * TOLERANCE


def test_shifted_integers_have_float32_beside_them(model: onnx.ModelProto) -> None:
    with pytest.raises(ValueError, match="`precision` must be float32 beside quantise='shift8', but got precision='bf"):
        load_network(model, "two", CompileOptions(quantise="shift8", precision="bfloat16"))


INT8 = Quantisation(inputs=2)
DOTS = settings_with("cpu:znver4", threads=1)
"""Settings for a processor on which bytes are the fastest, whatever this host has."""
byte_chooser = partial(chooser, settings=DOTS, limits=Limits(hardware=DOTS.target.hardware))


def test_layers_on_bytes_are_chosen_where_the_bound_allows_them() -> None:
    found = [byte_chooser(decibels, int8=INT8)(products(), onnx.ModelProto()) for decibels in (60.0, 40.0, 30.0)]
    kernels = set(list_narrow_kernels(products()))
    for mixture in found:
        assert mixture.measured_decibels >= mixture.required_decibels
        assert {*mixture.full, *mixture.narrow, *mixture.int8} == kernels and mixture.bytes_allowed
    assert not found[0].int8 and found[2].int8
    assert found[0].seconds >= found[1].seconds >= found[2].seconds
    assert "and 0 in int8" in str(found[0])
    shown = found[2].front
    assert shown[0].name == "float32" and {"bfloat16", "int8"} <= {point.name for point in shown}
    assert sorted(shown, key=lambda point: -point.decibels) == list(shown)
    assert Mixture.from_json(json.loads(json.dumps(found[2].to_json()))) == found[2]


def test_noise_of_bytes_adds_up() -> None:
    graph = products()
    layers = ByteLayers.of(graph, 0, INT8)
    assert layers is not None and set(layers.names) == set(list_narrow_kernels(graph))
    feeds = random_feeds(graph.inputs, 1, 2)
    noise = sensitivities(graph, layers.sites, feeds, layers.round_value)
    lowered = in_types(graph, "bfloat16", (), layers.names, layers)
    outputs = [[{"y": evaluate(g, f)[g.outputs[0]]} for f in feeds] for g in (lowered, graph)]
    assert 0.5 < noise_between(*outputs)["y"] / noise.sum() < 2


def test_a_residual_is_a_place_of_the_layer_that_adds_it() -> None:
    graph = optimise(residual())
    layers = ByteLayers.of(graph, 0, INT8)
    assert layers is not None
    read = {node.name: node.inputs for node in graph.nodes}
    values = [place for place in layers.sites if place.values]
    added = [(place.name, n) for place in values for n in place.kernels if place.name not in read[n]]
    assert len(added) == sum(node.op == "add_widened" for node in layers.quantised_graph.graph.nodes) > 0


def test_a_choice_without_bytes_is_not_taken_where_they_are_allowed(tmp_path: Path) -> None:
    kept = tmp_path / "precision.json"
    before = byte_chooser(30.0)(products(), onnx.ModelProto())
    kept.write_text(json.dumps(before.to_json()))
    assert byte_chooser(30.0, earlier=kept)(products(), onnx.ModelProto()) == before
    again = byte_chooser(30.0, earlier=kept, int8=INT8)(products(), onnx.ModelProto())
    assert again.int8 and again != before


def test_data_of_too_few_sets_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "two.npz"
    np.savez(file, x=np.zeros((2, 16, 32), np.float32))
    with pytest.raises(ValueError, match=r"`data` must hold more than 2 sets of inputs, but got 2"):
        ByteLayers.of(products(), 0, Quantisation(data=str(file)))


HAS_DOTS = "avx512vnni" in SETTINGS.target.hardware.features
"""Support of byte products by one instruction; without it, floats are faster here."""


def test_a_run_in_three_types(tmp_path: Path) -> None:
    file = two_layers(tmp_path / "two.onnx")
    config = tmp_path / "two.yaml"
    config.write_text(
        f"model: {file}\ntrials: 8\noutput: {tmp_path / 'run'}\nmeasure: {{threads: 1}}\n"
        "network: {precision: mixed, quantise: int8, accuracy: 15}\n"
    )
    done = call("run", config)
    assert done.exit_code == 0, done.output
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())["network"]
    mixture = summary["mixture"]
    assert bool(mixture["int8"]) == HAS_DOTS and mixture["bytes_allowed"] and summary["accuracy"] is None
    # Null is infinite: nothing is rounded where floats are the fastest of all.
    rounded = bool(mixture["int8"] or mixture["narrow"])
    assert mixture["measured"] >= 15 if rounded else mixture["measured"] is None
    assert summary["max_error"] < TOLERANCE
    assert json.loads((tmp_path / "run" / "precision.json").read_text()) == mixture
    assert "in int8" in done.output
    shown = call("tasks", config)
    assert shown.exit_code == 0 and ("uint8" in shown.output) == HAS_DOTS and "in int8" in shown.output

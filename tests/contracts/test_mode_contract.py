"""The contract of modes: kernels compute what the graph of a mode says, and that is near the model in floats."""

from __future__ import annotations

import re
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import onnx
import pytest

from autotune.compiler.checking.check import TOLERANCE, check_network
from autotune.compiler.modes import Mode, precision_mode, precision_of_all, quantisation_mode, quantisation_of_weights
from autotune.compiler.options import CompileOptions
from autotune.compiler.pipeline import make_pipeline
from autotune.compiler.prepare import Network, load_network
from autotune.graph.evaluate import evaluate
from autotune.graph.frontends.onnx.model import load_model
from autotune.graph.quantise.formats import decibels
from autotune.modes import CHOOSING, PRECISIONS, QUANTISATIONS
from tests.autotune.compiler.test_network import two_layers
from tests.autotune.fakes import settings_with
from tests.autotune.kept import make_untuned

pytestmark = pytest.mark.usefixtures("kernel_cache")

LEAST_DECIBELS = 15.0
"""Least signal-to-noise ratio in dB beside the model in float32; weights of 4 bits have 20 or so."""
PAIRS = [(precision, quantise) for precision, quantise in product(PRECISIONS, (None, *QUANTISATIONS))]


@cache
def model(folder: Path) -> onnx.ModelProto:
    return load_model(str(two_layers(folder / "two.onnx")))


def options_with(precision: str, quantise: str | None) -> CompileOptions:
    mode = None if quantise is None else quantisation_mode(quantise)
    return CompileOptions(precision=precision_mode(precision), quantise=mode)


def networks(model: onnx.ModelProto) -> dict[tuple[str, str | None], Network]:
    """The network in every pair of modes that go together and choose nothing."""
    result = {}
    for precision, quantise in PAIRS:
        try:
            options = options_with(precision, quantise)
        except ValueError:
            continue
        if precision not in CHOOSING:
            result[precision, quantise] = load_network(model, "two", options)
    return result


@pytest.fixture(scope="module")
def loaded_networks(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str | None], Network]:
    return networks(model(tmp_path_factory.mktemp("two")))


@pytest.mark.parametrize("mode", [*map(precision_mode, PRECISIONS), *map(quantisation_mode, QUANTISATIONS)])
def test_a_mode_says_what_it_is(mode: Mode) -> None:
    assert mode.__doc__ and mode.chooses == (mode.name in CHOOSING)
    assert mode.name in PRECISIONS or mode.name in QUANTISATIONS


@pytest.mark.parametrize(
    ("page", "row", "modes"),
    [
        ("config", "network.precision", set(PRECISIONS)),
        ("config", "network.quantise", set(QUANTISATIONS)),
        ("precision", r"\w+", set(PRECISIONS) - CHOOSING),
        ("pytorch", "precision", set(PRECISIONS) - CHOOSING),
    ],
)
def test_pages_name_every_mode(page: str, row: str, modes: set[str]) -> None:
    text = (Path(__file__).parents[2] / "docs" / f"{page}.md").read_text()
    rows = re.findall(rf"^\| `{row}` \|.*$", text, re.MULTILINE)
    assert modes <= {word for line in rows for word in re.findall(r"`(\w+)`", line)}


@pytest.mark.parametrize("precision", sorted(set(PRECISIONS) - CHOOSING))
def test_a_graph_is_near_the_model(precision: str, loaded_networks: dict[tuple[str, str | None], Network]) -> None:
    pairs = {pair: network for pair, network in loaded_networks.items() if pair[0] == precision}
    assert (precision, None) in pairs
    plain = next(iter(pairs.values())).source.graph()
    rng = np.random.default_rng(0)
    feeds = {name: rng.standard_normal(kind.shape).astype(kind.dtype) for name, kind in plain.inputs.items()}
    wanted = evaluate(plain, feeds)[plain.outputs[0]]
    for pair, network in pairs.items():
        result = evaluate(network.graph, feeds)[network.graph.outputs[0]]
        noise = float(np.mean((wanted - result) ** 2))
        assert decibels(float(np.mean(wanted**2)), noise) > LEAST_DECIBELS, pair


@pytest.mark.parametrize("quantise", [None, *QUANTISATIONS])
def test_kernels_compute_what_the_graph_says(
    quantise: str | None, loaded_networks: dict[tuple[str, str | None], Network]
) -> None:
    settings = settings_with(threads=1)
    pairs = {pair: network for pair, network in loaded_networks.items() if pair[1] == quantise}
    assert ("float32", quantise) in pairs
    for pair, network in pairs.items():
        assert check_network(network, make_untuned(settings), settings).max_error < TOLERANCE, pair


def test_pairs_that_exclude_each_other_are_named() -> None:
    for precision, quantise in PAIRS:
        try:
            options = options_with(precision, quantise)
        except ValueError as error:
            assert str(quantise) in str(error), (precision, quantise)
        else:
            if precision not in CHOOSING:
                assert [step.name for step in make_pipeline(options).passes][-1] == "copy_views"


def test_names_that_there_are_not_are_refused() -> None:
    with pytest.raises(
        ValueError, match="^`precision` must be one of float32, bfloat16, .*, but got precision='bf16'$"
    ):
        precision_mode("bf16")
    with pytest.raises(ValueError, match="^`quantise` must be one of int8, .*, but got quantise='int4'$"):
        quantisation_mode("int4")
    with pytest.raises(ValueError, match="^`precision` must be one of (?:(?!mixed).)*, but got precision='mixed'$"):
        precision_of_all("mixed")
    with pytest.raises(
        ValueError, match="^`quantise` must be one of weights8, weights4 or None, but got quantise='int8'$"
    ):
        quantisation_of_weights("int8")

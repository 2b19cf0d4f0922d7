"""Networks in mixed precision: the choice keeps its bound and is the same every time, kernels agree with NumPy."""

from __future__ import annotations

import itertools
import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

import autotune.compiler.mixed.chooser
import autotune.compiler.mixed.type_problem
import autotune.graph.precision
from autotune.compiler.checking.check import TOLERANCE, check_network
from autotune.compiler.checking.lowered import stored_values
from autotune.compiler.checking.process import RuntimeFailure
from autotune.compiler.mixed.chooser import AS_OPENVINO, Chooser
from autotune.compiler.mixed.precision_times import Kernels, Times, saved_seconds
from autotune.compiler.mixed.type_resolution import resolve_types
from autotune.compiler.options import CompileOptions
from autotune.compiler.prepare import Network as Loaded
from autotune.compiler.prepare import load_network
from autotune.compiler.selection import Limits
from autotune.compiler.sources import ModelSource, OnnxSource
from autotune.config import ConfigError, Network, RunConfig
from autotune.graph.copies import executable_graph
from autotune.graph.frontends.onnx.importer import import_model
from autotune.graph.frontends.onnx.model import load_model
from autotune.graph.ir import Graph, GraphBuilder, TensorType
from autotune.graph.mixed import Mixture, Problem, list_rounding_sites
from autotune.graph.passes import optimise
from autotune.graph.precision import list_narrow_kernels, lower_precision
from autotune.run.workloads import import_network
from autotune.schedule_store import MemoryStore
from search_space.extras import MissingExtra
from tests.autotune.compiler.test_network import call, two_layers
from tests.autotune.fakes import settings_with
from tests.autotune.graph.random_graphs import draw_inputs, random_graph
from tests.autotune.kept import make_untuned

SETTINGS = settings_with(threads=1)
SCHEDULES = make_untuned(SETTINGS)


def chooser(accuracy: float | str = 40.0, **fields: object) -> Chooser:
    return replace(Chooser(SETTINGS, Limits(hardware=SETTINGS.target.hardware), accuracy), **fields)


def layers(widths: tuple[int, ...] = (32, 256, 256, 256, 32), fragile: int | None = None) -> Graph:
    """Products of matrices of rows with a rectifier between them.

    Of the `fragile` one the weights are large and cancel each other on its data, whose columns are alike in pairs.
    """
    rng = np.random.default_rng(0)
    builder = GraphBuilder("layers", {"x": TensorType((16, widths[0]))})
    value = "x"
    for number, (k, n) in enumerate(itertools.pairwise(widths)):
        weight = (rng.standard_normal((k, n)) * np.sqrt(2 / k)).astype(np.float32)
        if fragile == number + 1:
            weight[:, 1::2] = weight[:, ::2]
        if fragile == number:
            large = (100 * rng.standard_normal((k // 2, n))).astype(np.float32)
            weight[::2], weight[1::2] = large + weight[::2], -large
        value = builder.add("matmul", [value, builder.constant(weight, f"w{number}")], f"layer{number}")
        value = builder.add("relu", [value], f"relu{number}") if number < len(widths) - 2 else value
    return builder.finish([value])


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> onnx.ModelProto:
    return load_model(str(two_layers(tmp_path_factory.mktemp("two") / "two.onnx")))


@pytest.mark.parametrize("decibels", [30.0, 55.0, 70.0])
def test_the_bound_is_kept(decibels: float) -> None:
    mixture = chooser(decibels)(layers(), OnnxSource(onnx.ModelProto()))
    assert mixture.measured_decibels >= decibels == mixture.required_decibels
    assert abs(mixture.predicted_decibels - mixture.measured_decibels) < 3 or not mixture.narrow
    assert set(mixture.full) | set(mixture.narrow) == set(list_narrow_kernels(layers()))
    assert [c.name for c in (mixture.front[0], mixture.front[-1])] == ["float32", "bfloat16"]
    assert mixture.seconds <= mixture.front[0].seconds


def test_a_laxer_bound_is_never_slower_and_the_same_seed_chooses_the_same() -> None:
    found = [chooser(decibels)(layers(), OnnxSource(onnx.ModelProto())) for decibels in (70.0, 55.0, 30.0, 30.0)]
    assert found[0].seconds >= found[1].seconds >= found[2].seconds
    assert found[2] == found[3]


def test_a_layer_whose_products_cancel_stays_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        autotune.compiler.mixed.type_problem,
        "saved_seconds",
        lambda g, p, *rest: np.ones(len(p) + len(list_narrow_kernels(g))),
    )
    graph = layers(fragile=2)
    mixture = chooser(35.0)(graph, OnnxSource(onnx.ModelProto()))
    assert mixture.full == ("layer1", "layer2") or mixture.full == ("layer2",)
    assert "layer3" in mixture.narrow
    assert chooser(35.0)(layers(), OnnxSource(onnx.ModelProto())).full == ()


def test_what_the_sum_misses_is_mended() -> None:
    at = np.stack([np.zeros((4, 4), bool), np.eye(4, dtype=bool)], axis=2)
    problem = Problem(list("abcd"), at, np.ones(4), np.ones((4, 1)), np.ones((4, 2), bool))
    narrow, noise = resolve_types(problem, 4.0, lambda bits: 1.9 * bits.sum())
    assert narrow.sum() == 2 and noise == pytest.approx(3.8)
    narrow, noise = resolve_types(problem, 2.0, lambda bits: 0.5 * bits.sum())
    assert narrow.sum() == 4 and noise == 2.0
    assert not resolve_types(problem, 2.0, lambda bits: 100.0 * bits.any())[0].any()
    assert not resolve_types(problem, 0.0, lambda bits: 0.0)[0].any()


def test_a_network_of_it_agrees_with_numpy_kernel_by_kernel(model: onnx.ModelProto) -> None:
    graph = optimise(import_model(model))
    first = list_narrow_kernels(graph)[0]

    def choose(graph: Graph, source: ModelSource) -> Mixture:
        found = chooser()(graph, source)
        return replace(found, full=(first,), narrow=tuple(n for n in list_narrow_kernels(graph) if n != first))

    network = load_network(model, "two", CompileOptions(precision="mixed"), choose=choose)
    check = check_network(network, SCHEDULES, SETTINGS)
    assert check.max_error < TOLERANCE
    assert check.rounding["y"].decibels > 40


@pytest.mark.parametrize("seed", range(5))
def test_random_mixtures(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(autotune.graph.precision, "FEW_CHANNELS", 0)
    graph = optimise(random_graph(seed))
    rng = np.random.default_rng(seed)
    full = [name for name in list_narrow_kernels(graph) if rng.random() < 0.5]
    lowered = executable_graph(lower_precision(graph, "bfloat16", full))
    network = Loaded("random", onnx.ModelProto(), lowered, (), precision="mixed")
    _, errors = stored_values(network, SCHEDULES, SETTINGS, draw_inputs(graph), tmp_path)
    assert max(errors.values(), default=0.0) < TOLERANCE, errors


def test_a_choice_of_the_same_graph_and_accuracy_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, kept = layers(), tmp_path / "precision.json"
    before = chooser(55.0)(graph, OnnxSource(onnx.ModelProto()))
    kept.write_text(json.dumps(before.to_json()))
    monkeypatch.setattr(autotune.compiler.mixed.chooser, "sensitivities", lambda *rest: pytest.fail("chosen anew"))
    assert chooser(55.0, earlier=kept)(graph, OnnxSource(onnx.ModelProto())) == before
    with pytest.raises(pytest.fail.Exception, match="chosen anew"):
        chooser(54.0, earlier=kept)(graph, OnnxSource(onnx.ModelProto()))
    with pytest.raises(pytest.fail.Exception, match="chosen anew"):
        chooser(55.0, earlier=kept)(layers((32, 64, 32)), OnnxSource(onnx.ModelProto()))


def test_a_choice_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    kept = tmp_path / "precision.json"
    for text in ("{", "[]", '{"front": []}'):
        kept.write_text(text)
        with pytest.raises(ValueError, match=r"`.*precision.json` must be a choice that a run wrote, but reading it"):
            chooser(earlier=kept)(layers(), OnnxSource(onnx.ModelProto()))


def test_data_without_a_set_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "none.npz", x=np.zeros((0, 16, 32), np.float32))
    with pytest.raises(ValueError, match=r"`data` must hold at least one set of inputs, but got none in .*none.npz"):
        chooser(data=tmp_path / "none.npz")(layers(), OnnxSource(onnx.ModelProto()))


def test_seconds_of_places_add_up_to_the_whole() -> None:
    graph = layers()
    wide, narrow = (Kernels(graph, "bfloat16", full) for full in (list_narrow_kernels(graph), ()))
    times = Times(SCHEDULES, {})
    places = list_rounding_sites(graph)
    saved = saved_seconds(graph, places, wide, narrow, times, 1e9)
    assert len(narrow.casts) == 1 and narrow.origin(narrow.casts[0].output) == "x"
    assert saved.sum() == pytest.approx(wide.seconds(times) - narrow.seconds(times))
    assert saved[[place.operand == "x" for place in places] + [False] * 4].sum() < 0


def test_one_measurement_scales_the_estimates_of_the_others() -> None:
    graph = layers()
    wide, narrow = (Kernels(graph, "bfloat16", full) for full in (list_narrow_kernels(graph), ()))
    first, second = (wide.groups[name].workload for name in ("layer0", "layer1"))
    narrowed = narrow.groups["layer0"].workload
    assert first is not None and second is not None and narrowed is not None
    estimated = SCHEDULES.find_schedule(first)
    times = Times(SCHEDULES, MemoryStore([replace(estimated, seconds=3 * estimated.seconds)]))
    times.learn(narrow.groups)
    times.learn(wide.groups)
    assert times("layer0", first) == 3 * SCHEDULES.find_schedule(first).seconds
    assert times("layer0", narrowed) == pytest.approx(3 * SCHEDULES.find_schedule(narrowed).seconds)
    assert times("layer1", second) == pytest.approx(3 * SCHEDULES.find_schedule(second).seconds)


def test_without_openvino_its_accuracy_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*rest: object, **facts: object) -> None:
        raise RuntimeFailure("openvino must run the model, but said: No module named 'openvino'")

    monkeypatch.setattr(autotune.compiler.mixed.chooser, "NetworkProcess", missing)
    with pytest.raises(ValueError, match="`accuracy` must be decibels where OpenVINO does not run .* No module named"):
        chooser(AS_OPENVINO)(layers(), OnnxSource(onnx.ModelProto()))


def test_without_scipy_a_sentence_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy", None)
    with pytest.raises(MissingExtra, match="^mixed precision must have the packages of the extra `tune`"):
        chooser()(layers(), OnnxSource(onnx.ModelProto()))


def test_as_openvino_asks_it_without_a_hint(model: onnx.ModelProto) -> None:
    pytest.importorskip("openvino")
    graph = optimise(import_model(model))
    mixture = chooser(AS_OPENVINO)(graph, OnnxSource(model))
    assert mixture.bound == AS_OPENVINO
    assert mixture.required_decibels > 20 and mixture.measured_decibels >= mixture.required_decibels


def test_a_network_without_floats_to_give_is_refused() -> None:
    builder = GraphBuilder("integers", {"x": TensorType((4, 8))})
    graph = builder.finish([builder.add("cast", ["x"], dtype="int32")])
    with pytest.raises(ValueError, match="`precision` must be of one type for a network without outputs in float32"):
        chooser()(graph, OnnxSource(onnx.ModelProto()))


def test_bad_configurations() -> None:
    with pytest.raises(
        ConfigError, match="`accuracy` must stand beside `precision: mixed`, but got precision='float32'"
    ):
        Network(accuracy=40.0)
    with pytest.raises(ConfigError, match="accuracy"):
        Network(precision="mixed", accuracy=-1.0)
    with pytest.raises(ConfigError, match="accuracy"):
        Network(precision="mixed", accuracy="as good as it gets")
    assert Network(precision="mixed", accuracy="as openvino").accuracy == AS_OPENVINO


def test_a_choice_belongs_to_mixed_precision_alone(model: onnx.ModelProto) -> None:
    with pytest.raises(ValueError, match="`choose` must be given for mixed precision alone, but got precision='mixed'"):
        load_network(model, "two", CompileOptions(precision="mixed"))
    with pytest.raises(
        ValueError, match="`choose` must be given for mixed precision alone, but got precision='float32'"
    ):
        load_network(model, "two", choose=chooser())


def test_a_run_keeps_its_choice_and_tells_what_is_in_which_type(tmp_path: Path) -> None:
    file = two_layers(tmp_path / "two.onnx")
    config = tmp_path / "two.yaml"
    config.write_text(
        f"model: {file}\ntrials: 8\noutput: {tmp_path / 'run'}\nmeasure: {{threads: 1}}\n"
        "network: {precision: mixed, accuracy: 45}\n"
    )
    done = call("run", config)
    assert done.exit_code == 0, done.output
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())["network"]
    mixture = summary["mixture"]
    assert summary["precision"] == "mixed" and mixture["wanted"] == mixture["asked"] == 45
    assert mixture["measured"] is None or mixture["measured"] >= 45
    assert json.loads((tmp_path / "run" / "precision.json").read_text()) == mixture
    assert "estimated" in done.output and "timed" in done.output
    shown = call("tasks", config)
    # Which kernels gain by it, if any, the times of this machine say.
    assert shown.exit_code == 0 and ("types" in shown.output) == bool(mixture["narrow"])
    assert f"{len(mixture['narrow'])} of 4 kernels in bfloat16, " in shown.output
    read = RunConfig(
        name="two",
        model=str(file),
        output=str(tmp_path / "run"),
        measure={"threads": 1},
        network={"precision": "mixed", "accuracy": 45},
    )
    again = import_network(read).mixture
    assert again is not None and again.to_json() == mixture

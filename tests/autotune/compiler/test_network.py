"""A network from its ONNX file to an executable, by way of the command line, on real kernels."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from typer.testing import CliRunner, Result

import autotune
from autotune.cli.app import app
from autotune.compiler import finalize
from autotune.compiler.build import write_network
from autotune.compiler.checking.benched import read_timings
from autotune.compiler.checking.comparison import relative_error
from autotune.compiler.options import CompileOptions
from autotune.compiler.prepare import Network, load_network
from autotune.compiler.schedules import Schedules
from autotune.compiler.selection import Limits, extra_bytes, select
from autotune.compiler.sources import with_checkpoints
from autotune.compiler.tasks import list_tasks
from autotune.graph.evaluate import evaluate
from autotune.graph.frontends.onnx.model import load_model
from autotune.graph.ir import Graph
from autotune.graph.passes import PASSES
from autotune.tuner.record_store import RecordStore
from autotune.tuner.settings import Settings
from autotune.tuner.task import Task
from measure.outcome import Outcome
from measure.pool import Trial
from measure.record import Record
from search_space import workloads
from targets import registry
from tests.autotune.graph.helpers import save
from tests.autotune.graph.nets import feeds

pytestmark = pytest.mark.usefixtures("kernel_cache")

SHAPE = (1, 16, 14, 14)


def two_layers(path: Path, scale: float = 1.0, shape: tuple[int, ...] = SHAPE) -> Path:
    """The form of two layers of ResNet-50, 3x3 and 1x1, with a residual, a pool and a classifier, to a file."""
    rng = np.random.default_rng(0)

    def weight(name: str, *shape: int) -> onnx.TensorProto:
        fan_in = int(np.prod(shape[1:]))
        array = (rng.standard_normal(shape) * np.sqrt(2 / fan_in)).astype(np.float32)
        return numpy_helper.from_array(array * (scale if name == "w1" else 1), name)

    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c1"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c1"], ["r1"]),
        helper.make_node("Conv", ["r1", "w2"], ["c2"], kernel_shape=[1, 1]),
        helper.make_node("Add", ["c2", "x"], ["a"]),
        helper.make_node("Relu", ["a"], ["r2"]),
        helper.make_node("GlobalAveragePool", ["r2"], ["g"]),
        helper.make_node("Flatten", ["g"], ["f"]),
        helper.make_node("Gemm", ["f", "w3", "b3"], ["logits"], transB=1),
        helper.make_node("Softmax", ["logits"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "two",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 10))],
        [
            weight("w1", 16, 16, 3, 3),
            weight("b1", 16),
            weight("w2", 16, 16, 1, 1),
            weight("w3", 10, 16),
            weight("b3", 10),
        ],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def call(*arguments: object) -> Result:
    """The command line; what it times it times no better than a test needs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(finalize, "TURNS", 2)
        return CliRunner().invoke(app, [str(a) for a in arguments])


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    folder = tmp_path_factory.mktemp("run")
    model = two_layers(folder / "two.onnx")
    config = folder / "two.yaml"
    config.write_text(f"model: {model}\ntrials: 24\noutput: {folder / 'out'}\nmeasure: {{cache: network}}\n")
    return config, call("run", config, "--json", folder / "summary.json")


def test_a_run_tunes_compiles_checks_and_times(run: tuple[Path, Result]) -> None:
    config, done = run
    assert done.exit_code == 0, done.output
    document = json.loads((config.parent / "summary.json").read_text())
    network = document["network"]
    wanted = ("name", "seconds", "reference", "reference_seconds", "max_error", "tasks_seconds", "trials", "seed")
    assert set(wanted) <= set(network)
    assert network["reference"] == "onnxruntime" and network["max_error"] < 1e-5
    assert sum(task["trials"] for task in document["tasks"]) == network["trials"] == 24
    assert network["seconds"] > 0 and network["tasks_seconds"] > 0
    assert "as one executable" in done.output and "of peak" in done.output
    names = [task["name"] for task in document["tasks"]]
    assert "conv2d3x3_14x14x16_16_add_relu" in names and "conv2d1x1_14x14x16_16_add_relu" in names


def test_an_executable_that_computes_something_else_is_an_error(run: tuple[Path, Result], tmp_path: Path) -> None:
    records = run[0].parent / "out" / "records.jsonl"
    keys = ("--set", "network.tolerance=1.0e-12", "--set", f"measure.pool=replay:{records}")
    done = call("run", run[0], *keys, "--output", tmp_path / "o", "--json", tmp_path / "summary.json")
    assert done.exit_code == 2, done.output
    assert "must agree with the model in float64 within network.tolerance=1e-12, but" in " ".join(done.output.split())
    assert json.loads((tmp_path / "summary.json").read_text())["network"]["max_error"] > 0


def test_an_executable_whose_code_is_wrong_is_refused_and_nothing_is_lost(
    run: tuple[Path, Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder that a user gets is checked: another executable of the same network would be right."""

    def wrong(network: Network, schedules: Schedules, folder: Path, settings: Settings) -> None:
        g = network.graph
        nodes = tuple(replace(node, op="tanh") if node.op == "relu" else node for node in g.nodes)
        assert nodes != g.nodes
        other = Graph(g.name, g.inputs, g.constants, nodes, g.outputs, g.output_names)
        write_network(replace(network, graph=other), schedules, folder, settings)

    monkeypatch.setattr("autotune.compiler.tuned.write_network", wrong)
    records = run[0].parent / "out" / "records.jsonl"
    done = call("run", run[0], "--set", f"measure.pool=replay:{records}", "--output", tmp_path / "o")
    assert done.exit_code == 2, done.output
    said = " ".join(done.output.split())
    assert "within network.tolerance=0.0001, but y differs by " in said
    assert "values in between agree, as outputs of an executable of the same kernels" in said
    files = {path.name for path in (tmp_path / "o").iterdir()}
    assert {"records.jsonl", "schedules.lock", "summary.json", "network"} <= files
    network = json.loads((tmp_path / "o" / "summary.json").read_text())["network"]
    assert network["max_error"] == network["errors"]["y"] > 1e-3
    assert len(network["layers"]) == 4 and max(network["layers"].values()) < 1e-4


def test_the_executable_is_two_lines(run: tuple[Path, Result]) -> None:
    config, _ = run
    network = autotune.load(config.parent / "out" / "network")
    out = network(np.ones(SHAPE, np.float32))
    assert isinstance(out, np.ndarray)
    np.testing.assert_allclose(out.sum(), 1.0, rtol=1e-5)


def test_it_is_rebuilt_from_records_alone(run: tuple[Path, Result], tmp_path: Path) -> None:
    config, _ = run
    done = call("compile", config, "--records", config.parent / "out" / "records.jsonl", "--output", tmp_path / "again")
    assert done.exit_code == 0, done.output
    given = np.random.default_rng(1).standard_normal(SHAPE).astype(np.float32)
    first, again = (autotune.load(p)(given) for p in (config.parent / "out" / "network", tmp_path / "again"))
    np.testing.assert_array_equal(first, again)


def test_it_is_timed_beside_others(run: tuple[Path, Result]) -> None:
    done = call("bench", run[0], "--turns", 2, "--against", "onnxruntime")
    assert done.exit_code == 0, done.output
    ours, theirs = done.output.splitlines()[-2:]
    assert re.match(r"autotune float32 +[\d.]+ [mµ]s .* 1\.00x +\d+\.\d dB .* MiB resident", ours), done.output
    assert theirs.startswith("ONNX Runtime float32 ") and " dB " not in theirs


def test_what_was_timed_is_kept_for_the_report(run: tuple[Path, Result], tmp_path: Path) -> None:
    folder = run[0].parent / "out"
    narrow = tmp_path / "narrow"
    shutil.copytree(folder, narrow)
    summary = json.loads((folder / "summary.json").read_text())
    summary["network"]["precision"] = "bfloat16"  # as if it were
    (narrow / "summary.json").write_text(json.dumps(summary))
    done = call("bench", run[0], "--turns", 1, "--against", "onnxruntime", "--also", narrow)
    assert done.exit_code == 0, done.output
    rows = {row["title"]: row for row in read_timings(folder, folder / "network")}
    assert set(rows) == {"autotune float32", "autotune bfloat16", "ONNX Runtime float32"}
    assert rows["ONNX Runtime float32"]["exact"] and rows["autotune float32"]["decibels"] > 90
    manifest = folder / "network" / "manifest.json"
    text = manifest.read_text()
    manifest.write_text(text + " ")
    assert read_timings(folder, folder / "network") == [], "of another executable"
    manifest.write_text(text)
    (folder / "bench.json").write_text("{}")
    done = call("report", folder)
    assert done.exit_code == 2 and "must be what `autotune bench` wrote" in " ".join(done.output.split())
    (folder / "bench.json").unlink()
    done = call("bench", run[0], "--also", folder)
    assert done.exit_code == 2 and "must be in precisions of their own, but got float32 twice" in done.output
    done = call("bench", run[0], "--also", tmp_path / "none")
    assert done.exit_code == 2 and "`--also` must be folders of runs of networks" in " ".join(done.output.split())


def test_tasks_are_listed_without_tuning(run: tuple[Path, Result]) -> None:
    done = call("tasks", run[0])
    assert done.exit_code == 0, done.output
    assert "conv2d3x3_14x14x16_16_add_relu" in done.output and "winograd4" in done.output


def test_records_of_other_shapes_are_refused(run: tuple[Path, Result], tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    other.write_text("model: squeezenet\n")
    done = call("compile", other, "--records", run[0].parent / "out" / "records.jsonl", "--output", tmp_path / "o")
    assert done.exit_code == 2
    assert "`records` must hold working trials of other on cpu" in done.output
    done = call("compile", other, "--records", tmp_path / "none.jsonl")
    assert done.exit_code == 2 and "`records` must be an existing file" in done.output


@pytest.mark.parametrize(
    ("keys", "rule"),
    [
        (["--set", "network.passes=[fold]"], "`passes` must be among"),
        (["--set", "search.scheduler=greedy"], "`scheduler` must be one of gradient, round_robin"),
        (["--set", "network.shapes={z: [1]}"], "`shapes` must be of inputs of the model"),
    ],
)
def test_bad_keys_are_told_before_anything_runs(run: tuple[Path, Result], keys: list[str], rule: str) -> None:
    done = call("tasks", run[0], *keys)
    assert done.exit_code == 2, done.output
    assert rule in done.output


def test_a_change_of_one_percent_of_one_weight_is_found(tmp_path: Path) -> None:
    from autotune.graph.evaluate import evaluate
    from autotune.graph.frontends.onnx.importer import import_model

    given = {"x": np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32)}
    found = []
    for scale in (1.0, 1.01):
        model, added = with_checkpoints(load_model(two_layers(tmp_path / "m.onnx", scale)))
        graph = import_model(model)
        found.append([evaluate(graph, given)[name] for name in graph.outputs])
        assert "logits" in added and len(added) == 4
    errors = [relative_error(b, a) for a, b in zip(*found, strict=True)]
    assert max(errors) > 1e-4
    assert errors[1] > 1e-4, "the logits alone must show it"


def test_equal_kernels_are_one_task_of_their_weight() -> None:
    network = load_network(load_model("squeezenet"), "squeezenet")
    assert len(network.tasks) == 23 and sum(task.weight for task in network.tasks) == 31
    assert len({task.name for task in network.tasks}) == 23
    assert [task.name for task in list_tasks(network.graph)] == [task.name for task in network.tasks]


def record(task: Task, algorithm: str, seconds: float) -> Record:
    workload = task.workload
    trial = Trial(workload.to_json(), algorithm, (), workload_key=workload.key, trace_key="none")
    return Record(trial, Outcome((seconds,), seconds))


def test_limits_decide_between_algorithms() -> None:
    conv = workloads.conv2d(height=8, width=8, in_channels=16, out_channels=16, padding=1)
    assert "winograd4" in Limits().list_algorithms(conv) and "library" not in Limits().list_algorithms(conv)
    assert "winograd2" not in Limits(max_error=0.0).list_algorithms(conv)
    rounded = workloads.conv2d(height=8, width=8, in_channels=16, out_channels=16, padding=1, dtype="bfloat16")
    assert {"winograd4", "winograd2_dot"} <= set(
        Limits().list_algorithms(rounded)
    ) and "winograd4_dot" in rounded.algorithms
    assert "winograd4_dot" not in Limits().list_algorithms(rounded)
    assert "winograd2_dot" not in Limits(max_error=1e-4).list_algorithms(rounded)
    assert "winograd4_dot" in Limits(max_error=0.04).list_algorithms(rounded)
    assert Limits(("winograd4_dot",)).list_algorithms(rounded) == ["winograd4_dot"]
    assert Limits(algorithms=["im2col"]).list_algorithms(conv) == ["im2col"]
    dense = workloads.dense(4, 16, 16)
    assert Limits(algorithms=["im2col"]).list_algorithms(dense) == ["direct"]
    assert extra_bytes(conv, "winograd4") == 4 * (36 - 9) * 256
    assert extra_bytes(conv, "direct") == extra_bytes(dense, "direct") == 0
    small = Task("small", conv, 2)
    large = Task("large", workloads.conv2d(height=8, width=8, in_channels=32, out_channels=32, padding=1))
    records = [
        record(small, "direct", 4.0),
        record(small, "winograd4", 1.0),
        record(large, "direct", 4.0),
        record(large, "winograd4", 3.5),
    ]

    def select_algorithms(limits: Limits) -> dict[str, str]:
        store = RecordStore(records, limits.list_algorithms)
        return {each.workload.key: each.algorithm for each in select([small, large], store, Settings(), limits)}

    assert set(select_algorithms(Limits()).values()) == {"winograd4"}
    most = 2 * extra_bytes(conv, "winograd4")
    assert select_algorithms(Limits(max_extra_bytes=most)) == {
        small.workload.key: "winograd4",
        large.workload.key: "direct",
    }
    assert set(select_algorithms(Limits(max_extra_bytes=0)).values()) == {"direct"}


@pytest.mark.parametrize("quantise", [None, "int8"])
def test_taps_in_the_padding_are_not_computed_on_a_processor(tmp_path: Path, quantise: str | None) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("Conv", ["r", "w"], ["y"], dilations=[12, 12], pads=[12] * 4),
    ]
    values = np.random.default_rng(0).standard_normal((128, 256, 3, 3)).astype(np.float32)
    weights = [numpy_helper.from_array(values, "w")]
    model = load_model(save(tmp_path / "c.onnx", nodes, {"x": (1, 256, 14, 14)}, weights))

    def load_graph(**options: Any) -> Graph:
        return load_network(model, "c", CompileOptions(**options)).graph

    def convolutions(graph: Graph) -> list[tuple[int, ...]]:
        return [graph.type(node.inputs[1]).shape[:2] for node in graph.nodes if node.op == "conv2d"]

    new, old = load_graph(quantise=quantise), load_graph(quantise=quantise, passes=list(PASSES))
    assert convolutions(new) == [(1, 1)] * 9
    assert convolutions(old) == [(3, 3)]
    data = feeds(new)
    got, wanted = (evaluate(graph, data)[graph.outputs[0]] for graph in (new, old))
    np.testing.assert_allclose(got, wanted, rtol=1e-5 if quantise is None else 0, atol=1e-5 if quantise is None else 0)
    if quantise is None:  # blocks of threads share what they read: parts would only start more kernels
        assert convolutions(load_graph(target=registry.get("cuda:sm_90a"))) == [(3, 3)]

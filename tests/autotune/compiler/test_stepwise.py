"""Networks on an accelerator and the CPU: exact by the integer reference, tuned by the command line, torn files."""

from __future__ import annotations

import json
import pickle
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

import autotune
import autotune.compiler.checking.check
import autotune.compiler.checking.probing
from autotune.compiler.build import compile_network, make_feeds
from autotune.compiler.checking.check import check_network
from autotune.compiler.executable.stepwise import StepwiseExecutable
from autotune.compiler.options import CompileOptions
from autotune.compiler.prepare import Network, load_network
from autotune.compiler.schedules import Schedules
from autotune.config import Quantisation
from autotune.graph.evaluate import evaluate
from autotune.graph.frontends.onnx.importer import import_model, with_weights
from autotune.graph.ir import Graph, GraphError
from autotune.graph.offload import is_offloaded
from autotune.graph.partition import partition
from autotune.graph.passes import optimise
from autotune.graph.quantise import quantise_with_report
from autotune.graph.zoo import network as zoo
from autotune.graph.zoo import resnet18
from autotune.tuner.settings import Settings
from measure.database import Database
from measure.errors import RecordError
from targets import registry
from targets.manifest import ExecutableError, write_manifest
from tests.autotune.compiler.test_network import call
from tests.autotune.fakes import settings_with
from tests.autotune.kept import make_untuned

SETTINGS = settings_with(threads=1)
IDEAL_RESNET18 = 6_623_232
"""Cycles of the GEMM instructions alone, of all convolutions but the first."""


def small() -> onnx.ModelProto:
    """A stem and two blocks of ResNet, the second with a projection."""
    net = zoo.Network("small", 0)
    x = net.add("Relu", net.conv(net.input("image", (1, 3, 16, 16)), 3, 16, 3))
    x = net.add("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = resnet18._block(net, resnet18._block(net, x, 16, 16, 1), 16, 32, 2)
    return net.finish(net.classifier(x, 32, 10), (1, 10))


def schedules() -> Schedules:
    return make_untuned(SETTINGS, device="vta")


@pytest.fixture(scope="module")
def network() -> Network:
    return load_network(small(), "small", CompileOptions(quantise="shift8", device=registry.get("vta")))


@pytest.fixture(scope="module")
def folder(network: Network, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("small") / "network"
    compile_network(network, schedules(), place, SETTINGS)
    return place


def probe_integers(network: Network) -> tuple[Network, list[str]]:
    """The network with every integer that a kernel writes as an output."""
    graph = network.graph
    written = [g.output for g in partition(graph, in_place=False) if g.workload is not None]
    names = [name for name in written if graph.type(name).dtype == "int8" and name not in graph.outputs]
    outputs = (*graph.outputs, *names)
    return replace(
        network, graph=Graph(graph.name, graph.inputs, graph.constants, graph.nodes, outputs), tasks=()
    ), names


def assert_exact(network: Network, folder: Path, least: int) -> StepwiseExecutable:
    """Every integer is the reference's; what is computed of them in floats is within rounding."""
    whole, names = probe_integers(network)
    assert len(names) >= least
    executable = compile_network(whole, schedules(), folder, SETTINGS)
    assert isinstance(executable, StepwiseExecutable)
    for seed in (1, 2):
        feeds = make_feeds(network, seed)
        values = evaluate(network.graph, feeds)
        found = executable(*feeds.values())
        for name, array in zip(whole.graph.outputs, found, strict=True):
            if name in names:
                np.testing.assert_array_equal(array, values[name], name)
            else:
                np.testing.assert_allclose(array, values[name], rtol=1e-4, atol=1e-5 * np.abs(values[name]).max())
    return executable


def test_every_integer_is_the_references(network: Network, tmp_path: Path) -> None:
    executable = assert_exact(network, tmp_path, 11)
    targets = [step["target"] for step in executable.steps]
    assert targets.count("vta") == 5 and set(targets) == {"vta", "cpu"}


def test_the_offloaded_network_is_the_quantised_one(network: Network) -> None:
    """Values keep their names and bytes through offload and dot products."""
    graph = optimise(import_model(with_weights(small(), 0), seed=0))
    plain = quantise_with_report(graph, mode="shift8")[0].graph
    feeds = make_feeds(network, 5)
    wanted, found = evaluate(plain, feeds), evaluate(network.graph, feeds)
    layers = [node.name for node in plain.nodes if node.op in ("shift_conv2d", "requantise")]
    assert len(layers) == 8
    for name in layers:
        array = found[name]
        if array.ndim == 6:
            array = array.transpose(0, 4, 2, 3, 1, 5)
        np.testing.assert_array_equal(array.reshape(wanted[name].shape), wanted[name], name)
    np.testing.assert_array_equal(found[network.graph.outputs[0]], wanted[plain.outputs[0]])


def test_resnet18_is_exact(tmp_path: Path) -> None:
    network = load_network(
        resnet18.build(),
        "resnet18",
        CompileOptions(quantise="shift8", quantisation=Quantisation(inputs=1), device=registry.get("vta")),
    )
    on_vta = [task for task in network.tasks if task.target == "vta"]
    assert (len(on_vta), sum(task.weight for task in on_vta)) == (10, 19)  # C2 to C11
    assert network.accuracy is not None and network.accuracy.decibels > 15
    executable = assert_exact(network, tmp_path, 29)
    seconds = executable.seconds_by_target(1)
    assert IDEAL_RESNET18 / 100e6 < seconds["vta"] < 1 and 0 < seconds["cpu"] < 1


def test_tasks_say_where_they_run(network: Network) -> None:
    for task in network.tasks:
        assert task.target == ("vta" if is_offloaded(task.workload) else None)
        assert SETTINGS.of(task).target.name == (task.target or "cpu")
    titles = [task.name for task in network.tasks if task.target == "vta"]
    assert "conv2d_blocked3x3_1x8x8x1x16_16" in titles and "conv2d_blocked1x1_1x8x8x1x16_32_s2" in titles
    on_vta = next(task for task in network.tasks if task.target == "vta")
    wide = settings_with(threads=1, cache="network").of(on_vta)
    assert (wide.threads, wide.measure.cache) == (1, "warm")


def test_times_are_those_of_the_steps(folder: Path) -> None:
    executable = autotune.load(folder)
    assert isinstance(executable, StepwiseExecutable)
    with pytest.raises(ExecutableError, match="must have been called before it is timed"):
        executable.profile(1)
    executable(np.zeros((1, 3, 16, 16), np.float32))
    title, _, _, kernels, _ = repr(executable).splitlines()
    assert title.startswith(f"StepwiseExecutable of {executable.name}: cpu, ") and title.endswith(", and vta")
    assert f"called in {len(executable.steps)} steps; operations in " in kernels
    profile = executable.profile(3)
    assert profile.shape == (3, len(executable.steps)) and (profile > 0).all()
    simulated = [i for i, step in enumerate(executable.steps) if step["target"] == "vta"]
    assert (np.ptp(profile[:, simulated], axis=0) == 0).all()
    assert executable.time(2).shape == (2,)
    assert executable.seconds_by_target(1)["vta"] == pytest.approx(profile[0, simulated].sum())


@pytest.mark.parametrize("dtype", ["int8", "int32"])
def test_the_check_sees_one_number_that_is_one_off(
    network: Network, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert check_network(network, schedules(), SETTINGS).max_error < 1e-5
    layer = next(node for node in network.graph.nodes if node.op == "conv2d_blocked")
    name = layer.inputs[1 if dtype == "int8" else 2]
    assert network.graph.type(name).dtype == dtype
    compile_whole = autotune.compiler.checking.check.compile_network

    def compile_other(network: Network, schedules: Schedules, folder: Path, settings: Settings) -> object:
        constants = {**network.graph.constants, name: network.graph.constants[name] + np.ones((), dtype)}
        graph = Graph(network.graph.name, network.graph.inputs, constants, network.graph.nodes, network.graph.outputs)
        return compile_whole(replace(network, graph=graph), schedules, folder, settings)

    for module in (autotune.compiler.checking.check, autotune.compiler.checking.probing):
        monkeypatch.setattr(module, "compile_network", compile_other)
    assert check_network(network, schedules(), SETTINGS).max_error == 1


def test_torn_folders_are_refused(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "n")
    for file, mend in (("kernel1.module", None), ("small.weights", None), ("kernel1.module", b"")):
        whole = (tmp_path / "n" / file).read_bytes()
        if mend is None:
            (tmp_path / "n" / file).unlink()
        else:
            (tmp_path / "n" / file).write_bytes(mend)
        with pytest.raises(ExecutableError, match=rf"{file}: a"):
            autotune.load(tmp_path / "n")
        (tmp_path / "n" / file).write_bytes(whole)
    executable = autotune.load(tmp_path / "n")
    with pytest.raises(ExecutableError, match="`small` must be given image, but got 0 arrays"):
        executable()
    with pytest.raises(ExecutableError, match="input `image` must be float32 of shape"):
        executable(np.zeros((1, 3, 8, 8), np.float32))
    (tmp_path / "n" / "manifest.json").write_text(json.dumps({"schema": "autotune.stepwise/2"}))
    with pytest.raises(ExecutableError, match="but got autotune.stepwise/2; compile the model again"):
        autotune.load(tmp_path / "n")


def test_a_folder_written_anew_and_calls_from_threads(network: Network, folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "n")
    first = autotune.load(tmp_path / "n")
    image = np.random.default_rng(0).standard_normal((6, 1, 3, 16, 16)).astype(np.float32)
    wanted = [first(x) for x in image]
    data = pickle.dumps(first)
    np.testing.assert_array_equal(pickle.loads(data)(image[0]), wanted[0])
    doubled = {
        name: array * 2 if array.dtype == np.float32 and array.ndim else array
        for name, array in network.graph.constants.items()
    }
    graph = Graph(network.graph.name, network.graph.inputs, doubled, network.graph.nodes, network.graph.outputs)
    other = compile_network(replace(network, graph=graph), schedules(), tmp_path / "n", SETTINGS)
    assert not np.array_equal(other(image[0]), wanted[0])
    with pytest.raises(ExecutableError, match="must be the one that was pickled"):
        pickle.loads(data)
    with ThreadPoolExecutor(3) as pool:
        for found, expected in zip(pool.map(first, image), wanted, strict=True):
            np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m["steps"][-1]["inputs"].__setitem__(0, "image"), "`inputs` must be what kernel.* takes, but"),
        (
            lambda m: m["steps"][0].update(inputs=["nobody"]),
            "`inputs` must be there before their step, but got 'nobody'",
        ),
        (lambda m: m["steps"][0].update(kernel="../k"), "kernel` must name a file of the folder"),
        (lambda m: m["outputs"][0].update(shape=[1, 3]), "output `.*` must be what was computed, but is not"),
        (lambda m: m["constants"][0].update(offset=m["weights"]["nbytes"]), "`offset` must be a multiple of 64 within"),
        (lambda m: m["modules"][0].update(target="nowhere"), "must have kernels, but: "),
    ],
)
def test_manifests_that_do_not_fit_are_refused(folder: Path, tmp_path: Path, change, message) -> None:  # type: ignore[no-untyped-def]
    shutil.copytree(folder, tmp_path / "n")
    manifest = json.loads((folder / "manifest.json").read_text())
    change(manifest)
    write_manifest(manifest, tmp_path / "n")
    with pytest.raises(ExecutableError, match=message):
        autotune.load(tmp_path / "n")


def test_bad_input_is_refused() -> None:
    with pytest.raises(ValueError, match="`quantise` must be 'shift8' for layers on vta, but got quantise='int8'"):
        load_network(small(), "small", CompileOptions(quantise="int8", device=registry.get("vta")))
    with pytest.raises(ValueError, match="must be a target with a matrix instruction on blocks, but got device='cpu'"):
        load_network(small(), "small", CompileOptions(quantise="shift8", device=registry.get("cpu")))
    net = zoo.Network("thin", 0)
    x = net.add("Relu", net.conv(net.input("image", (1, 3, 8, 8)), 3, 8, 3))
    thin = net.finish(net.classifier(x, 8, 4), (1, 4))
    with pytest.raises(GraphError, match="layers whose channels fill its blocks of 1x16x16, but thin has none"):
        load_network(thin, "thin", CompileOptions(quantise="shift8", device=registry.get("vta")))


def test_a_run_on_two_targets(tmp_path: Path) -> None:
    """The run needs only `model` and `target`; records of both targets are in one file, from which a run resumes."""
    onnx.save(small(), tmp_path / "small.onnx")
    config = tmp_path / "small.yaml"
    config.write_text(f"model: {tmp_path / 'small.onnx'}\ntarget: vta\ntrials: 28\noutput: {tmp_path / 'out'}\n")
    listed = call("tasks", config)
    assert listed.exit_code == 0 and " vta " in listed.output and " cpu " in listed.output
    done = call("run", config, "--set", "network.check_layers=true", "--json", tmp_path / "summary.json")
    assert done.exit_code == 0, done.output
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert {task["target"] for task in summary["tasks"]} == {"vta", "cpu"}
    part = summary["network"]
    assert set(part["targets"]) == {"vta", "cpu"} and sum(part["targets"].values()) > 0
    assert part["reference"] is None and part["accuracy"]["quantised_layers"] == 6
    assert list(part["layers"].values()).count(0) >= 3 and part["max_error"] < 1e-5
    best = tmp_path / "out" / "best"
    assert any((place / "kernel.bin").exists() for place in best.iterdir())
    with Database(tmp_path / "out" / "records.jsonl", readonly=True) as database:
        database.check_compatible("cpu", "vta")
        with pytest.raises(RecordError, match="resumed with, 'cpu', but got target='vta'"):
            database.check_compatible("cpu")
    rebuilt = call("compile", config, "--output", tmp_path / "again")
    assert rebuilt.exit_code == 0, rebuilt.output
    image = np.random.default_rng(0).standard_normal((1, 3, 16, 16)).astype(np.float32)
    np.testing.assert_allclose(
        autotune.load(tmp_path / "again")(image), autotune.load(tmp_path / "out" / "network")(image), rtol=1e-5
    )
    refused = call("bench", config)
    assert refused.exit_code == 2 and "other runtimes are timed beside, but got vta" in refused.output

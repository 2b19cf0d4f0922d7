"""Networks on a GPU, which a fake stands for: what they compute, where arrays lie, timing, and what is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import autotune
from autotune.compiler.executable.compile import ChooseSchedule, Compiler, Schedule
from autotune.compiler.options import CompileOptions
from autotune.compiler.prepare import load_network
from autotune.config import Quantisation
from autotune.graph.copies import executable_graph
from autotune.graph.evaluate import evaluate
from autotune.graph.ir import Graph, GraphBuilder, TensorType
from autotune.graph.quantise import quantise_with_report
from autotune.graph.views import locate
from autotune.graph.zoo import bert_base
from measure.host import worker_environment
from search_space.ir.stmt import Allocate, walk_stmt
from search_space.space import Sketch, generate
from search_space.workloads import Workload
from targets.cuda.device import CudaDevice, DeviceLost
from targets.cuda.driver import runs_on
from targets.cuda.executable import CudaExecutable
from targets.cuda.target import CudaTarget
from targets.manifest import MANIFEST, ExecutableError, write_manifest
from tests.autotune.graph.nets import branches, feeds, residual, weight
from tests.autotune.graph.random_graphs import draw_inputs, random_graph
from tests.golden.cases import HARDWARE
from tests.gpu.candidates import legal, make_chooser
from tests.targets.cuda.fake_device import FakeDevice, RecordingTarget


def write_network(graph: Graph, choose: ChooseSchedule, folder: Path, target: RecordingTarget) -> CudaExecutable:
    Compiler(graph, choose, target.name).write(folder / "network")
    return CudaExecutable(folder / "network", device=FakeDevice(target.kernels_by_digest))


def spaces(network: CudaExecutable) -> list[list[tuple[str, int]]]:
    """Returns for each step where its arguments lie, as (space, number)."""
    launches = network.manifest["launches"]
    return [
        [(space, number + beyond) for each in step for space, number, beyond in each["arguments"]] for step in launches
    ]


@pytest.mark.usefixtures("text_as_machine_code")
@pytest.mark.parametrize(("batch", "seed"), [(1, 0), (2, 1)])
def test_outputs_are_the_graphs(target: RecordingTarget, tmp_path: Path, batch: int, seed: int) -> None:
    graph = branches(batch)
    network = write_network(graph, make_chooser(target.hardware, seed), tmp_path, target)
    places = [place for step in spaces(network) for space, place in step if space == "arena"]
    assert any(place % target.spacing for place in places) and network.arena_bytes % target.spacing == 0
    for again in range(2):
        given = feeds(graph, again)
        values = evaluate(graph, given)
        for found, name in zip(network(given["x"]), graph.outputs, strict=True):
            np.testing.assert_allclose(found, values[name], rtol=1e-4, atol=1e-5)


@pytest.fixture
def network(target: RecordingTarget, text_as_machine_code: None, tmp_path: Path) -> CudaExecutable:
    rng = np.random.default_rng(0)
    b = GraphBuilder("small", {"x": TensorType((1, 16))})
    hidden = b.add("relu", [b.add("matmul", ["x", weight(b, rng, 16, 8)])])
    graph = b.finish([b.add("softmax", [b.add("matmul", [hidden, weight(b, rng, 8, 4)])])])
    return write_network(graph, make_chooser(target.hardware, 0), tmp_path, target)


def test_parts_of_a_concatenation_are_written_in_place_where_vectors_may_begin() -> None:
    graph = branches()
    at = locate(graph, alignment=CudaTarget.alignment)
    inside = {n.name for n in graph.nodes if at[n.name].root != n.name}
    wanted = [("relu", 8), ("relu", 4), ("relu", 3), ("relu", 5), ("concat", 12), ("concat", 8), ("slice", 16)]
    joined, relu, odd, last, whole, uneven, part = (
        next(n.name for n in reversed(graph.nodes) if (n.op, n.type.shape[-1]) == each) for each in wanted
    )
    assert {joined, relu, whole, uneven, part} <= inside and not {odd, last} & inside


@pytest.mark.usefixtures("text_as_machine_code")
def test_constants_are_packed_once_on_the_device(target: RecordingTarget, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    b = GraphBuilder("packed", {"x": TensorType((4, 24))})
    shared = weight(b, rng, 24, 24)
    graph = b.finish([b.add("matmul", [b.add("matmul", ["x", shared]), shared])])

    def choose(workload: Workload) -> Schedule:
        """A schedule for CPUs, without threads."""
        sketch = next(s for s in generate(workload, HARDWARE).sketches if s.program.prologues)
        return Schedule(sketch.algorithm, sketch.trace(legal(sketch, 1)[0]))

    network = write_network(graph, choose, tmp_path, target)
    (packing,) = network.manifest["packing"]
    assert [place[0] for place in packing["arguments"]] == ["weights", "packed"]
    assert network.device.queue[0] == packing["name"] and network.weights_bytes == 2304
    given = feeds(graph)
    np.testing.assert_allclose(network(given["x"]), evaluate(graph, given)[graph.outputs[0]], rtol=1e-4, atol=1e-5)
    assert network.device.queue.count(packing["name"]) == 1


def in_two_kernels(sketch: Sketch) -> bool:
    """Tells whether one kernel leaves a buffer for another."""
    return any(isinstance(n, Allocate) and n.buffer.scope == "global" for n in walk_stmt(sketch.program.body))


@pytest.mark.usefixtures("text_as_machine_code")
def test_kernels_of_a_step_share_memory_that_the_next_step_uses_again(target: RecordingTarget, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    b = GraphBuilder("long", {"x": TensorType((2, 256))})
    graph = b.finish([b.add("matmul", [b.add("matmul", ["x", weight(b, rng, 256, 256)]), weight(b, rng, 256, 4)])])

    def choose(workload: Workload) -> Schedule:
        sketch = next(s for s in generate(workload, target.hardware).sketches if in_two_kernels(s))
        return Schedule(sketch.algorithm, sketch.trace(legal(sketch, 1)[0]))

    network = write_network(graph, choose, tmp_path, target)
    used = [{place for place in step if place[0] == "workspace"} for step in spaces(network)]
    assert used == [{("workspace", 0)}] * 2 and network.manifest["memory"]["workspace_bytes"] > 0
    given = feeds(graph)
    np.testing.assert_allclose(network(given["x"]), evaluate(graph, given)[graph.outputs[0]], rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures("text_as_machine_code")
def test_outputs_that_no_kernel_writes_are_copied(target: RecordingTarget, tmp_path: Path) -> None:
    b = GraphBuilder("odd", {"x": TensorType((2, 16))})
    c = b.constant(np.arange(3, dtype=np.float32))
    y = b.add("relu", ["x"])
    graph = b.finish(["x", c, y, b.add("reshape", [y], shape=(32,)), y])
    network = write_network(graph, make_chooser(target.hardware, 0), tmp_path, target)
    given = feeds(graph)
    values = evaluate(graph, given)
    for array, name in zip(network(given["x"]), graph.outputs, strict=True):
        np.testing.assert_array_equal(array, values[name])


def test_a_call_is_one_replay_of_what_the_first_one_launched(network: CudaExecutable) -> None:
    given, queue = np.ones((1, 16), np.float32), network.device.queue
    names = [launch["name"] for step in network.manifest["launches"] for launch in step]
    queue.clear()
    first = network(given)
    assert queue == names
    np.testing.assert_array_equal(network(given), first)
    assert queue == [*names, "replay", *names]


def test_times(network: CudaExecutable) -> None:
    count = [len(step) for step in network.manifest["launches"]]
    np.testing.assert_allclose(network.time(3), sum(count) * 1e-6)
    np.testing.assert_allclose(network.profile(2), np.tile(np.array(count) * 1e-6, (2, 1)))
    assert network.profile(0).shape == (0, len(count))


def test_bad_arrays_are_refused(network: CudaExecutable) -> None:
    with pytest.raises(ExecutableError, match="`small` must be given x, but got 0 arrays"):
        network()
    with pytest.raises(ExecutableError, match=r"input `x` must be float32 of shape \(1, 16\), but got float64"):
        network(np.zeros((1, 16)))


def test_a_device_that_fails_says_so(network: CudaExecutable) -> None:
    network.device.fails = True
    with pytest.raises(DeviceLost, match="illegal address"):
        network(np.zeros((1, 16), np.float32))


def test_torn_folders_are_refused(network: CudaExecutable, target: RecordingTarget, tmp_path: Path) -> None:
    folder, device = network.folder, FakeDevice(target.kernels_by_digest)
    for file in ("small_kernel0.cubin", "small.weights"):
        whole = (folder / file).read_bytes()
        for torn in (whole[:-1], whole[:9] + b"?" + whole[10:], None):
            (folder / file).unlink()
            if torn is not None:
                (folder / file).write_bytes(torn)
            with pytest.raises(ExecutableError, match=rf"{file}: (a network|a file of a network|weights) must"):
                CudaExecutable(folder, device=device)
            (folder / file).write_bytes(whole)
    whole = (folder / MANIFEST).read_bytes()
    (folder / MANIFEST).write_bytes(whole[:-9])
    with pytest.raises(ExecutableError, match="a manifest must be JSON"):
        CudaExecutable(folder, device=device)
    write_manifest({**json.loads(whole), "kind": "native"}, folder)
    with pytest.raises(ExecutableError, match="`manifest.kind` must be cuda, but got manifest.kind='native'"):
        CudaExecutable(folder, device=device)
    (folder / MANIFEST).unlink()
    with pytest.raises(ExecutableError, match="a network must have a manifest"):
        CudaExecutable(folder, device=device)


def test_another_gpu_or_none_is_refused(network: CudaExecutable, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ExecutableError, match="its kernels are for sm_90, and this GPU is sm_80"):
        CudaExecutable(network.folder, device=FakeDevice({}, "sm_80"))
    monkeypatch.setattr("targets.cuda.executable.first_device", CudaDevice)
    monkeypatch.setattr("targets.cuda.device.missing_device", lambda: "this machine has no GPU")
    with pytest.raises(ExecutableError, match="must be loaded on the GPU it is for, but this machine has no GPU"):
        autotune.load(network.folder)


@pytest.mark.parametrize(
    ("code_arch", "arch", "runs"),
    [
        ("sm_80", "sm_80", True),
        ("sm_80", "sm_89", True),
        ("sm_89", "sm_80", False),
        ("sm_80", "sm_90", False),
        ("sm_90a", "sm_90", True),
        ("sm_120", "sm_121", True),
        ("sm_120", "sm_90", False),
        ("sm_120a", "sm_121", False),
    ],
)
def test_code_runs_on_gpus_of_its_major_version(code_arch: str, arch: str, runs: bool) -> None:
    assert runs_on(code_arch, arch) == runs


@pytest.mark.usefixtures("text_as_machine_code")
def test_an_encoder_on_token_ids(target: RecordingTarget, tmp_path: Path) -> None:
    model = bert_base.build(layers=1, hidden=8, heads=2, sequence=4, vocabulary=11)
    graph = load_network(model, "bert", CompileOptions(target=target)).graph
    network = write_network(graph, make_chooser(target.hardware, 1), tmp_path, target)
    network.time(1)  # with no inputs yet
    tokens = np.random.default_rng(0).integers(0, 11, (1, 4))
    wanted = evaluate(graph, {"tokens": tokens})[graph.outputs[0]]
    np.testing.assert_allclose(network(tokens), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("text_as_machine_code")
def test_bytes_by_tensor_cores(target: RecordingTarget, tmp_path: Path) -> None:
    quantised, _ = quantise_with_report(residual(), 0, Quantisation())
    graph = executable_graph(quantised.graph)
    network = write_network(graph, make_chooser(target.hardware, 1), tmp_path, target)
    assert len(network.manifest["packing"]) == 5
    assert sum(b"mma.sync" in path.read_bytes() for path in network.folder.glob("*.cubin")) == 5
    given = feeds(graph)
    np.testing.assert_allclose(network(given["x"]), evaluate(graph, given)[graph.outputs[0]], rtol=1e-4, atol=1e-6)


def test_machine_code_of_a_network(tmp_path: Path) -> None:
    target = CudaTarget()
    b = GraphBuilder("real", {"x": TensorType((1, 16))})
    graph = b.finish([b.add("softmax", [b.add("matmul", ["x", weight(b, np.random.default_rng(0), 16, 8)])])])
    Compiler(graph, make_chooser(target.hardware, 0), "cuda:sm_90").write(tmp_path)
    manifest = json.loads((tmp_path / MANIFEST).read_text())
    files = [item["file"] for item in manifest["modules"]]
    assert (manifest["arch"], files) == ("sm_90", ["real_kernel0.cubin", "real_kernel1.cubin"])
    for number, file in enumerate(files):
        code = (tmp_path / file).read_bytes()
        assert code[:4] == b"\x7fELF"
        assert all(launch["name"].encode() in code for launch in manifest["launches"][number])


def test_a_process_that_only_runs_imports_numpy_alone() -> None:
    code = "import sys; before = set(sys.modules); import targets.cuda.executable; print(*set(sys.modules) - before)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(autotune.__file__).parents[1],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env=worker_environment([]),
    )
    others = {name.partition(".")[0] for name in done.stdout.split()} - sys.stdlib_module_names
    assert others == {"numpy", "search_space", "targets"}


@pytest.mark.usefixtures("text_as_machine_code")
@pytest.mark.parametrize("seed", [48, 104, 1003])
def test_random_graphs(target: RecordingTarget, tmp_path: Path, seed: int) -> None:
    graph = random_graph(seed)
    network = write_network(graph, make_chooser(target.hardware, seed), tmp_path, target)
    given = draw_inputs(graph)
    found, values = network(*given.values()), evaluate(graph, given)
    for array, name in zip(found if isinstance(found, tuple) else (found,), graph.outputs, strict=True):
        size = float(np.max(np.abs(values[name]), where=np.isfinite(values[name]), initial=1.0))
        np.testing.assert_allclose(array, values[name], rtol=2e-4, atol=2e-4 * size)

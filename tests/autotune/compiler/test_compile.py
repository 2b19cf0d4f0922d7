"""Executables: they compute what the graph says, in Python and in C, whatever is an output, and refuse what is torn."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import autotune
from autotune.compiler.executable.compile import Schedule
from autotune.graph.copies import executable_graph
from autotune.graph.evaluate import evaluate
from autotune.graph.frontends.onnx.importer import import_model
from autotune.graph.ir import Graph, GraphBuilder, TensorType
from autotune.graph.passes import optimise
from autotune.graph.passes.split_windows import split_windows
from autotune.tuner.task import Task
from autotune.tuner.untimed import select_by_roofline
from measure.host import worker_environment
from search_space.schedule.steps import Relayout
from search_space.schedule.trace import Trace
from search_space.space import generate
from search_space.workloads import Workload
from targets import registry
from targets.manifest import ExecutableError
from targets.native_executable import NativeExecutable
from tests.autotune.fakes import settings_with
from tests.autotune.graph.nets import compile_graph, conv, feeds, residual
from tests.search_space.sketch.test_space import draw


def choose_schedule(workload: Workload) -> Schedule:
    found = select_by_roofline(Task(workload.operator, workload), settings_with(threads=2))
    return Schedule(found.algorithm, found.trace)


def compile_into(graph: Graph, folder: Path, threads: int = 2) -> NativeExecutable:
    return compile_graph(graph, choose_schedule, folder / "network", threads=threads)


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> NativeExecutable:
    return compile_into(residual(), tmp_path_factory.mktemp("residual"))


def test_outputs_are_the_graphs(network: NativeExecutable) -> None:
    graph = residual()
    for seed in range(3):
        given = feeds(graph, seed)
        wanted = evaluate(graph, given)[graph.outputs[0]]
        np.testing.assert_allclose(network(given["x"]), wanted, rtol=1e-4, atol=1e-6)


def test_loaded_again_from_its_folder_it_gives_the_same(network: NativeExecutable) -> None:
    given = feeds(residual())["x"]
    again = NativeExecutable(network.folder, threads=1)
    np.testing.assert_array_equal(again(given), network(given))


def test_a_profile_has_a_time_for_each_step(network: NativeExecutable) -> None:
    network(feeds(residual())["x"])
    profile = network.profile(5)
    assert profile.shape == (5, len(network.manifest["steps"]))
    assert (profile >= 0).all()
    assert network.time(5).shape == (5,)
    rows = profile.rows
    assert sum(row.share for row in rows) == pytest.approx(1) and rows[0].gflops is not None
    assert rows[0].name in repr(profile).splitlines()[2]
    for wrong in (-1, 2.5, "3"):
        with pytest.raises(ExecutableError, match="`iterations` must be a whole number from 0, but got"):
            network.profile(wrong)  # type: ignore[arg-type]


def test_it_says_what_it_is_in_a_few_lines(network: NativeExecutable) -> None:
    first, *lines = repr(network).splitlines()
    assert first == f"NativeExecutable of {network.name}: cpu, 2 threads"
    assert lines[0] == f"  inputs: {network.inputs[0].description}" and "x float32 (" in lines[0]
    assert lines[1].startswith("  outputs: ") and len(lines) == 4
    assert f"called in {len(network.manifest['steps'])} steps; operations in float32" in lines[2]
    assert lines[3].startswith(f"  memory: weights {network.weights_bytes / 1e6:.2f} MB, values ")


def test_activations_share_memory(network: NativeExecutable) -> None:
    memory = network.manifest["memory"]
    whole = sum(4 * int(np.prod(s)) for s in ((8, 8, 32), (8, 8, 64), (8, 8, 32), (8, 8, 64), (4, 4, 64), (64,), (10,)))
    assert memory["arena_lower_bound"] <= memory["arena_bytes"] < whole


def test_equal_kernels_are_built_once_and_equal_weights_stored_once(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    b = GraphBuilder("twice", {"x": TensorType((1, 4, 4, 16))})
    shared = b.constant(rng.standard_normal((1, 1, 16, 16)).astype(np.float32))
    y = "x"
    for _ in range(3):
        y = b.add("relu", [b.add("conv2d", [y, shared])])
    found = compile_into(b.finish([y]), tmp_path)
    assert len({step["kernel"] for step in found.manifest["steps"]}) == 1
    assert found.weights_bytes < 2 * 16 * 16 * 4


def test_outputs_that_no_kernel_writes_are_copied(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    b = GraphBuilder("odd", {"x": TensorType((2, 16))})
    c = b.constant(rng.standard_normal((3,)).astype(np.float32))
    y = b.add("relu", ["x"])
    graph = b.finish(["x", c, y, b.add("reshape", [y], shape=(32,)), y])
    found = compile_into(graph, tmp_path)
    given = feeds(graph)
    values = evaluate(graph, given)
    for array, name in zip(found(given["x"]), graph.outputs, strict=True):
        np.testing.assert_array_equal(array, values[name])
    assert executable_graph(residual()).outputs == residual().outputs


@pytest.mark.parametrize("names", [("gamma",), ("beta",), ("gamma", "beta")])
def test_what_a_layer_takes_for_constants_may_be_computed(names: tuple[str, ...], tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    b = GraphBuilder("scaled", {"x": TensorType((5, 8)), **{name: TensorType((8,)) for name in names}})
    given = [
        b.add("tanh", [name]) if name in names else b.constant(rng.standard_normal(8).astype(np.float32))
        for name in ("gamma", "beta")
    ]
    graph = b.finish([b.add("layer_norm", ["x", *given])])
    arrays = feeds(graph)
    found = compile_into(graph, tmp_path)(*(arrays[name] for name in graph.inputs))
    np.testing.assert_allclose(found, evaluate(graph, arrays)[graph.outputs[0]], rtol=1e-4, atol=1e-5)


def test_what_is_no_number_is_seen(tmp_path: Path) -> None:
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, (5,))
    nodes = [
        helper.make_node("IsNaN", ["x"], ["odd"]),
        helper.make_node("Where", ["odd", "one", "x"], ["y"]),
    ]
    one = numpy_helper.from_array(np.array([1.0], np.float32), "one")
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, (5,))
    model = helper.make_model(
        helper.make_graph(nodes, "odd", [value], [output], [one]), opset_imports=[helper.make_opsetid("", 17)]
    )
    x = np.array([np.nan, np.inf, -np.inf, 0.0, -np.nan], np.float32)
    found = compile_into(optimise(import_model(model)), tmp_path)(x)
    np.testing.assert_array_equal(found, np.array([1.0, np.inf, -np.inf, 0.0, 1.0], np.float32))


def test_a_weight_that_is_computed_is_not_packed(tmp_path: Path) -> None:
    b = GraphBuilder("computed", {"x": TensorType((1, 4, 4, 16)), "w": TensorType((1, 1, 16, 32))})
    graph = b.finish([b.add("conv2d", ["x", b.add("tanh", ["w"])])])
    given = feeds(graph)
    found = compile_into(graph, tmp_path)(given["x"], given["w"])
    np.testing.assert_allclose(found, evaluate(graph, given)[graph.outputs[0]], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("mapped", [False, True])
def test_weights_are_read_or_mapped(network: NativeExecutable, mapped: bool) -> None:
    given = feeds(residual())["x"]
    again = autotune.load(network.folder, mapped=mapped)
    np.testing.assert_array_equal(again(given), network(given))
    maps = Path("/proc/self/maps").read_text()
    assert again.weights_bytes == network.weights_bytes
    assert mapped <= (f"{network.folder.resolve()}/residual.weights" in maps)


def test_a_network_without_weights_is_mapped(tmp_path: Path) -> None:
    b = GraphBuilder("bare", {"x": TensorType((2, 16))})
    graph = b.finish([b.add("relu", ["x"])])
    given = feeds(graph)["x"]
    compile_into(graph, tmp_path)
    np.testing.assert_array_equal(autotune.load(tmp_path / "network", mapped=True)(given), np.maximum(given, 0))


ALONE = """
import sys
before = set(sys.modules)
import numpy as np
import autotune

network = autotune.load(sys.argv[1], mapped=sys.argv[2] == "mapped")
network(*(np.zeros(p.shape, p.dtype) for p in network.inputs))
status = open("/proc/self/status").read()
print(status.partition("VmHWM:")[2].split()[0])
print(*sorted(set(sys.modules) - before))
"""
"""Peak of resident memory in KiB, and the modules imported."""


def alone(network: NativeExecutable, how: str) -> tuple[int, list[str]]:
    done = subprocess.run(
        [sys.executable, "-c", ALONE, network.folder.resolve(), how],
        cwd=Path(autotune.__file__).parents[1],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env=worker_environment([]),
    )
    peak, modules = done.stdout.splitlines()
    return int(peak) << 10, modules.split()


def test_a_process_that_only_runs_imports_numpy_alone(network: NativeExecutable) -> None:
    _, modules = alone(network, "read")
    others = {name.partition(".")[0] for name in modules} - sys.stdlib_module_names
    assert others == {"numpy", "autotune", "search_space", "targets"}
    ours = [name for name in modules if name.partition(".")[0] in ("search_space", "targets")]
    assert "targets.cpu.emit" not in ours and "search_space.ir.expr" not in ours


@pytest.mark.parametrize("how", ["read", "mapped"])
def test_weights_are_in_memory_once(network: NativeExecutable, tmp_path: Path, how: str) -> None:
    b = GraphBuilder("large", {"x": TensorType((1, 4096))})
    weight = b.constant(np.random.default_rng(0).standard_normal((4096, 4096)).astype(np.float32))
    large = compile_into(b.finish([b.add("matmul", ["x", weight])]), tmp_path)
    (small, _), (peak, _) = alone(network, how), alone(large, how)
    assert 0.9 < (peak - small) / large.weights_bytes < 1.2


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs cc, a C compiler")
def test_a_c_program_runs_it(network: NativeExecutable, tmp_path: Path) -> None:
    graph = residual()
    given = feeds(graph)["x"]
    given.tofile(tmp_path / "x.bin")
    program = tmp_path / "main.c"
    program.write_text(
        """
        #include "residual.h"
        int main(int count, char **argument) {
          static float x[1024], y[10];
          residual_network network;
          FILE *file = fopen(argument[2], "rb");
          if (!file || fread(x, 4, 1024, file) != 1024) return 2;
          if (residual_open(&network, argument[1], 2)) return 3;
          residual_infer(&network, x, y);
          residual_close(&network);
          for (int i = 0; i < 10; i++) printf("%.9g\\n", y[i]);
          return count == 3 ? 0 : 4;
        }
        """
    )
    folder = network.folder.resolve()
    built = ["cc", "-Wall", "-Werror", "-std=c11", f"-I{folder}", str(program), str(folder / "residual.so")]
    subprocess.run([*built, f"-Wl,-rpath,{folder}", "-o", str(tmp_path / "main")], check=True)
    done = subprocess.run(
        [str(tmp_path / "main"), str(folder / "residual.weights"), str(tmp_path / "x.bin")],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    np.testing.assert_allclose([float(line) for line in done.stdout.split()], network(given)[0], rtol=1e-6)


def test_pixels_further_apart_in_a_workspace_change_no_bit_of_a_network(tmp_path: Path) -> None:
    """The padded copy of 1,024 channels has its pixels a line of 64 bytes further apart, unless a schedule is older."""
    rng = np.random.default_rng(0)
    b = GraphBuilder("apart", {"x": TensorType((1, 4, 4, 1024))})
    graph = b.finish([b.add("relu", [conv(b, rng, "x", 3, 16, padding=1)])])

    def spread(workload: Workload) -> Schedule:
        space = generate(workload, registry.get("cpu").hardware, ("direct",))
        sketch = next(s for s in space.sketches if any(isinstance(step, Relayout) for step in s.steps.steps))
        return Schedule("direct", sketch.trace(draw(sketch, np.random.default_rng(0), 1)[0]))

    def older(workload: Workload) -> Schedule:
        steps = spread(workload).trace.steps
        return Schedule("direct", Trace(tuple(s for s in steps if not isinstance(s, Relayout))))

    found, before = (compile_graph(graph, how, tmp_path / how.__name__, threads=2) for how in (spread, older))
    memory, less = (
        e.manifest["memory"]["shared_bytes"] + e.manifest["memory"]["scratch_bytes"] for e in (found, before)
    )
    assert memory - less == 6 * 6 * 64
    given = feeds(graph)
    np.testing.assert_array_equal(found(given["x"]), before(given["x"]))
    np.testing.assert_allclose(found(given["x"]), evaluate(graph, given)[graph.outputs[0]], rtol=1e-4, atol=1e-6)


def test_without_a_linker_the_objects_are_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    rng = np.random.default_rng(0)
    b = GraphBuilder("objects", {"x": TensorType((1, 4, 4, 16))})
    graph = b.finish([b.add("relu", [conv(b, rng, "x", 1, 16)])])
    found = compile_into(graph, tmp_path)
    assert not list((tmp_path / "network").glob("*.so"))
    given = feeds(graph)
    np.testing.assert_allclose(found(given["x"]), evaluate(graph, given)[graph.outputs[0]], rtol=1e-4, atol=1e-6)


def test_bad_arrays_are_refused(network: NativeExecutable) -> None:
    with pytest.raises(ExecutableError, match="must be given x, but got 2 arrays"):
        network(np.zeros(1), np.zeros(1))
    with pytest.raises(ExecutableError, match=r"input `x` must be float32 of shape \(1, 8, 8, 16\), but got float64"):
        network(np.zeros((1, 8, 8, 16)))


def test_torn_folders_are_refused(network: NativeExecutable, tmp_path: Path) -> None:
    with pytest.raises(ExecutableError, match="must have a manifest"):
        NativeExecutable(tmp_path)
    folder = tmp_path / "copy"
    shutil.copytree(network.folder, folder)
    weights = folder / "residual.weights"
    data = bytearray(weights.read_bytes())
    data[100] ^= 1
    for torn in (bytes(data), data[:-1], network.folder.joinpath("residual.weights").read_bytes() + b"\0", b""):
        weights.write_bytes(torn)
        for mapped in (False, True):
            with pytest.raises(ExecutableError, match="weights must be those of the manifest"):
                NativeExecutable(folder, mapped=mapped)
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**manifest, "schema": "other/1"}))
    with pytest.raises(ExecutableError, match="must be of schema autotune.executable/3, but got other/1; compile"):
        NativeExecutable(folder)


def inception(rng: np.random.Generator) -> Graph:
    """Branches that are concatenated, twice over, and slices of one of them."""
    b = GraphBuilder("branches", {"x": TensorType((1, 6, 6, 16))})
    first = b.add(
        "concat", [b.add("relu", [conv(b, rng, "x", k, c, padding=k // 2)]) for k, c in ((1, 16), (3, 8))], axis=3
    )
    pooled = b.add("max_pool2d", [first], kernel=3, stride=1, padding=1)
    whole = b.add("concat", [first, b.add("relu", [conv(b, rng, pooled, 1, 12)])], axis=3)
    left = b.add("slice", [whole], begin=(0, 0, 0, 4), size=(1, 6, 6, 16))
    right = b.add("slice", [whole], begin=(0, 0, 0, 20), size=(1, 6, 6, 16))
    return b.finish([b.add("sigmoid", [b.add("add", [left, right])]), conv(b, rng, whole, 1, 16)])


def test_concatenations_are_written_and_slices_read_in_place(tmp_path: Path) -> None:
    graph = inception(np.random.default_rng(0))
    found = compile_into(graph, tmp_path)
    titles = [step["title"] for step in found.manifest["steps"]]
    assert not [title for title in titles if "concat" in title or "slice" in title]
    given = feeds(graph)
    values = evaluate(graph, given)
    for array, name in zip(found(given["x"]), graph.outputs, strict=True):
        np.testing.assert_allclose(array, values[name], rtol=1e-4, atol=1e-5)


def test_a_concatenation_seen_in_another_shape_or_of_an_input_is_computed(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    b = GraphBuilder("seen", {"x": TensorType((1, 4, 4, 16))})
    y = b.add("relu", [conv(b, rng, "x", 1, 8)])
    flat = b.add("reshape", [y], shape=(1, 128))
    both = b.add("concat", [y, b.add("sigmoid", [y])], axis=3)
    graph = b.finish([b.add("relu", [both]), flat, b.add("relu", [b.add("concat", ["x", both], axis=3)])])
    found = compile_into(graph, tmp_path)
    given = feeds(graph)
    values = evaluate(graph, given)
    for array, name in zip(found(given["x"]), graph.outputs, strict=True):
        np.testing.assert_allclose(array, values[name], rtol=1e-4, atol=1e-5)


def test_a_split_window_is_added_up_and_written_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_module("autotune.graph.passes.split_windows"), "START", 0)
    builder, rng = GraphBuilder("dilated", {"x": TensorType((2, 6, 6, 32))}), np.random.default_rng(0)
    layer = conv(builder, rng, "x", 3, 32, padding=4, dilation=4)
    graph = builder.finish([builder.add("relu", [layer])])
    split = split_windows(graph)
    assert len([node for node in split.nodes if node.op == "conv2d"]) == 9
    given = feeds(graph)
    wanted = evaluate(graph, given)[graph.outputs[0]]
    network = compile_into(executable_graph(split), tmp_path)
    np.testing.assert_allclose(network(given["x"]), wanted, rtol=1e-4, atol=1e-5)

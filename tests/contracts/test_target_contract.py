"""The contract of targets: those of the registry, and one written by `docs/adding_a_target.md` and nothing else.

A target whose machine is not here builds, links and says why it runs nothing; the GPU is stood for by the emulator.
"""

from __future__ import annotations

import json
import pickle
import re
from functools import cache
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pytest

import autotune
from autotune.compiler.executable.compile import Compiler
from autotune.graph.evaluate import evaluate
from autotune.graph.ir import Graph, GraphBuilder, TensorType
from autotune.run.folder import write_best
from measure.errors import ErrorClass
from measure.executor import KernelExecutor
from measure.pool import Trial
from measure.ray.resources import local_resources, ray_demand, resource_name
from search_space import workloads
from search_space.dtypes import numpy_dtype
from search_space.hardware import Hardware
from search_space.space import Sketch, generate, make_program
from search_space.workloads import Workload
from targets import registry
from targets.base import BuildError, Kernel, Module, NetworkPlan, RunError, Target
from targets.executable import Executable
from targets.manifest import ExecutableError
from targets.native import NativeBound
from tests.autotune import fakes
from tests.autotune.graph.nets import feeds, weight
from tests.gpu.candidates import legal, make_chooser
from tests.properties.running import run_compiled, run_interpreter
from tests.targets.cuda.fake_device import FakeDevice, RecordingTarget

WORKLOADS = (
    workloads.matmul(5, 6, 7),
    workloads.conv2d(height=5, width=4, in_channels=3, out_channels=4, padding=1, bias=True, activation="relu"),
    workloads.softmax(3, 9),
    workloads.reduce((3, 5), 1, "max", "int32"),
    workloads.conv2d_blocked(4, 4, 16, 16, padding=1, relu=True),
    workloads.dense_blocked(1, 32, 16),
)
NAMES = [*registry.TARGETS, "pyloops"]


@pytest.fixture(autouse=True)
def pyloops_target(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.TARGETS, "pyloops", "tests.targets.pyloops.target:get_target")


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def target(name: str, monkeypatch: pytest.MonkeyPatch) -> Target:
    """A target that runs what it builds."""
    if name == "cuda":
        made = RecordingTarget()
        monkeypatch.setattr("targets.cuda.target.get_target", lambda spec="cuda": made)
        for module in ("kernel", "executable"):
            monkeypatch.setattr(f"targets.cuda.{module}.first_device", lambda: FakeDevice(made.kernels_by_digest))
    elif why := registry.get(name).unavailable():
        pytest.skip(why)
    return registry.get(name)


@cache
def sketches(workload: Workload, hardware: Hardware) -> tuple[Sketch, ...]:
    return generate(workload, hardware, ["direct"]).sketches


def program(workload: Workload, target: Target) -> tuple[Any, Any]:
    sketch = sketches(workload, target.hardware)[0]
    trace = sketch.trace(legal(sketch, 1)[0])
    return make_program(workload, "direct", trace), trace


def able(target: Target) -> list[Workload]:
    """The workloads that have a schedule on the machine."""
    return [workload for workload in WORKLOADS if sketches(workload, target.hardware)]


def kernel_output(target: Target, loops: Any, arrays: dict[str, Any]) -> dict[str, Any]:
    """The outputs by name, from a kernel that runs in this process."""
    module = target.build(loops)
    found = target.load(module).bind([arrays[source.name] for source in module.sources]).run()
    return {module.outputs[0]: found} if len(module.outputs) == 1 else dict(zip(module.outputs, found, strict=True))


def load_kernel(workload: Workload, target: Target) -> Kernel:
    return target.load(target.build(program(workload, target)[0]))


# ------------------------------------------------------------------ what it says of itself
def test_it_says_what_it_is(name: str) -> None:
    target = registry.get(name)
    assert registry.get(name) is target and target.name == name and registry.target_name(name) == name
    assert Hardware.from_json(json.loads(json.dumps(target.hardware.to_json()))) == target.hardware
    assert target.cache_bytes > 0 and target.alignment >= 1 and target.spacing % target.alignment == 0
    assert all(json.dumps(facts()) for facts in (target.configuration, target.figures))
    assert len(able(target)) >= 2, "else there is nothing to hold it against"


def test_the_page_of_configuration_names_it(name: str) -> None:
    page = (Path(__file__).parents[2] / "docs" / "config.md").read_text()
    (row,) = re.findall(r"^\| `target` \|.*$", page, re.MULTILINE)
    assert name == "pyloops" or name in re.findall(r"`(\w+)`", row)


def test_networks_run_on_it_alone_or_on_it_and_its_host(name: str) -> None:
    target, kind = registry.get(name), registry.find_executable_class(name)
    assert (kind is not None) == (type(target).link is not Target.link)
    assert kind is None or (issubclass(kind, Executable) and not target.host)
    assert not target.host or registry.find_executable_class(target.host) is not None
    kinds = {each for each in map(registry.find_executable_class, NAMES) if each is not None}
    assert len({each.format.kind for each in kinds}) == len(kinds)


def test_ray_counts_its_devices(name: str) -> None:
    resource, demand = resource_name(name), ray_demand(name)
    assert demand in ({"num_gpus": 1}, {"num_cpus": 1}, {"resources": {resource: 1}})
    assert (local_resources().get(resource, 0) >= 1) == resource.startswith("autotune_"), "Ray counts its own itself"


@pytest.mark.parametrize("spec", ["nothing", "{}:", "{}:a:", "nothing:x"])
def test_names_that_are_none_are_refused(name: str, spec: str) -> None:
    with pytest.raises(registry.UnknownTarget, match="`target` must "):
        registry.get(spec.format(name))


def test_variants_that_are_none_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"must .* but got .*no-such-variant"):
        registry.get(f"{name}:no-such-variant")


def test_where_it_cannot_run_it_says_why(name: str) -> None:
    target = registry.get(name)
    module = target.build(program(able(target)[0], target)[0])
    why = target.unavailable()
    if not why:
        assert target.load(module).module == module
        return
    assert name in why and " must " in why
    with pytest.raises(RunError):
        target.load(module)


# ------------------------------------------------------------------ kernels
def test_kernels_write_what_the_interpreter_says(target: Target) -> None:
    for workload in able(target):
        lowered, _ = program(workload, target)
        arrays = dict(zip([s.name for s in workload.inputs], workload.make_inputs(0), strict=True))
        for name, wanted in run_interpreter(lowered, arrays).items():
            # A target of tests alone, or with a device made up, is unknown to the child process.
            native = target.name != "pyloops" and not isinstance(target, RecordingTarget)
            found = (
                run_compiled(target, lowered, arrays)[name] if native else kernel_output(target, lowered, arrays)[name]
            )
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6, err_msg=workload.key)


def test_modules_are_plain_data_and_exported_as_files(target: Target, tmp_path: Path) -> None:
    workload = able(target)[1]
    lowered, _ = program(workload, target)
    module = target.build(lowered)
    again = Module.from_bytes(module.to_bytes())
    assert again == module and json.dumps(module.metadata) and module.target == target.name
    stages = list(target.stages)
    assert stages[-1] == "assembly" and not {"schedule", "program"} & {*stages}
    assert all(isinstance(text(again), str) and text(again) for text in target.stages.values())
    assert target.stages["assembly"](module) == target.assembly(module)
    assert isinstance(target.refusal(module), str)
    share, built = target.spills(lowered)
    assert 0 <= share <= 1 and built in (None, module)
    written = target.export(module, tmp_path, "best")
    assert written and all((tmp_path / file).stat().st_size for file in written)
    assert {file.name for file in tmp_path.iterdir()} == set(written)
    inputs = workload.make_inputs(1)
    out = np.empty(workload.output.shape, numpy_dtype(workload.output.dtype))
    target.load(again)(*inputs, out)
    np.testing.assert_allclose(out, workload.reference(*inputs), rtol=1e-4, atol=1e-5)


def test_constants_are_packed_as_a_kernel_takes_them(target: Target) -> None:
    workload = workloads.matmul(24, 40, 16)
    if not sketches(workload, target.hardware):
        return
    module = target.build(program(workload, target)[0])
    packer, inputs = target.packer(module), workload.make_inputs(1)
    if packer is None:
        return
    bound, found = target.load(module).bind(inputs), packer(inputs)
    assert isinstance(bound, NativeBound)
    assert {name: array.tobytes() for name, array in found.items()} == {
        name: array.tobytes() for name, array in bound.constants.items()
    }
    with pytest.raises(RunError, match="input `.*` must be"):
        packer([*inputs[:-1], inputs[-1][:1]])


def test_what_a_kernel_does_not_take_is_refused(target: Target) -> None:
    workload = able(target)[0]
    kernel, arrays = load_kernel(workload, target), workload.make_inputs(0)
    out = np.empty(workload.output.shape, numpy_dtype(workload.output.dtype))
    for wrong in ((*arrays[:-1], out), (*arrays[:-1], arrays[-1].astype(np.float64), out), (*arrays, out[:-1])):
        with pytest.raises(RunError, match="must be"):
            kernel(*wrong)
    for missing in (arrays[:-1], [*arrays, out]):
        with pytest.raises(RunError, match="a kernel must be given its"):
            kernel.bind(missing)


@pytest.mark.parametrize("fenced", [False, True])
def test_a_bound_kernel_is_fed_run_timed_and_read(target: Target, fenced: bool) -> None:
    workload = able(target)[0]
    kernel, given = load_kernel(workload, target), workload.make_inputs(0)
    bound = kernel.bind(given, copies=2, fenced=fenced)
    constant = [p.constant for p in kernel.module.sources]
    for seed in (1, 2):
        inputs = [a if kept else b for a, b, kept in zip(given, workload.make_inputs(seed), constant, strict=True)]
        for output in bound.outputs:
            output[...] = 1
        bound.feed(inputs, 0x7F + seed)
        out = bound.run(1)
        np.testing.assert_allclose(out, workload.reference(*inputs), rtol=1e-4, atol=1e-5)
        assert bound.run(1) is out
        start = perf_counter()
        seconds = bound.time(3, 1)
        around = perf_counter() - start
        assert seconds.shape == (3,) and seconds.dtype == np.float64 and (seconds > 0).all()
        # Runs that take longer than the call around them are in another unit.
        assert target.simulated or seconds.sum() < 2 * around
        np.testing.assert_allclose(bound.fetch(), workload.reference(*inputs), rtol=1e-4, atol=1e-5)
        assert bound.damage() == ""
    assert not bound.deterministic or np.ptp(bound.time(2, 1)) == 0
    assert all(isinstance(value, int | float) for value in bound.metrics().values())


def test_it_is_measured_and_tuned_and_the_best_is_written(target: Target, tmp_path: Path) -> None:
    workload, executor = able(target)[-1], KernelExecutor()
    _, trace = program(workload, target)
    trial = Trial.of(workload, "direct", trace, target=target.name)
    task = executor.prepare(trial)
    bound = executor.bind(trial, executor.build(trial), task, 1)
    np.testing.assert_allclose(bound.run(1), task.expected, rtol=1e-4, atol=1e-6)
    options: dict[str, Any] = {"trials": 3, "batch": 3, "cost_model": "roofline", "threads": 1, "finalists": 0}
    result = fakes.tune(workload, target=target.name, pool=fakes.HashPool(), **options)
    assert result.best is not None and result.best.error is ErrorClass.ok
    assert write_best(result, tmp_path) is None
    files = {file.name for file in (tmp_path / "best" / result.name).iterdir()}
    assert files > {"schedule.txt", "program.txt", "kernel.s"}


# ------------------------------------------------------------------ networks
def network() -> Graph:
    """Products by one constant and another, whose results lie beside each other, and a slice that is read in place."""
    rng = np.random.default_rng(0)
    b = GraphBuilder("contract", {"x": TensorType((4, 8))})
    shared = weight(b, rng, 8, 8)
    first = b.add("relu", [b.add("matmul", ["x", shared])])
    both = b.add("concat", [first, b.add("matmul", [first, shared])], axis=1)
    part = b.add("slice", [both], begin=(0, 4), size=(4, 8))
    return b.finish([b.add("softmax", [b.add("matmul", [part, weight(b, rng, 8, 4)])]), both])


def test_a_network_is_linked_loaded_and_run(target: Target, tmp_path: Path) -> None:
    if registry.find_executable_class(target.name) is None:
        nothing = NetworkPlan("none", (), (), (), (), 0, 0)
        with pytest.raises(BuildError, match=f"`target` of a whole network must be .* but got {target.name}"):
            target.link(nothing, tmp_path)
        return
    graph = network()
    Compiler(graph, make_chooser(target.hardware, 0), target.name).write(tmp_path)
    found = autotune.load(tmp_path)
    assert type(found) is registry.find_executable_class(target.name)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert manifest["target"] == target.name and manifest["kind"] == found.format.kind
    again = pickle.loads(pickle.dumps(found))
    for seed in (0, 1):
        given = feeds(graph, seed)
        values = evaluate(graph, given)
        for each in (found, again):
            for array, name in zip(each(given["x"]), graph.outputs, strict=True):
                np.testing.assert_allclose(array, values[name], rtol=1e-4, atol=1e-5)
    kept = found(given["x"])[0]
    np.testing.assert_array_equal(kept, found(given["x"])[0])
    assert not np.shares_memory(kept, found(given["x"])[0]), "a call's outputs are the caller's own"
    assert found.time(3).shape == (3,) and (found.time(2) > 0).all()
    assert found.profile(2).shape == (2, len(manifest["steps"])) and (found.profile(1) > 0).all()
    assert found.weights_bytes > 0 and found.arena_bytes >= 0


def test_a_network_that_is_torn_or_given_other_arrays_says_so(target: Target, tmp_path: Path) -> None:
    if registry.find_executable_class(target.name) is None:
        return
    Compiler(network(), make_chooser(target.hardware, 0), target.name).write(tmp_path)
    found = autotune.load(tmp_path)
    with pytest.raises(ExecutableError, match="`contract` must be given x, but got 0 arrays"):
        found()
    with pytest.raises(ExecutableError, match=r"input `x` must be float32 of shape \(4, 8\), but got float64"):
        found(np.zeros((4, 8)))
    with pytest.raises(ExecutableError, match="`threads` must be from 1 to .*, but got threads=0"):
        autotune.load(tmp_path, threads=0)
    files = {item["file"] for key in ("files", "modules") for item in found.manifest.get(key, ())}
    run = [file for file in files if not file.endswith((".c", ".h"))]
    for file in (*run, found.manifest["weights"]["file"]):
        whole = (tmp_path / file).read_bytes()
        for torn in (whole[:-1], bytes([whole[0] ^ 1]) + whole[1:], None):
            (tmp_path / file).unlink()
            if torn is not None:
                (tmp_path / file).write_bytes(torn)
            with pytest.raises(ExecutableError, match=f"{file}: .* must"):
                autotune.load(tmp_path)
        (tmp_path / file).write_bytes(whole)
    assert run and autotune.load(tmp_path).name == "contract"

"""Ladder, device tests and benchmark on a driver that is a fake: what hangs or fails takes nothing along."""

from __future__ import annotations

import ast
import ctypes
import json
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from benchmarks.gpu import all as everything
from benchmarks.gpu import wheels
from benchmarks.gpu.all import outcomes, summary
from benchmarks.gpu.ladder import kernels, rungs
from benchmarks.gpu.ladder.rungs import RUNGS, WrongResult, module_for, pack, sources_digest
from targets.base import Module
from targets.cuda.program import TensorMap
from tests.targets.cuda import on_host
from tests.targets.cuda.fake_device import FakeDevice, RecordingTarget
from tests.targets.cuda.fake_driver import build, environment

ROOT = Path(__file__).resolve().parents[2]
pytest.importorskip("cuda.bindings", reason="no cuda-bindings: the extra `gpu` is not installed")


RUNG_NAMES = ("axpy", "sums", "shared_memory_96k", "copy_async_4", "tensor_maps")


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("driver"))


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("packed")
    tried = [r for r in RUNGS if r.name in RUNG_NAMES]
    sizes = pack(folder, "sm_90a", tried)
    assert sizes.keys() == {r.name for r in tried if r.make is not None} and sum(sizes.values()) < 1 << 20
    assert (folder / "sources").read_text() == sources_digest()
    return folder


def ladder(driver: Path, folder: Path, modules: Path, behaviour: str, *words: str) -> tuple[int, dict[str, dict]]:
    command = [sys.executable, "-m", "benchmarks.gpu.ladder", "--modules", str(modules), *words]
    env = environment(driver, behaviour, OUT=str(folder))
    done = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, timeout=100)
    lines = [json.loads(line) for line in (folder / "ladder.jsonl").read_text().splitlines()]
    return done.returncode, {line["rung"]: line for line in lines}


def test_a_rung_that_hangs_or_fails_is_a_line_and_the_others_are_tried(
    driver: Path, modules: Path, tmp_path: Path
) -> None:
    behaviour = "hang=axpy,fault=sums,refuse=shared_memory_96k"
    code, lines = ladder(driver, tmp_path, modules, behaviour, "--rungs", ",".join(RUNG_NAMES), "--limit", "8")
    assert code == 1 and lines["versions"]["driver"] == "13.5"
    found = {name: (line["status"], line.get("why", "")) for name, line in lines.items()}
    assert found["axpy"] == ("hung", "not done after 8 s")
    assert found["sums"][0] == "failed" and "DeviceLost" in found["sums"][1] and "ILLEGAL" in found["sums"][1]
    assert found["shared_memory_96k"][0] == "failed" and "RunError" in found["shared_memory_96k"][1]
    assert found["copy_async_4"][0] == "wrong" and "elements are wrong, the first at" in found["copy_async_4"][1]
    assert found["tensor_maps"] == ("right", "") and lines["tensor_maps"]["maps"] == 50


def test_without_a_gpu_it_says_so(driver: Path, modules: Path, tmp_path: Path) -> None:
    code, lines = ladder(driver, tmp_path, modules, "none")
    assert code == 2 and lines["versions"]["status"] == "no gpu" and "error 100" in lines["versions"]["why"]


def test_modules_of_another_gpu_or_of_other_sources_are_not_loaded(modules: Path, tmp_path: Path) -> None:
    class Gpu:
        def __init__(self, arch: str) -> None:
            self.arch = arch

    rung = RUNGS[0]
    assert rung.make is not None
    packed = Module.from_bytes((modules / f"{rung.name}.module").read_bytes())
    marked = replace(packed, llvm_ir="packed")
    for folder, sources in ((tmp_path / "same", sources_digest()), (tmp_path / "other", "other")):
        folder.mkdir()
        (folder / f"{rung.name}.module").write_bytes(marked.to_bytes())
        (folder / "sources").write_text(sources)
    found = {
        (folder, arch): module_for(rung, tmp_path / folder, Gpu(arch))  # type: ignore[arg-type]
        for folder, arch in (("same", "sm_90"), ("same", "sm_80"), ("other", "sm_90"))
    }
    assert [m.llvm_ir for m in found.values() if m is not None] == ["packed", "", ""]
    assert [m.metadata["arch"] for m in found.values() if m is not None] == ["sm_90a", "sm_80", "sm_90a"]


def test_boxes_are_laid_out_as_a_rule_of_the_manual_says() -> None:
    """PTX ISA, 128-byte swizzle: bits 4 to 6 of an address are exchanged with its bits 7 to 9."""
    x = np.arange(kernels.ROWS * kernels.COLUMNS, dtype=np.float32).reshape(kernels.ROWS, kernels.COLUMNS) + 1
    found = kernels.swizzled_boxes(x)
    for row, column in ((0, 0), (3, 17), (63, 63), (64, 5), (99, 119), (71, 70)):
        byte = row % 64 * 128 + column % 64 * 2
        byte ^= (byte >> 7 & 7) << 4
        assert found[row // 64, column // 64, byte // 2] == x[row, column]
    assert (found != 0).sum() == x.size


# ---------------------------------------------------------------------- what rungs expect
class HostDevice(FakeDevice):
    """Runs kernels by their text, on the host."""

    def __init__(self, library: ctypes.CDLL) -> None:
        super().__init__({})
        self.library = library

    def kernel(self, module: bytes, name: str, dynamic_shared_bytes: int) -> Any:
        assert name.encode() in module
        return name

    def prepare_launch(self, kernel: Any, grid: Any, block: Any, dynamic_shared_bytes: int, arguments: Any) -> Any:
        maps = {
            i: on_host.host_map(_make_map(a[1]), arguments[a[1]["argument"]])
            for i, a in enumerate(arguments)
            if isinstance(a, tuple)
        }
        places = [maps[i].ctypes.data if i in maps else a.ctypes.data for i, a in enumerate(arguments)]
        return lambda maps=maps: on_host.run(self.library, kernel, grid, block, places)


def _make_map(facts: Mapping[str, Any]) -> TensorMap:
    return TensorMap("x", facts["dtype"], tuple(facts["shape"]), tuple(facts["strides"]), tuple(facts["box"]))


def test_kernels_by_hand_are_right_where_a_device_is(tmp_path: Path) -> None:
    """The text of each kernel runs on the host and computes what its rung expects."""
    some = {r.name: r for r in RUNGS}
    written = [kernels.AXPY, kernels.SUMS, kernels.SHARED, *kernels.COPY_ASYNC, kernels.BULK_COPY]
    device = HostDevice(on_host.compile_texts([(w.function(), w.name) for w in written], tmp_path))
    for each in written:
        module = each.module("sm_90a")
        assert some[each.name].climb(device, module)["error"] == 0.0, each.name  # type: ignore[arg-type]
        module.metadata["launches"]["kernels"][0]["grid"] = [1, 1, 1]  # blocks are left out, and so are their elements
        with pytest.raises(WrongResult):
            some[each.name].climb(device, module)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["product_float32", "mma_tfloat32", "mma_int8", "wgmma_n64", "replayed_maps"])
def test_scheduled_kernels_are_right_where_a_device_is(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    target = RecordingTarget("sm_90a", "cuda:sm_90a")
    monkeypatch.setattr("targets.cuda.target.CudaTarget", lambda arch, name: target)
    monkeypatch.setattr(rungs, "REPLAYS", 2)
    rung = next(r for r in RUNGS if r.name == name)
    assert rung.make is not None
    module = rung.make("sm_90a")
    facts = rung.climb(FakeDevice(target.kernels_by_digest), module)  # type: ignore[arg-type]
    assert facts["error"] < 1.0 and facts["registers"] > 8


# ---------------------------------------------------------------------- all of it
DEVICE_TESTS = """
import os, time
import pytest
from targets.cuda.device import DeviceLost

@pytest.mark.parametrize("i", range(4))
def test_passes(i):
    pass

def test_hangs():
    time.sleep(1000)

def test_loses_the_device():
    raise DeviceLost("a kernel must run to its end")

def test_kills():
    os.kill(os.getpid(), 9)

@pytest.mark.parametrize("i", range(4))
def test_still_passes(i):
    pass
"""


def test_tests_survive_hangs_and_lost_devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "test_some.py").write_text(DEVICE_TESTS)
    monkeypatch.setattr(everything, "TEST_SECONDS", 3)
    command = everything.test_command([str(tmp_path)], 2)
    code = everything.stage("tests", command, tmp_path, 60)
    found = outcomes((tmp_path / "tests.txt").read_text())
    names = {test.rpartition("::")[2]: outcome for test, outcome in found.items()}
    assert code == 1 and sum(outcome == "passed" for outcome in names.values()) == 8, (
        tmp_path / "tests.txt"
    ).read_text()
    assert names["test_hangs"] == names["test_kills"] == "crashed"
    assert names["test_loses_the_device"] in ("failed", "crashed")


def test_the_summary_names_what_is_missing(tmp_path: Path) -> None:
    rungs = [
        {"rung": "axpy", "status": "right"},
        {"rung": "sums", "status": "hung"},
        {"rung": "x", "status": "skipped"},
    ]
    (tmp_path / "ladder.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rungs))
    (tmp_path / "tests.txt").write_text(
        "1 worker [3 items]\n[gw0] [ 50%] PASSED t.py::one\n[gw1] [ 90%] FAILED t.py::two[a b]\n"
    )
    rows = {"m": {"kind": "fp32", "ratio_warm": 1.0}, "n": {"kind": "fp32", "problem": "TimeoutError"}}
    (tmp_path / "gpu.json").write_text(json.dumps({"rows": rows, "wanted": ["m", "n", "o"]}))
    found = summary(tmp_path, {"ladder": 1, "tests": None, "benchmark": 0})
    assert found["missing"] == [
        "rung sums: hung",
        "test t.py::two[a b]: failed",
        "row n: TimeoutError",
        "row o: not reached",
        "1 of 3 tests: not reached",
        "ladder: ended with 1",
        "tests: ran out of its time",
    ]


def test_a_plain_interpreter_says_that_there_is_no_gpu(tmp_path: Path, driver: Path) -> None:
    """The interpreter has no package: the first check needs no package."""
    command = [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r}); "]
    command[-1] += f"from benchmarks.gpu.all import main; sys.exit(main(['--output', {str(tmp_path)!r}]))"
    done = subprocess.run(command, env=environment(driver, "none"), capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and done.stderr.startswith("no GPU: target cuda must run on a machine with"), (
        done.stderr
    )
    assert json.loads((tmp_path / "ladder.jsonl").read_text())["packages"]["numpy"] == ""


def _at_the_top(path: Path) -> list[str]:
    """Modules that a file imports whenever it is imported."""
    body = ast.parse(path.read_text()).body
    names = [name.name for node in body if isinstance(node, ast.Import) for name in node.names]
    return names + [node.module or "" for node in body if isinstance(node, ast.ImportFrom) and not node.level]


def test_the_wheels_are_all_that_a_machine_with_pytorch_lacks() -> None:
    """Every package that the stages import is fetched, in the version that the project wants, or comes with PyTorch."""
    tests = [f"tests.gpu_device.{path.stem}" for path in sorted((ROOT / "tests" / "gpu_device").glob("*.py"))]
    modules = ["benchmarks.gpu.all", "benchmarks.gpu.__main__", "benchmarks.gpu.beside", *tests]
    modules += ["lightgbm", "measure.worker", "targets.cuda.network", "pytest_timeout", "xdist.plugin"]
    code = (
        "import importlib, sys\nfrom _pytest.outcomes import Skipped\nfor name in sys.argv[1:]:\n"
        "    try:\n        importlib.import_module(name)\n    except Skipped:\n        pass\n"
        "print(*(m.__file__ for m in sys.modules.values() if getattr(m, '__file__', None)))"
    )
    command = [sys.executable, "-c", code, *modules]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=100)
    ours = [path for path in map(Path, done.stdout.split()) if path.is_relative_to(ROOT) and ".venv" not in path.parts]
    assert len(ours) > 100
    imported = {name.partition(".")[0] for path in ours for name in _at_the_top(path)}
    owners = packages_distributions()
    packages = {canonicalize_name(owner) for module in imported for owner in owners.get(module, ())}
    wanted = [Requirement(text) for text in (*wheels.list_pins(), *wheels.PACKAGES)]
    known = {canonicalize_name(name) for name in (*(r.name for r in wanted), *wheels.WITH_TORCH)}
    assert "msgspec" in packages and packages - known <= {"autotune-tensor"}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [*project["dependencies"], *project["optional-dependencies"]["test"]]
    declared = {requirement.name: requirement for requirement in map(Requirement, asked)}
    for requirement in wanted:
        if requirement.specifier and requirement.name in declared:
            assert requirement.specifier == declared[requirement.name].specifier, requirement.name

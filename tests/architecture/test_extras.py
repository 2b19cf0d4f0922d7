"""Packages that are not installed: the base installation works without them, and a sentence says what to install."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from search_space.extras import EXTRAS, MissingExtra, missing, require

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PACKAGES = {"sklearn": "scikit-learn", "grpc": "grpcio"}
"""Module → its package, where the names differ."""
OWN = "autotune-tensor"
BASE = {
    *("capstone", "jinja2", "llvmlite", "ml-dtypes", "msgspec", "numpy", "onnx", "orjson", "pydantic", "pyyaml"),
    *("rich", "threadpoolctl", "typer"),
}
MODULES = {module for modules in EXTRAS.values() for module in modules}
HIDING = f"""
import sys

class Hiding:
    def __init__(self, finder):
        self.finder = finder

    def __getattr__(self, name):
        return getattr(self.finder, name)

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {MODULES}:
            return None
        return self.finder.find_spec(name, path, target)

sys.meta_path[:] = [Hiding(finder) for finder in sys.meta_path]
"""
"""A `sitecustomize` of a process to which no extra is installed."""


def python(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A process that finds no module of an extra."""
    (folder / "site").mkdir()
    (folder / "site" / "sitecustomize.py").write_text(HIDING)
    path = os.pathsep.join([str(folder / "site"), str(ROOT)])
    environment = {name: value for name, value in os.environ.items() if name != "AUTOTUNE_TRACKING"}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**environment, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=100,
    )


def names(requirements: Iterable[str]) -> set[str]:
    """Names of the packages that requirements without an extra ask for, in normal form."""
    parsed = [Requirement(text) for text in requirements]
    return {canonicalize_name(of.name) for of in parsed if not of.marker or of.marker.evaluate({"extra": ""})} - {OWN}


def closure(packages: set[str]) -> set[str]:
    """Packages together with all that they require."""
    every: set[str] = set()
    while new := packages - every:
        every |= new
        packages = {name for package in new for name in names(metadata.requires(package) or ())}
    return every


def test_the_base_installation_is_a_short_list() -> None:
    """A new base dependency is a decision: all of them come to less than 400 MB on Linux (`du` of site-packages)."""
    assert names(PROJECT["dependencies"]) == BASE
    assert not closure(BASE) & {"lightgbm", "pandas", "scikit-learn", "scipy", "sympy", "torch"}


def test_the_project_declares_what_the_table_says() -> None:
    declared = PROJECT["optional-dependencies"]
    for extra, modules in EXTRAS.items():
        assert names(declared[extra]) == {PACKAGES.get(module, module) for module in modules}
        assert not names(declared[extra]) & names(PROJECT["dependencies"])
    (everything,) = declared["all"]
    assert {*EXTRAS, "gpu"} == set(everything.partition("[")[2].rstrip("]").split(","))


def test_a_sentence_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    assert missing("a plot", "matplotlib") == ""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(
        MissingExtra,
        match=r"^a plot must have the packages of the extra `lab` \(pip install 'autotune-tensor\[lab\]'\), "
        "but No module named 'matplotlib'$",
    ):
        require("a plot", "matplotlib")


def test_nothing_of_an_extra_is_imported_before_it_is_used(tmp_path: Path) -> None:
    modules = (
        "autotune, autotune.run.run, autotune.cli, autotune.compiler.checking.check, measure.local, measure.worker"
    )
    said = python(tmp_path, "-c", f"import sys, {modules}; print({MODULES} & set(sys.modules))")
    assert said.returncode == 0 and said.stdout == "set()\n", said.stderr


def test_the_base_installation_tunes(tmp_path: Path) -> None:
    sizes = [f"--set=workload.{axis}=64" for axis in "mnk"]
    folder = tmp_path / "run"
    said = python(
        tmp_path, "-m", "autotune", "run", "configs/matmul.yaml", *sizes, "--trials", "24", "--output", str(folder)
    )
    assert said.returncode == 0, said.stderr
    told = said.stdout + said.stderr
    assert "the run is not tracked: " in told and "[tracking]" in told  # the default, where it can be
    assert "candidates are scored by the roofline: the cost model lightgbm must have the packages of" in told
    assert "curve.png must have the packages of the extra `lab`" in told
    assert "reference latencies must have the packages of the extra `onnx`" in told
    assert len((folder / "records.jsonl").read_text().splitlines()) >= 24
    assert (folder / "summary.json").exists() and not (folder / "curve.png").exists()


def test_a_search_from_python_says_once_that_it_has_no_learned_model(tmp_path: Path) -> None:
    call = "import autotune; from search_space import workloads; autotune.tune(workloads.matmul(8, 8, 8), trials=1)"
    said = python(tmp_path, "-c", call)
    assert said.returncode == 0, said.stderr
    assert said.stderr.count("candidates are scored by the roofline: the cost model") == 1


def test_the_base_installation_compiles_and_runs_networks(tmp_path: Path) -> None:
    (tmp_path / "net.yaml").write_text("model: net.onnx\ntrials: 4\noutput: run\n")
    program = f"""
import os, sys

before = set(sys.modules)  # a `.pth` file imports some at the start
import numpy as np, onnx, autotune
from autotune.cli.app import app
from autotune.compiler import deploy
from onnx import TensorProto, helper, numpy_helper

deploy.TURNS = 2
os.chdir({str(tmp_path)!r})
x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 8]) for name in "xy")
weight = numpy_helper.from_array(np.eye(8, dtype=np.float32)[::-1].copy(), "w")
nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Relu", ["p"], ["y"])]
onnx.save(helper.make_model(helper.make_graph(nodes, "net", [x], [y], [weight])), "net.onnx")
for command in (["run", "net.yaml"], ["compile", "net.yaml"]):
    app(command, standalone_mode=False)
given = np.arange(-16, 16, dtype=np.float32).reshape(4, 8)
for network in (autotune.load("run/network"), autotune.compile("net.onnx")):
    assert np.array_equal(network(given), np.maximum(given[:, ::-1], 0))
print(*{{name.partition(".")[0] for name in set(sys.modules) - before}}, file=open("modules", "w"))
"""
    said = python(tmp_path, "-c", program)
    assert said.returncode == 0, said.stdout + said.stderr
    sources = metadata.packages_distributions()
    base = closure(BASE) | {OWN}
    for module in (tmp_path / "modules").read_text().split():
        packages = {canonicalize_name(package) for package in sources.get(module, ())}  # `google` is of several
        assert not packages or packages & base, module


@pytest.mark.parametrize(
    ("extra", "arguments"),
    [
        ("tune", "run configs/matmul.yaml --set cost_model.name=lightgbm --output RUN"),
        ("tracking", "run configs/matmul.yaml --track mlflow --output RUN"),
        ("tracking", "run configs/matmul.yaml --tracking-uri sqlite:///RUN.db --output RUN"),
        ("tracking", "ui --uri sqlite:///RUN.db"),
        ("ray", "run configs/matmul.yaml --pool ray --output RUN"),
        ("rpc", "run configs/vta_conv2d.yaml --pool rpc://127.0.0.1:1?key=a --output RUN"),
        ("rpc", "worker --listen 127.0.0.1:0 --target vta --token-file RUN"),
        ("lab", "run configs/matmul.yaml --set search.strategy=tpe --output RUN"),
        ("lab", "run configs/matmul.yaml --set cost_model.name=ridge --output RUN"),
        ("tune", "run configs/matmul.yaml --set cost_model.transfer.source=shipped --output RUN"),
    ],
)
def test_what_needs_an_extra_says_so(extra: str, arguments: str, tmp_path: Path) -> None:
    check_refusal(extra, arguments, tmp_path)


def check_refusal(extra: str, arguments: str, tmp_path: Path) -> None:
    """Runs a command without any extra, with `RUN` replaced by a path, and expects it to name the one that it needs."""
    (tmp_path / "run.db").touch()
    said = python(tmp_path, "-m", "autotune", *arguments.replace("RUN", str(tmp_path / "run")).split())
    assert said.returncode == 2, said.stdout + said.stderr
    last = said.stderr.splitlines()[-1]
    assert f"must have the packages of the extra `{extra}` (pip install 'autotune-tensor[{extra}]'), but" in last
    assert "Traceback" not in said.stderr

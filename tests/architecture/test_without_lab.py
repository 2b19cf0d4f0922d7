"""The core works where the laboratory is not installed: nothing names it, and commands, tuning and compiling work.

`python -m tests.without_lab` runs all tests of the core so.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.without_lab import COMMANDS, FOLDERS, PROGRAMS, ROOT, copy_core

LAB = tuple(path.removesuffix(".py").replace("/", ".") for path in (*FOLDERS, *PROGRAMS))
"""Modules and packages of the laboratory, and programs that need it."""
LAB_NAME = re.compile(r"\bautotune[./]lab\b")
ENDING = re.compile(rf"\b({'|'.join(name.rpartition('.')[2] for name in LAB)})\b")
"""Last part of a name of the laboratory: a text without one need not be parsed."""
LINKS = {"autotune/extensions.py": {"autotune.lab.extension"}, "tests/without_lab.py": set(FOLDERS)}
"""File → names of the laboratory in it: where the core finds it, and where its tests leave it out."""

USE = f"""
import importlib.util
from typer.testing import CliRunner

import autotune
from autotune.cli.app import app
from search_space.workloads import matmul
from tests.executable_cases import images

assert importlib.util.find_spec({LAB[0]!r}) is None
runner = CliRunner()
shown = runner.invoke(app, ["--help"]).output
assert "sweep" in shown and not [name for name in {COMMANDS} if name in shown], shown
tasks = runner.invoke(app, ["tasks", "configs/matmul.yaml"])
assert tasks.exit_code == 0, tasks.output
refused = runner.invoke(app, ["tasks", "configs/collect_cpu.yaml"])
assert refused.exit_code == 2 and "collect" in refused.output, refused.output
network = autotune.compile(images(), threads=1, cache="none")
result = autotune.tune(matmul(16, 16, 16), trials=2)
print(result.best is not None)
"""


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkout without the laboratory."""
    folder = tmp_path_factory.mktemp("core")
    copy_core(folder)
    return folder


def names_of_lab(source: str, package: str) -> set[str]:
    """Names of the laboratory that a module imports or has in a string, but for documentation and former names.

    Args:
        source: text of the module.
        package: full name of the package that the module is in, which relative imports start from.
    """
    names: set[str] = set()
    if not ENDING.search(source):
        return names
    waiting: list[ast.AST] = [ast.parse(source)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue  # documentation
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "serve_former_names":
            continue  # of names that are resolved where they are used
        waiting.extend(ast.iter_child_nodes(node))
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names if is_name_of_lab(alias.name)}
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")
            base = parents[: len(parents) + 1 - node.level] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            names |= {name for alias in node.names if is_name_of_lab(name := f"{module}.{alias.name}")}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and LAB_NAME.search(node.value):
            names.add(node.value)
    return names


def is_name_of_lab(name: str) -> bool:
    """Says whether a full name is of a module of `LAB`, or below it."""
    return any(name == module or name.startswith(f"{module}.") for module in LAB)


def modules_of_core() -> Iterator[Path]:
    """Lists all modules but this one, those of the laboratory and programs that need it, relative to the checkout."""
    left_out = (*FOLDERS, *PROGRAMS, Path(__file__).relative_to(ROOT))
    for top in sorted(ROOT.iterdir()):
        if not top.is_dir() or top.name.startswith("."):
            continue
        for path in sorted(top.rglob("*.py")):
            relative = path.relative_to(ROOT)
            if not any(relative.is_relative_to(other) for other in left_out):
                yield relative


def test_nothing_of_the_core_names_the_laboratory() -> None:
    named = {
        path.as_posix(): names
        for path in modules_of_core()
        if (names := names_of_lab((ROOT / path).read_text(), ".".join(path.parent.parts)))
    }
    assert named == LINKS


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("import autotune.lab.test", {"autotune.lab.test"}),
        ("def f():\n    from autotune import lab", {"autotune.lab"}),
        ("if TYPE_CHECKING:\n    from autotune.lab.replay import play", {"autotune.lab.replay.play"}),
        ("from ..lab import replay", {"autotune.lab.replay"}),
        ("from .. import lab", {"autotune.lab"}),
        ("from benchmarks import hub", {"benchmarks.hub"}),
        ("from benchmarks.hub_table import hub", set()),
        ("from tests.autotune.lab.protocol import made", {"tests.autotune.lab.protocol.made"}),
        ("patch('autotune.lab.evaluate.compare')", {"autotune.lab.evaluate.compare"}),
        ("serve_former_names({'autotune.collect': 'autotune.lab.collect'})", set()),
        ('"""Stands below `autotune/lab`."""\nfrom autotune import label', set()),
    ],
)
def test_a_name_of_the_laboratory_is_noticed(source: str, names: set[str]) -> None:
    assert names_of_lab(source, "autotune.tuner") == names


def test_it_compiles_and_tunes(core: Path) -> None:
    variables = {**os.environ, "PYTHONPATH": str(core)}
    done = subprocess.run([sys.executable, "-P", "-c", USE], cwd=core, env=variables, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.split() == ["True"], done.stderr

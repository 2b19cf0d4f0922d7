"""Layers, read from the imports: a package imports only packages to its left, and workers start lean."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LAYERS = ("search_space", "targets", "measure", "costmodel", "autotune")
OUTSIDE = {
    "search_space": ("numpy", "ml_dtypes"),
    "targets": ("llvmlite", "capstone", "cuda"),
    "measure": ("grpc", "msgspec", "orjson", "ray"),
    "costmodel": ("scipy", "sklearn", "lightgbm", "pandas", "pyarrow", "threadpoolctl", "torch"),
}
"""Packages from outside the standard library that each layer may import, besides those of the layers to its left.

The last layer may import everything.
"""
HEAVY = (
    "costmodel",
    "autotune",
    "grpc",
    "lightgbm",
    "matplotlib",
    "mlflow",
    "msgspec",
    "onnx",
    "onnxruntime",
    "pyarrow",
    "pydantic",
    "ray",
    "rich",
    "scipy",
    "sklearn",
    "torch",
    "typer",
)
"""Packages that a measuring worker must not load, since they would delay its start."""
BELOW = {"search_space/hardware.py": "search_space.machines."}
"""Module → package of its own layer that builds on it, so that the module imports nothing of the package."""
LONGEST = 800  # lines of a module, which has more than one idea then
MODULES = sorted(path for layer in LAYERS for path in (ROOT / layer).rglob("*.py"))
EVERY = [
    *MODULES,
    *sorted(path for place in ("benchmarks", "examples", "tests") for path in (ROOT / place).rglob("*.py")),
]


def name(path: Path) -> str:
    """A path as the tests are called by it."""
    return str(path.relative_to(ROOT))


def list_imports(tree: ast.Module) -> Iterator[str]:
    """Full names of all modules that a module imports, wherever in it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            assert node.module is not None
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def crossings(layer: str, module: str, source: str) -> list[str]:
    """Imports in `source`, a module of `layer`, that the layers forbid."""
    left = LAYERS[: LAYERS.index(layer) + 1]
    outside = {library for other in left for library in OUTSIDE.get(other, ())}
    found = []
    for full in list_imports(ast.parse(source)):
        top = full.split(".")[0]
        if top in LAYERS:
            sibling = layer in ("targets", "costmodel") and _is_inside_another(module, full)
            sibling |= module in BELOW and full.startswith(BELOW[module])
            if top not in left or sibling:
                found.append(full)
        elif layer in OUTSIDE and top not in sys.stdlib_module_names and top not in outside:
            found.append(full)
    return found


def _is_inside_another(module: str, full: str) -> bool:
    """Says that a name is one of a target's own folder, in which the module is not."""
    top, name, *_ = *full.split("."), ""
    place = ROOT / "targets" / name
    return top == "targets" and (place / "target.py").is_file() and place not in (ROOT / module).parents


def test_imports_point_to_the_left() -> None:
    found = {}
    for path in MODULES:
        layer = path.relative_to(ROOT).parts[0]
        found[name(path)] = crossings(layer, name(path), path.read_text())
    assert {module: wrong for module, wrong in found.items() if wrong} == {}


def test_every_module_begins_with_what_it_is_for() -> None:
    assert [name(path) for path in EVERY if not ast.get_docstring(ast.parse(path.read_text()))] == []


def test_no_module_is_too_long() -> None:
    lines = {name(path): len(path.read_text().splitlines()) for path in EVERY}
    assert {module: count for module, count in lines.items() if count > LONGEST} == {}


@pytest.mark.parametrize(
    ("layer", "module", "source", "expected"),
    [
        ("search_space", "search_space/te.py", "import targets.registry", ["targets.registry"]),
        (
            "measure",
            "measure/pool.py",
            "def f():\n    from costmodel import features",
            ["costmodel.features"],
        ),
        ("search_space", "search_space/te.py", "import llvmlite", ["llvmlite"]),
        ("targets", "targets/new/emit.py", "from targets.cpu import emit", ["targets.cpu.emit"]),
        ("targets", "targets/registry.py", "from targets.cpu import target", ["targets.cpu.target"]),
        ("targets", "targets/cpu/emit.py", "from targets.cpu import storage", []),
        ("costmodel", "costmodel/features/a.py", "from targets.cpu import storage", ["targets.cpu.storage"]),
        ("costmodel", "costmodel/cpu/a.py", "from targets import jit, registry", []),
        ("autotune", "autotune/cli/app.py", "from targets.cpu import storage", []),
        (
            "search_space",
            "search_space/hardware.py",
            "import search_space.machines.base",
            ["search_space.machines.base"],
        ),
        ("targets", "targets/cuda/values.py", "from targets.cstyle import values", []),
        ("targets", "targets/cstyle/values.py", "from targets.c import values", ["targets.c.values"]),
        ("autotune", "autotune/cli/app.py", "import typer, measure.pool", []),
    ],
)
def test_a_crossing_is_found(layer: str, module: str, source: str, expected: list[str]) -> None:
    assert crossings(layer, module, source) == expected


@pytest.mark.parametrize("module", ["measure.worker", "measure.executor"])
def test_a_worker_loads_nothing_it_does_not_need(module: str) -> None:
    program = f"import sys, {module}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert {entry.split(".")[0] for entry in loaded.stdout.split()}.isdisjoint(HEAVY)

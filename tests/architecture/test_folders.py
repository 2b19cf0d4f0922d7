"""The folders of `autotune`, read from the imports: each imports those before it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

ORDER = (
    "config",
    "graph",
    "tuner",
    "compiler",
    "report",
    "tracking",
    "run",
    "training",
    "pytorch",
    "language",
    "cli",
    "lab",
)
"""The folders from the lowest to the highest: a folder may import those before it, and nothing imports `lab`.

Modules beside the folders are below all of them (`units`) or above (`__init__`); what they import is not looked at.
"""

BACK_EDGES: frozenset[tuple[str, str]] = frozenset()
"""Allowed imports of a later folder, as (module, folder); the set is empty and stays so."""


@cache
def sources() -> dict[str, str]:
    """The text of every module in a folder of `autotune`, by the module's full name."""
    texts = {}
    for path in (ROOT / "autotune").glob("*/**/*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        texts[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path.read_text()
    return texts


def imported_folders(source: str) -> Iterator[str]:
    """Folders of `autotune` that a module imports, in functions and for types alone, too."""
    for node in ast.walk(ast.parse(source)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            package, _, rest = name.partition(".")
            if package == "autotune" and rest.partition(".")[0] in ORDER:
                yield rest.partition(".")[0]


def back_edges(modules: Mapping[str, str]) -> set[tuple[str, str]]:
    """Returns (module, folder) of each import of a folder that is later in `ORDER` than the module's own."""
    return {
        (module, folder)
        for module, source in modules.items()
        for folder in imported_folders(source)
        if ORDER.index(folder) > ORDER.index(module.split(".")[1])
    }


def test_every_folder_stands_in_the_order() -> None:
    folders = {path.parent.name for path in (ROOT / "autotune").glob("*/__init__.py")}
    assert folders | {"lab"} == set(ORDER), "the laboratory may be missing"


def test_folders_import_those_before_them() -> None:
    edges = back_edges(sources())
    assert edges - BACK_EDGES == set(), "a folder must not import a later one, see `ORDER`"
    assert BACK_EDGES - edges == set(), "take these out of `BACK_EDGES`: they are gone"


@pytest.mark.parametrize(
    ("module", "source", "expected"),
    [
        ("autotune.graph.ir", "from autotune.run import folder", {("autotune.graph.ir", "run")}),
        ("autotune.graph.ir", "def f():\n    import autotune.compiler.prepare", {("autotune.graph.ir", "compiler")}),
        ("autotune.graph.ir", "if TYPE_CHECKING:\n    from autotune.cli import app", {("autotune.graph.ir", "cli")}),
        ("autotune.run.run", "from autotune.compiler import load\nfrom autotune import units", set()),
        ("autotune.run.run", "from autotune.run import folder\nfrom measure import pool", set()),
    ],
)
def test_a_back_edge_is_noticed(module: str, source: str, expected: set[tuple[str, str]]) -> None:
    assert back_edges({module: source}) == expected

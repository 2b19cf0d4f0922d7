"""Imports within the layers: circles, private names of others and unused modules are those listed, and fewer."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

from targets.registry import TARGETS

ROOT = Path(__file__).parents[2]
PACKAGES = ("search_space", "targets", "measure", "costmodel", "autotune")

CIRCLES: tuple[frozenset[str], ...] = (
    frozenset({"search_space.ir.expr", "search_space.ir.render"}),
    frozenset({"search_space.ir.printer", "search_space.ir.stmt"}),
    frozenset({"search_space.operators", "search_space.operators.fused"}),
)
"""Modules that may import each other in a circle. The list only becomes shorter."""

PRIVATE: frozenset[tuple[str, str]] = frozenset()
"""(module, private name of another module that it may use). The list only becomes shorter."""

UNUSED_MODULES = frozenset({"measure.rpc.session"})
"""Modules that nothing in the product imports or names: they are for users alone. The list only becomes shorter."""


@cache
def sources() -> dict[str, str]:
    """The text of every module of the product, by the name that it is imported by."""
    found = {}
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path.read_text()
    return found


@cache
def parse(source: str) -> ast.Module:
    """The syntax tree of a module, parsed once."""
    return ast.parse(source)


def imports(source: str) -> Iterator[tuple[str, str]]:
    """(full name, name that it is bound to) of all that a module imports, in functions too, but not for types alone."""
    waiting: list[ast.AST] = [parse(source)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            waiting.extend(node.orelse)
            continue
        waiting.extend(ast.iter_child_nodes(node))
        if isinstance(node, ast.Import):
            yield from ((alias.name, alias.asname or alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((f"{node.module}.{alias.name}", alias.asname or alias.name) for alias in node.names)


def import_graph(modules: Mapping[str, str]) -> dict[str, set[str]]:
    """Module -> the modules that it imports, itself left out."""

    def home(full: str) -> str:
        while full and full not in modules:
            full = full.rpartition(".")[0]
        return full

    return {name: {home(full) for full, _ in imports(text)} - {name, ""} for name, text in modules.items()}


def circles(graph: Mapping[str, set[str]]) -> set[frozenset[str]]:
    """Strongly connected components of more than one module."""
    reached: dict[str, set[str]] = {}
    for start in graph:
        seen, waiting = set(), [start]
        while waiting:
            for other in graph[waiting.pop()] - seen:
                seen.add(other)
                waiting.append(other)
        reached[start] = seen
    groups = (frozenset(other for other in reached[name] if name in reached[other]) for name in graph)
    return {group for group in groups if len(group) > 1}


def private_names(module: str, source: str) -> set[tuple[str, str]]:
    """Private names of other modules of the product that a module imports, or reads as attributes of them."""
    bound = {name: full for full, name in imports(source) if full.split(".")[0] in PACKAGES}
    used = {full for full in bound.values() if _is_private(full)}
    for node in ast.walk(parse(source)):
        if isinstance(node, ast.Attribute) and _is_private(node.attr):
            full = bound.get(ast.unparse(node.value), "")
            if full.rpartition(".")[2].islower():  # a module, not a class
                used.add(f"{full}.{node.attr}")
    return {(module, full) for full in used}


def _is_private(full: str) -> bool:
    name = full.rpartition(".")[2]
    return name.startswith("_") and not name.startswith("__")


def test_circles_of_imports_are_those_listed() -> None:
    found = circles(import_graph(sources()))
    unlisted = [sorted(circle) for circle in found if not any(circle <= listed for listed in CIRCLES)]
    assert unlisted == [], "modules must not import each other in a circle"
    gone = [sorted(listed - frozenset().union(*found)) for listed in CIRCLES]
    assert [names for names in gone if names] == [], "take these out of `CIRCLES`: they are in no circle any more"


def test_private_names_of_other_modules_are_those_listed() -> None:
    found = set().union(*(private_names(module, source) for module, source in sources().items()))
    assert found - PRIVATE == set(), "a module must not use a private name of another one"
    assert PRIVATE - found == set(), "take these out of `PRIVATE`: they are no longer used"


def test_every_module_is_imported_or_named_by_a_registry() -> None:
    modules = sources()
    used = set().union(*import_graph(modules).values())
    packages = {name.rpartition(".")[0] for name in modules} | {"autotune.__main__"}
    packages |= {f"targets.{name}.executable" for name in TARGETS}  # found beside the targets that the registry names
    text = "\n".join(modules.values())
    found = {name for name in modules if name not in used | packages and name not in text}
    assert found - UNUSED_MODULES == set(), "what no product code uses belongs to benchmarks or tests"
    assert UNUSED_MODULES - found == set(), "take these out of `UNUSED_MODULES`: they are used, or are no more"


@pytest.mark.parametrize(
    ("second", "expected"),
    [
        ("import a.one", {frozenset({"a.one", "a.two"})}),
        ("def f():\n    from a.one import x", {frozenset({"a.one", "a.two"})}),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from a.one import x", set()),
        ("import a.three", set()),
    ],
)
def test_a_circle_is_found(second: str, expected: set[frozenset[str]]) -> None:
    assert circles(import_graph({"a": "", "a.one": "from a.two import y", "a.two": second, "a.three": ""})) == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("from measure.pool import _x", {"measure.pool._x"}),
        ("from measure import pool\npool._x()", {"measure.pool._x"}),
        ("import measure.pool\nmeasure.pool._x()", {"measure.pool._x"}),
        ("from measure import pool\npool.x._y, pool.__name__", set()),
        ("from os import _exit", set()),
    ],
)
def test_a_private_name_is_found(source: str, expected: set[str]) -> None:
    assert {full for _, full in private_names("m", source)} == expected

"""docs/importing.md names the operators that are imported, and the operator sets."""

from __future__ import annotations

import re
from pathlib import Path

from autotune.graph.frontends.onnx.importer import HANDLERS
from autotune.graph.frontends.onnx.importer.model import OPSETS
from autotune.graph.zoo import BUILDERS

PAGE = (Path(__file__).parents[3] / "docs" / "importing.md").read_text()


def test_the_table_is_the_registry() -> None:
    rows = re.findall(r"^\| `(\w+)\.py` \| (.*) \|$", PAGE, re.MULTILINE)
    found = {(file, name) for file, names in rows for name in re.findall(r"`(\w+)`", names)}
    assert found == {(handler.__module__.rpartition(".")[2], name) for name, handler in HANDLERS.items()}


def test_operator_sets_and_names() -> None:
    assert f"Operator sets {OPSETS[0]} to {OPSETS[-1]} are read" in PAGE
    assert all(f"`{name}`" in PAGE for name in BUILDERS)

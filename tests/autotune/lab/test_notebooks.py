"""The notebooks of the laboratory run as programs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.notebooks.test_notebooks import ROOT, check_run, check_text, list_notebooks

pytestmark = pytest.mark.xdist_group("notebooks")  # one process imports what they need, and forks

NOTEBOOKS = sorted((ROOT / "notebooks" / "lab").glob("*.py"))

OUTPUTS = {"cost_models.py": "KiB of text", "evaluation.py": "2 points of the curve"}
"""Notebook → what it says in its end."""


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_as_a_program_from_anywhere(notebook: Path, tmp_path: Path) -> None:
    check_run(notebook, OUTPUTS[notebook.name], tmp_path)


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_cells_of_text_and_code_for_any_place(notebook: Path) -> None:
    check_text(notebook)


def test_every_notebook_is_listed() -> None:
    assert {path.name for path in NOTEBOOKS} == set(OUTPUTS) == list_notebooks("lab/")
